"""Layers: stretches of a computation in which the same operations come again and again, on other parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.effects import Effects

FEWEST = 4
"""Layers."""

SHORTEST = 4
"""Operations of a layer."""


@dataclass(frozen=True)
class Same:
    """An operand that the same layer makes, by its number there."""

    slot: int


@dataclass(frozen=True)
class Before:
    """An operand that the layer before makes, by its number there; the first layer has `first` in its place."""

    slot: int
    first: Instruction


@dataclass(frozen=True)
class Fixed:
    """An operand that all layers have in common."""

    value: Instruction


@dataclass(frozen=True)
class Stacked:
    """Parameters, one for each layer."""

    values: tuple[Instruction, ...]


@dataclass(frozen=True)
class Rows:
    """Rows of an array that a loop gives: of layer n row `first + n * step`."""

    array: Instruction
    first: int
    step: int


Source = Same | Before | Fixed | Stacked | Rows


@dataclass
class Layers:
    """Layers.

    Attributes:
        rows: the operations of each, in the same order.
        sources: for each operation of a layer, where its operands come from.
    """

    rows: list[list[Instruction]]
    sources: list[list[Source]] = field(default_factory=list)

    @property
    def stacks(self) -> list[tuple[Instruction, ...]]:
        """The parameters that differ from layer to layer, each sequence once."""
        found = (s.values for sources in self.sources for s in sources if isinstance(s, Stacked))
        return list(dict.fromkeys(found))

    def used_outside(self, computation: Computation) -> list[tuple[int, int]]:
        """(layer, number there) of what other operations use, or the root is."""
        place = {i: (n, slot) for n, row in enumerate(self.rows) for slot, i in enumerate(row)}
        used = {o for i in computation.instructions if i not in place for o in i.operands} | {computation.result}
        return [at for i, at in place.items() if i in used]


def row_of(i: Instruction) -> tuple[Instruction, int] | None:
    """The array that a loop gives, and the number of its row, that an instruction is."""
    part = i.operands[0] if i.opcode == "reshape" else i
    if part.opcode != "slice" or part.operands[0].opcode != "get-tuple-element" or i.dims != part.dims[1:]:
        return None
    array = part.operands[0]
    (taken, *others) = part.slices
    first, end = taken.start, taken.limit
    whole = all((d.start, d.limit) == (0, size) for d, size in zip(others, array.dims[1:], strict=True))
    return (array, first) if array.operands[0].opcode == "while" and end == first + 1 and whole else None


def layers_of(computation: Computation, order: Sequence[Instruction]) -> Iterator[Layers]:
    """Layers of a computation, which have parameters of their own, of few operations first.

    `order`: its instructions, so that each comes after its operands.
    """
    parts = {i for i in order if row_of(i) is not None}
    parts |= {i.operands[0] for i in parts}
    steps = [i for i in order if family(i) not in (Family.GIVEN, Family.NAME) and i not in parts]
    keys = _numbered(steps)
    effects, controlled = Effects(), control_predecessors(computation)
    pinned = set(controlled).union(*controlled.values())
    for period in range(SHORTEST, len(steps) // FEWEST + 1):
        for start, end in _stretches(keys, period):
            begin = start + _best_cut(steps, start, period)
            count = (end + period - begin) // period
            rows = [steps[begin + n * period : begin + (n + 1) * period] for n in range(count)]
            if not _have_own(rows):
                continue
            found = _sourced(rows)
            if found is None and count > FEWEST:
                found = _sourced(rows[1:])
            if found is not None and (first := _row_before(found)):
                found = _sourced([first, *found.rows]) or found
            if found and not any(effects.of(i) or i in pinned for i in found.rows[0]):
                yield found


def _numbered(steps: Sequence[Instruction]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each operation, equal for those that do the same to operands of the same shapes."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(_key(i), len(numbers)) for i in steps], np.int64)


def _key(i: Instruction) -> object:
    attributes = [(k, _plain(v)) for k, v in i.attributes.items() if k != "metadata"]
    return i.opcode, str(i.shape), *(str(o.shape) for o in i.operands), *attributes


def _plain(value: object) -> object:
    if isinstance(value, Computation):
        number = {i: n for n, i in enumerate(value.instructions)}
        return tuple((_key(i), repr(i.literal), *(number[o] for o in i.operands)) for i in value.instructions)
    return repr(value)


def _stretches(keys: np.ndarray[Any, np.dtype[np.int64]], period: int) -> Iterator[tuple[int, int]]:
    """Where operations are those a period later, for long enough: the first, and the one after the last."""
    same = np.concatenate([[False], keys[period:] == keys[:-period], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
    for start, end in edges.tolist():
        if end - start >= (FEWEST - 1) * period:
            yield start, end


def _best_cut(steps: Sequence[Instruction], start: int, period: int) -> int:
    """Where a layer begins, from the start on: the fewest bytes are carried from one to the next."""
    place = {i: n for n, i in enumerate(steps[start : start + 3 * period])}
    last: dict[int, int] = {}
    for i, n in place.items():
        last |= {place[o]: n for o in i.operands if o in place}
    carried = [0] * period
    for made, used in last.items():
        if period <= used < 2 * period or period <= made < 2 * period:
            for cut in range(max(made + 1, period), min(used, 2 * period - 1) + 1):
                carried[cut % period] += steps[start + made].shape.bytes
    return carried.index(min(carried))


def _have_own(rows: Sequence[Sequence[Instruction]]) -> bool:
    """Whether the second layer has parameters that the first one has not: without, no stack is worth a look."""
    first, second = ({o for i in row for o in i.operands if o.opcode == "parameter" or row_of(o)} for row in rows[:2])
    return not second <= first


def _sourced(rows: list[list[Instruction]]) -> Layers | None:
    """The first rows that are layers, as many as there are; None: too few."""
    if len(rows) < FEWEST:
        return None
    place = {i: (n, slot) for n, row in enumerate(rows) for slot, i in enumerate(row)}
    sources = [[_source(rows, slot, k, place) for k in range(len(i.operands))] for slot, i in enumerate(rows[0])]
    count = 0
    while count < len(rows) and all(
        _fits(rows, count, slot, k, source, place) for slot, row in enumerate(sources) for k, source in enumerate(row)
    ):
        count += 1
    if count < FEWEST:
        return None
    kept = [[replaced for s in row if (replaced := _cut(s, count)) is not None] for row in sources]
    firsts: dict[int, Instruction] = {}
    for s in (s for row in kept for s in row if isinstance(s, Before)):
        if firsts.setdefault(s.slot, s.first) is not s.first:
            return None
    return Layers(rows[:count], kept)


def _row_before(layers: Layers) -> list[Instruction]:
    """The layer before the first one; empty: that is the first one.

    It may have other operations among its own, which make what all layers have in common.
    """
    row: dict[int, Instruction] = {s.slot: s.first for row in layers.sources for s in row if isinstance(s, Before)}
    todo = [*row]
    while todo:
        slot = todo.pop()
        i, like = row[slot], layers.rows[0][slot]
        if i.opcode != like.opcode or not i.shape.same(like.shape) or len(i.operands) != len(like.operands):
            return []
        for operand, source in zip(i.operands, layers.sources[slot], strict=True):
            if isinstance(source, Same) and source.slot not in row:
                row[source.slot] = operand
                todo.append(source.slot)
    if len(row) < len(layers.rows[0]):
        return []
    found = [row[slot] for slot in range(len(row))]
    return found if [_key(i) for i in found] == [_key(i) for i in layers.rows[0]] else []


def _source(
    rows: Sequence[Sequence[Instruction]], slot: int, k: int, place: Mapping[Instruction, tuple[int, int]]
) -> Source | None:
    """Where an operand comes from, as the second layer has it; None: from elsewhere."""
    values = [row[slot].operands[k] for row in rows]
    layer, number = place.get(values[1], (-1, -1))
    if layer == 1:
        return Same(number)
    if layer == 0:
        return Before(number, values[0])
    if values[1] is values[0]:
        return Fixed(values[0])
    if all(v.opcode == "parameter" for v in values[:2]):
        return Stacked(tuple(values))
    found = [row_of(v) for v in values[:2]]
    if found[0] and found[1] and found[0][0] is found[1][0]:
        (array, start), (_, then) = found[0], found[1]
        return Rows(array, start, then - start)
    return None


def _fits(
    rows: Sequence[Sequence[Instruction]],
    n: int,
    slot: int,
    k: int,
    source: Source | None,
    place: Mapping[Instruction, tuple[int, int]],
) -> bool:
    """Whether an operand of a layer comes from there."""
    value = rows[n][slot].operands[k]
    if isinstance(source, Same):
        return value is rows[n][source.slot]
    if isinstance(source, Before):
        return value is rows[n - 1][source.slot] if n else value not in place
    if isinstance(source, Fixed):
        return value is source.value and value not in place
    if isinstance(source, Rows):
        return row_of(value) == (source.array, source.first + n * source.step)
    return source is not None and value.opcode == "parameter" and value.shape.same(source.values[0].shape)


def _cut(source: Source | None, count: int) -> Source | None:
    return Stacked(source.values[:count]) if isinstance(source, Stacked) else source
