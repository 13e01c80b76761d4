"""Scalars that change by a constant in each iteration of a loop: SEQ computes them, and does not wait for memory."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.simplify.algebraic_arithmetic import value_range
from systolith.compiler.passes.simplify.while_trip_count import element, scalar
from systolith.compiler.tile.induction import Induction, Progression, progression
from systolith.compiler.tile.ir import Array, VReg

Known = Progression | int | None

WORD = -(2**31), 2**31 - 1
"""The least and the greatest number in a register."""


def counted_states(loop: Instruction, count: int) -> dict[int, tuple[int, int]]:
    """Elements of the state that start at a constant and change by one, each with both.

    Args:
        loop: a `while` of grouped HLO.
        count: its trip count.
    """
    (state,), body = loop.operands, loop.computation("body")
    if state.opcode != "tuple" or body.result.opcode != "tuple":
        return {}
    found: dict[int, tuple[int, int]] = {}
    for k, (first, made) in enumerate(zip(state.operands, body.result.operands, strict=True)):
        start, step = scalar(first), _step(made, k, body)
        if start is None or step is None:
            continue
        if _fits(Progression(Induction(VReg(0), count), start, step), first):
            found[k] = start, step
    return found


def _step(made: Instruction, number: int, body: Computation) -> int | None:
    """What a group adds to an element of the state to make the next one; None: it does something else."""
    place = 0
    if made.opcode == "get-tuple-element":
        place, (made,) = made.integer("index"), made.operands
    if not isinstance(made, Group):
        return None
    root = made.body.result
    root = root.operands[place] if root.opcode == "tuple" else root
    before = Progression(Induction(VReg(0), 1), 0, 1)
    given = zip(made.body.parameters, made.operands, strict=True)
    after = _value(root, {p: before if element(o, body) == number else None for p, o in given}) if _is_word(root) else 0
    return after.first if isinstance(after, Progression) and after.step == 1 else None


def note_scalars(loops: Sequence[Induction], group: Group, inputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Note the result of a group that changes by a constant with the iterations of a loop around.

    Args:
        loops: around it, the outermost first.
        group: it.
        inputs: where its operands lie.
        results: where its results lie.
    """
    root = group.body.result
    if not loops or not _is_word(root) or len(inputs) != len(group.body.parameters):
        return
    known: dict[Instruction, Known] = {
        p: progression(loops, a) for p, a in zip(group.body.parameters, inputs, strict=True)
    }
    value = _value(root, known)
    if isinstance(value, Progression):
        value.loop.computed.append((results[0], value.first, value.step))


def _is_word(i: Instruction) -> bool:
    """Whether a value is one number that a register holds."""
    return i.shape.is_array and not i.dims and i.shape.dtype.is_integer and i.shape.dtype.bits <= 32


def _value(i: Instruction, known: dict[Instruction, Known]) -> Known:
    """What a scalar is in each iteration of a loop."""
    if i not in known:
        known[i] = None
        constant = scalar(i)
        if constant is not None:
            known[i] = constant
        elif i.opcode in ("add", "subtract", "multiply") and _is_word(i):
            a, b = (_value(o, known) for o in i.operands)
            value = _combined(i.opcode, a, b)
            known[i] = value if _fits(value, i) else None
        elif i.opcode == "select" and i.operands[0].opcode == "compare":
            taken = _always(i.operands[0], known)
            known[i] = None if taken is None else _value(i.operands[1 if taken else 2], known)
    return known[i]


def _always(compare: Instruction, known: dict[Instruction, Known]) -> bool | None:
    """What a comparison gives in every iteration; None: that is not known."""
    a, b = (_value(o, known) for o in compare.operands)
    if compare.word("direction") != "LT" or not isinstance(a, Progression) or not isinstance(b, int):
        return None
    return True if max(a.first, a.last) < b else False if min(a.first, a.last) >= b else None


def _combined(opcode: str, a: Known, b: Known) -> Known:
    if a is None or b is None:
        return None
    if isinstance(a, int):
        if isinstance(b, int):
            return None  # constants are folded before
        if opcode == "multiply":
            return b.times(a)
        sign = -1 if opcode == "subtract" else 1
        return Progression(b.loop, a + sign * b.first, sign * b.step)
    if isinstance(b, int):
        if opcode == "multiply":
            return a.times(b)
        return a._replace(first=a.first - b if opcode == "subtract" else a.first + b)
    if a.loop is not b.loop or opcode == "multiply":
        return None
    sign = -1 if opcode == "subtract" else 1
    return Progression(a.loop, a.first + sign * b.first, a.step + sign * b.step)


def _fits(value: Known, i: Instruction) -> bool:
    """Whether a scalar never leaves the numbers of its type: then it wraps nowhere."""
    least, most = value_range(i.shape.dtype)
    return isinstance(value, Progression) and value.is_within(max(least, WORD[0]), min(most, WORD[1]))
