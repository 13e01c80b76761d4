"""Results of a region that a later region computes again from another result, so that HBM holds one of the two.

The forward pass of attention leaves to the backward pass both the exponentials and their quotients by the rows' sums:
the quotients are a division away from the exponentials, which are read in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.ops.group import Group, Tiling, is_cheap
from systolith.compiler.ops.table import info, is_elementwise


def copy_for_users(
    computation: Computation, region: Collection[Instruction], inside: Collection[Instruction], large: int
) -> bool:
    """Let what comes after a region compute values of it again that are one cheap operation away from other results.

    What a value is spread from is one, too, for it is smaller.  Products take an elementwise value as it is: for one
    of them it would have to be stored outside.  `inside`: users that the region takes in, whatever they read; `large`:
    see `again`.  Whether there are any.
    """
    users = computation.users()
    results = {i for i in region if any(u not in inside for u in users[i])}
    after: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        outside = [u for u in users[i] if u not in inside] if i in results else []
        if i.opcode != "broadcast":
            outside = [u for u in outside if is_cheap(u) or u.opcode == "reduce"]
        if not outside or not (i.opcode == "broadcast" or _is_near(i, results - {i}, large)):
            continue
        made = after[i] = i.copy([after.get(o, o) for o in i.operands], dict(i.attributes))
        made.name = computation.fresh_name(f"{i.name}.again")
        for user in outside:
            user.operands = [made if o is i else o for o in user.operands]
    computation.instructions = [j for i in computation.instructions for j in (i, *([after[i]] if i in after else []))]
    return bool(after)


def again(
    result: Instruction, inside: Collection[Instruction], results: Mapping[Instruction, Instruction], large: int
) -> list[Instruction]:
    """Copies, on what there is outside, of a region's result and, before it, of what it rounds, if it does, which are
    not in the computation.  Empty: there is not enough outside.

    `inside`: the region; `results`: what gives each result outside; `large`: bytes of a value that HBM moves later than
    the vector unit takes a transcendental function of it.
    """
    if result.opcode == "convert" and result.operands[0] in inside and result.operands[0] not in results:
        before = again(result.operands[0], inside, results, large)
        return [*before, result.copy(before[-1:], dict(result.attributes))] if before else []
    if not _is_near(result, results.keys() - {result}, large):
        return []
    operands = [_outside(o, inside, results) for o in result.operands]
    found = [o for o in operands if o is not None]
    return [result.copy(found, dict(result.attributes))] if len(found) == len(operands) else []


def _is_near(i: Instruction, results: Collection[Instruction], large: int) -> bool:
    """Whether a value is one cheap operation on a result, and on what is spread."""
    if not is_elementwise(i) or (info(i).expensive and i.shape.bytes < large):
        return False
    read = {o for o in i.operands if o.opcode != "broadcast" and o.dims}
    return len(read) == 1 and read.issubset(results)


def _outside(
    o: Instruction, inside: Collection[Instruction], results: Mapping[Instruction, Instruction]
) -> Instruction | None:
    """What stands for an operand outside: a result, a value from there, or a copy of one of these spread."""
    if o in results or (o not in inside and o.opcode != "broadcast"):
        return results.get(o, o)
    if o.opcode != "broadcast":
        return None
    (source,) = o.operands
    spread = results.get(source, source)
    return None if spread is source and source in inside else o.copy([spread], dict(o.attributes))


def replace_operands(copies: Iterable[Instruction], value: Mapping[Instruction, Instruction]) -> None:
    """Let copies that `again` gave read what has taken the place of values: results of a region that took these in."""
    for made in copies:
        for i in (made, *(o for o in made.operands if o.opcode == "broadcast")):
            i.operands = [value.get(o, o) for o in i.operands]


def drop_unused(computation: Computation, groups: Collection[Instruction]) -> None:
    """Let groups in blocks leave out results that nothing uses."""
    users = computation.users()
    parts: dict[Group, list[Instruction]] = defaultdict(list)
    for i in computation.instructions:
        if i.opcode == "get-tuple-element" and i.operands[0] in groups and (users[i] or i is computation.result):
            group = i.operands[0]
            assert isinstance(group, Group)
            parts[group].append(i)
    value: dict[Instruction, list[Instruction]] = {}
    for group, used in parts.items():
        if set(users[group]) == {*used}:
            continue
        numbers = sorted({part.integer("index") for part in used})
        smaller = _with_results(group, numbers)
        value[group] = [smaller]
        value |= {part: [] for part in users[group] if part not in used}
        for part in used:
            part.operands = [smaller]
            part.attributes["index"] = numbers.index(part.integer("index"))
            if len(numbers) == 1:
                value[part] = []
        if len(numbers) == 1:
            for user in (u for part in used for u in users[part]):
                user.operands = [smaller if o in used else o for o in user.operands]
            if computation.result in used:
                computation.root = smaller
    computation.instructions = [j for i in computation.instructions for j in value.get(i, [i])]


def _with_results(group: Group, numbers: Sequence[int]) -> Group:
    """A group with some of its results."""
    body, tiling = group.body, group.tiling
    assert tiling is not None
    root = body.result
    kept = [root.operands[n] for n in numbers]
    body.instructions.remove(root)
    body.root = kept[0]
    if len(kept) > 1:
        body.root = Instruction(root.name, "tuple", tuple_of([r.shape for r in kept]), kept)
        body.instructions.append(body.root)
    dims = tuple(tiling.dims[n] for n in numbers)
    accumulated = tuple(k for k, n in enumerate(numbers) if n in tiling.accumulated)
    return Group.of(group.name, body, group.operands, group, None, Tiling(dims, accumulated), group.why)
