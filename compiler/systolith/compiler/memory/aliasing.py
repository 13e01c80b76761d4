"""Aliasing: which results a module wants in the memory of parameters, and which values can be made there.

`input_output_alias={ {0}: (1, {}, may-alias), ... }` says that result 0 may (or must) use parameter 1's memory; JAX
writes it for donated arguments.  A result is made in place if every read of the parameter comes before the first write
in program order: loads may be scheduled earlier than they are written down, never later.

`buffer_donor={ (1, {}), ... }` leaves it to the compiler what parameter 1's memory is used for: for a result of as many
bytes if one can be made there, and for temporaries (`memory/hbm.py`).  No parameter has both (XLA's
`hlo_buffer_donor_config.cc`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Decision
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.text.codecs import codec
from systolith.compiler.memory.residency import (
    Aliases,
    Leaf,
    is_allocation,
    leaf_bytes,
    leaf_liveness,
    leaves_of,
)
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import Family, family, info, is_elementwise

ATTRIBUTE = "input_output_alias"
DONORS = "buffer_donor"
_ENTRY = re.compile(r"\{([\d,\s]*)\}:\s*\((\d+),\s*\{([\d,\s]*)\}(?:,\s*(may|must)-alias)?\)")


@dataclass(frozen=True)
class ResultAlias:
    """A result and the parameter whose memory it is to have, numbered among the leaves (tuples flattened).

    Attributes:
        must: the result has to lie there; otherwise it may.
    """

    result: int
    parameter: int
    must: bool


@dataclass
class Donation:
    """The plan of which results share memory with parameters.

    Attributes:
        shared: the parameter whose memory a result has, by the result's number.
        late: results that are copied there at the end, because the parameter is read until then.
        homes: the result in whose memory a value is made, though others read it or it is updated again later.
        fixed: values that lie in memory of results.
        barred: values that cannot be made in their result's memory, only stored there.
        donors: parameters whose memory temporaries may take, too, once nothing reads it.
        decisions: what became of each alias, for people.
    """

    shared: dict[int, int] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    homes: dict[Leaf, int] = field(default_factory=dict)
    fixed: set[Leaf] = field(default_factory=set)
    barred: set[Leaf] = field(default_factory=set)
    donors: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


def read_aliases(module: Module) -> list[ResultAlias]:
    """The module's aliases; of those that may be, the ones between arrays that are alike.

    Raises:
        CompileError: one names no array, two name one parameter or result, or arrays that must share memory differ.
    """
    if ATTRIBUTE not in module.attributes:
        return []
    text = codec(ATTRIBUTE).show(module.attributes[ATTRIBUTE], module.style)
    found: list[ResultAlias] = []
    for output, number, index, kind in _ENTRY.findall(text):
        parameters = module.entry.parameters
        if int(number) >= len(parameters):
            raise CompileError(f"{ATTRIBUTE}: parameter {number}: the module has {len(parameters)}")
        result, shape = _leaf(module.entry.result.shape, output, f"{ATTRIBUTE}: result")
        parameter, given = _leaf(parameters[int(number)].shape, index, f"{ATTRIBUTE}: parameter {number}")
        if (shape.dtype, shape.dims) != (given.dtype, given.dims):
            if kind != "must":
                continue
            raise CompileError(
                f"{ATTRIBUTE}: result {{{output}}} is {shape.dtype}{list(shape.dims)}, parameter {number} {{{index}}}"
                f" {given.dtype}{list(given.dims)}; they share memory only if they are alike"
            )
        before = sum(len(p.shape.arrays) for p in parameters[: int(number)])
        found.append(ResultAlias(result, before + parameter, kind == "must"))
    for what, numbers in (("result", [a.result for a in found]), ("parameter", [a.parameter for a in found])):
        if len(set(numbers)) < len(numbers):
            raise CompileError(f"{ATTRIBUTE}: a {what} has two aliases: {text}")
    return found


def read_donors(module: Module) -> list[int]:
    """Parameters, numbered among the leaves, whose memory is the program's.

    Raises:
        CompileError: one is no array of a parameter, is named twice, or has an alias.
    """
    aliased = {a.parameter for a in read_aliases(module)}
    found: list[int] = []
    parameters = module.entry.parameters
    for number, index in cast("tuple[tuple[int, tuple[int, ...]], ...]", module.attributes.get(DONORS, ())):
        if number >= len(parameters):
            raise CompileError(f"{DONORS}: parameter {number}: the module has {len(parameters)}")
        path = ", ".join(map(str, index))
        leaf, _ = _leaf(parameters[number].shape, path, f"{DONORS}: parameter {number}")
        leaf += sum(len(p.shape.arrays) for p in parameters[:number])
        if leaf in aliased or leaf in found:
            other = f"has an {ATTRIBUTE}, too" if leaf in aliased else "is named twice"
            raise CompileError(f"{DONORS}: parameter {number} {{{path}}} {other}; name it once")
        found.append(leaf)
    return found


def most_in_place(module: Module) -> int:
    """Bytes of results that parameters may have memory for, at most."""
    shapes = module.entry.result.shape.arrays
    given = [s.bytes for p in module.entry.parameters for s in p.shape.arrays]
    aliased = {a.result for a in read_aliases(module)}
    donated = Counter(given[n] for n in read_donors(module))
    others = Counter(s.bytes for n, s in enumerate(shapes) if n not in aliased)
    return sum(shapes[n].bytes for n in aliased) + sum((donated & others).elements())


def _leaf(shape: Shape, path: str, what: str) -> tuple[int, Shape]:
    """Number of the array at a path such as `1, 0` among the leaves of a shape, and its shape."""
    number = 0
    for step in [int(s) for s in path.split(",") if s.strip()]:
        if step >= len(shape.elements):
            raise CompileError(f"{what} {{{path}}}: there is no such element")
        number += sum(len(s.arrays) for s in shape.elements[:step])
        shape = shape.elements[step]
    if not shape.is_array:
        raise CompileError(f"{what} {{{path}}}: is no array")
    return number, shape


def parameter_leaves(module: Module) -> list[Leaf]:
    """The entry's parameters, tuples flattened."""
    return leaves_of(*module.entry.parameters)


def wanted_aliases(module: Module, uses: Uses) -> list[ResultAlias]:
    """The module's aliases, and results for the parameters that it donates without saying what for.

    Raises:
        CompileError: see `read_aliases`.
    """
    aliases, parameters = read_aliases(module), parameter_leaves(module)
    donors = {parameters[n]: n for n in read_donors(module)}
    results = uses.aliases.leaves[module.entry.result]
    return [*aliases, *_given(uses, donors, results, {a.result for a in aliases})]


def plan_donation(module: Module, small: int) -> Donation:
    """Decide which results are made in parameters' memory, and what else lies in memory of results.

    Args:
        module: grouped HLO.
        small: a value of up to so many bytes that others read is made in VMEM and stored.

    Raises:
        CompileError: see `read_aliases`.
    """
    uses = Uses(module.entry)
    results = uses.aliases.leaves[module.entry.result]
    parameters = parameter_leaves(module)
    plan = Donation(fixed=stored_directly(module.entry, uses.aliases), donors=read_donors(module))
    for alias in wanted_aliases(module, uses):
        leaf, parameter = results[alias.result], parameters[alias.parameter]
        needed = family(leaf[0]) is Family.GIVEN or uses.last[parameter] > uses.position[leaf[0]]
        if leaf == parameter:
            what, why = "is left in", "it is the parameter"
        elif not needed:
            what, why = _in_place(plan, uses, alias, leaf, parameter, small)
        elif alias.must:
            what, why = "is copied at the end to", "the parameter is needed after the result is made"
            plan.late.add(alias.result)
            plan.barred.add(leaf)
        else:
            what, why = "is not made in", "the parameter is needed after the result is made"
        if alias.must or leaf == parameter or not needed:
            plan.shared[alias.result] = alias.parameter
            if uses.keeps(leaf, parameter) and alias.parameter in plan.donors:
                plan.donors.remove(alias.parameter)
        text = f"result {alias.result} {what} the memory of parameter {alias.parameter}"
        numbers = {"bytes": leaf_bytes(leaf)}
        plan.decisions.append(Decision("memory", leaf[0].name, text, why, numbers))
    plan.fixed = (plan.fixed - plan.barred) | set(plan.homes)
    return plan


def _given(
    uses: Uses, donors: dict[Leaf, int], results: Sequence[Leaf], taken: Collection[int]
) -> Iterator[ResultAlias]:
    """Results of as many bytes for the memory of donated parameters.

    First those that are such a parameter or are made of it in place, then, in the order in which they are made, those
    that are made when a parameter is not needed any more.

    Args:
        uses: of the entry.
        donors: the parameters, numbered among the leaves.
        results: leaves in order.
        taken: numbers of results that have memory already.
    """
    left = dict(donors)
    free: dict[int, list[int]] = defaultdict(list)
    for number, leaf in enumerate(results):
        if number in taken:
            continue
        first = next(
            (old for old in uses.replaceable(leaf) if old in left and leaf_bytes(old) == leaf_bytes(leaf)), None
        )
        if first is not None:
            yield ResultAlias(number, left.pop(first), False)
        elif family(leaf[0]) is not Family.GIVEN:
            free[leaf_bytes(leaf)].append(number)
    for numbers in free.values():
        numbers.sort(key=lambda n: -uses.position[results[n][0]])
    for old in sorted(left, key=lambda old: uses.last[old]):
        numbers = free[leaf_bytes(old)]
        while numbers and uses.position[results[numbers[-1]][0]] <= uses.last[old]:
            numbers.pop()
        if numbers:
            yield ResultAlias(numbers.pop(), left[old], False)


def _in_place(
    plan: Donation, uses: Uses, alias: ResultAlias, leaf: Leaf, parameter: Leaf, small: int
) -> tuple[str, str]:
    """Where the values that lead to a result lie, none of which is written before the parameter's last use, and why."""
    *made, first = uses.updated(leaf)
    if first == parameter and (leaf in plan.fixed or leaf_bytes(leaf) > small):
        plan.homes |= dict.fromkeys(made, alias.result)
        return "is updated in", "only what changes is written"
    if uses.may_replace(leaf, parameter):
        return "is made or stored in", "nothing reads the parameter any more, or only at the element that is made"
    plan.barred.add(leaf)
    return "is stored, once made, in", "what makes it reads other elements of the parameter"


def stored_directly(computation: Computation, aliases: Aliases) -> set[Leaf]:
    """Leaves that only the root holds: groups make them in the result buffers, and loops that start without contents.

    A buffer that another loop changes stays in VMEM if it fits, and is stored once.
    """
    used = {
        leaf
        for i in computation.instructions
        if family(i) is not Family.NAME
        for o in i.operands
        for leaf in aliases.leaves[o]
    }
    return {
        leaf
        for leaf in aliases.leaves[computation.result]
        if leaf not in used and (isinstance(leaf[0], Group) or _starts_empty(leaf, aliases))
    }


def _starts_empty(leaf: Leaf, aliases: Aliases) -> bool:
    """Whether a leaf is the result of a loop that gives it all its contents."""
    maker, k = leaf
    return maker.opcode == "while" and is_allocation(aliases.leaves[maker.operands[0]][k][0])


def carried_in_place(body: Computation) -> dict[Leaf, int]:
    """Results of groups and conditionals of a loop's body that can be made where the element of the state lies that
    they become, with its number.

    The old value must not be needed any more, or the groups that need it last update it where it is.
    """
    (parameter,) = body.parameters
    uses = Uses(body)
    after = uses.aliases.leaves[body.result]
    found: dict[Leaf, int] = {}
    for k, leaf in enumerate(after):
        made_here = isinstance(leaf[0], Group) or leaf[0].opcode == "conditional"
        if not made_here or after.count(leaf) > 1 or (parameter, k) in after:
            continue
        *made, first = uses.updated(leaf)
        if first == (parameter, k):
            found |= dict.fromkeys(made, k)
        elif uses.may_replace(leaf, (parameter, k)):
            found[leaf] = k
    return found


class Uses:
    """Where the values of a computation are made and used for the last time.

    Attributes:
        aliases: what instructions stand for.
        last: position of each leaf's last use; beyond the end for what the root holds.
        position: of each instruction.
    """

    def __init__(self, computation: Computation) -> None:
        self.aliases = Aliases(computation)
        self.last: Mapping[Leaf, int] = leaf_liveness(computation, self.aliases).last
        self.position = {i: n for n, i in enumerate(computation.instructions)}

    def updated(self, leaf: Leaf) -> list[Leaf]:
        """The leaf, what it is an update of that nothing needs afterwards, and so on."""
        chain = [leaf]
        while (base := self._base(chain[-1][0])) is not None and self.last[base] == self.position[chain[-1][0]]:
            chain.append(base)
        return chain

    def replaceable(self, leaf: Leaf) -> Iterator[Leaf]:
        """Values in whose memory `leaf` lies or may be made while it takes their place: itself, what it is made of."""
        yield leaf
        yield self.updated(leaf)[-1]
        for old in (o for operand in leaf[0].operands for o in self.aliases.leaves[operand]):
            if self.may_replace(leaf, old):
                yield old

    def keeps(self, leaf: Leaf, old: Leaf) -> bool:
        """Whether `leaf`, made in the memory of `old`, has elements of it that nothing reads on the way."""
        if leaf[0].opcode == "while":
            return self.last.get(old, -1) == self.position[leaf[0]]
        return self.updated(leaf)[-1] == old

    def may_replace(self, leaf: Leaf, old: Leaf) -> bool:
        """Whether `leaf` may be made in the memory of `old`: what reads `old` last reads each element before it is
        written.
        """
        maker = leaf[0]
        end, made = self.last.get(old, -1), self.position[maker]
        if end != made:
            return end < made
        if maker.opcode == "while":
            initial = self.aliases.leaves[maker.operands[0]]
            return initial.count(old) == 1 and initial[leaf[1]] == old
        if not isinstance(maker, Group):
            return False
        return self._base(maker) == old or pointwise(maker, self._numbers(maker, old))

    def _numbers(self, group: Instruction, leaf: Leaf) -> list[int]:
        return [n for n, o in enumerate(group.operands) if leaf in self.aliases.leaves[o]]

    def _base(self, group: Instruction) -> Leaf | None:
        """The leaf that a group updates: its operand, changed in places, and used for nothing else."""
        number = _updated_operand(group)
        if number is None:
            return None
        (leaf,) = self.aliases.leaves[group.operands[number]]
        return leaf if self._numbers(group, leaf) == [number] else None

    def changed(self, group: Instruction) -> Leaf | None:
        """The leaf that a group changes in places, whatever else uses it; None: it changes none."""
        number = _updated_operand(group)
        return None if number is None else self.aliases.leaves[group.operands[number]][0]

    def updates(self) -> dict[Leaf, int]:
        """Values that groups may make where those lie that they update: made by a group here, not needed afterwards.

        For each the number of the operand that is updated.
        """
        found: dict[Leaf, int] = {}
        for group in self.position:
            number = _updated_operand(group)
            if number is None or len(chain := self.updated((group, 0))) < 2:
                continue
            if isinstance(chain[1][0], Group):
                found[group, 0] = number
        return found


def _updated_operand(group: Instruction) -> int | None:
    """The number of the operand that a group changes in places, and uses for nothing else."""
    if not isinstance(group, Group):
        return None
    root = group.body.result
    if not info(root).updates or not root.shape.is_array or root.operands[0].opcode != "parameter":
        return None
    once = group.body.users()[root.operands[0]] == [root] and root.operands.count(root.operands[0]) == 1
    return root.operands[0].number if once else None


def pointwise(group: Group, numbers: Collection[int]) -> bool:
    """Whether a group reads these operands only at the element that it makes: elementwise from them to its results."""
    if group.unit not in (Unit.MXU, Unit.VPU) or group.reduces:
        return False
    computation = group.body
    users, roots = computation.users(), group_roots(computation)
    reached: Sequence[Instruction] = [p for p in computation.parameters if p.number in numbers]
    seen = set(reached)
    while reached:
        if any(i.dims != roots[0].dims or not i.shape.is_array for i in reached):
            return False
        further = {user for i in reached for user in users[i] if user.opcode != "tuple"}
        if not all(is_elementwise(user) for user in further):
            return False
        reached = [user for user in further if user not in seen]
        seen.update(reached)
    return True
