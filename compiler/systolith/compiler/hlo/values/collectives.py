"""Collectives: a device's results from the operands of all of its group.

Every device of a group brings its operands to one meeting and makes its own result of all of them.  Reductions go
from the group's first device to its last; bf16 is reduced in f32 and rounded once, as XLA's CPU backend does it.
Source: XLA's operation semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Literal
from systolith.compiler.hlo.rules.shapes_collectives import groups_of, in_place, stated_size
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.async_ops import started
from systolith.compiler.hlo.values.convert import converted
from systolith.compiler.hlo.values.devices import Device, Meeting
from systolith.compiler.hlo.values.elementwise import elementwise
from systolith.compiler.hlo.values.group_modes import (
    Groups,
    Ids,
    channel,
    device_groups,
    device_pairs,
    device_sources,
    pairs_of,
)
from systolith.compiler.hlo.values.permute_slices import permute_slices
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.isa.dtypes import BF16, F32, DType


class Run(Protocol):
    """The interface of collectives to the evaluator."""

    device: Device
    groups: dict[Instruction, Groups]
    sources: dict[Instruction, dict[int, int]]

    def map(self, computation: Computation, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run a computation on scalars for every element of arrays that broadcast; results, tuples flattened."""
        ...


def _groups(i: Instruction, run: Run) -> Groups:
    found = run.groups.get(i)
    if found is None:
        found = run.groups[i] = device_groups(i, run.device.topology, groups_of(i))
    return found


def _key(i: Instruction) -> Hashable:
    """The key of a meeting.  Instructions with one channel are one operation, as XLA has it, whichever of them runs."""
    return (i.opcode, channel(i)) if channel(i) else i


@dataclass(frozen=True)
class _Together:
    """A meeting of a group: this device's place in it, and the operands of all members."""

    place: int
    operands: list[list[np.ndarray]]
    meeting: Meeting

    @property
    def count(self) -> int:
        return len(self.operands)

    @property
    def by_operand(self) -> list[tuple[np.ndarray, ...]]:
        """For each operand the members' values, in their order."""
        return list(zip(*self.operands, strict=True))


def _meet(i: Instruction, run: Run, values: Sequence[Literal]) -> _Together:
    """This device's group with all its operands.

    Raises:
        HloError: it is in no group, others never come, or bring operands of other sizes.
    """
    device = run.device.number
    group = _groups(i, run).get(device)
    if group is None:
        raise HloError(f"device {device} is in none of the groups")
    size = stated_size(i)
    if size not in (None, len(group)):
        raise HloError(f"the shapes say that a group has {size} devices, it has {len(group)}; run it on more devices")
    meeting = run.device.meet(i, _key(i), group, tuple(values))
    operands = cast("list[list[np.ndarray]]", meeting.values)
    mine = [x.shape for x in cast("list[np.ndarray]", values)]
    for member, theirs in zip(group, operands, strict=True):
        if [x.shape for x in theirs] != mine:
            raise HloError(f"device {member} brings operands of other sizes: {[list(x.shape) for x in theirs]}")
    return _Together(group.index(device), operands, meeting)


def _packed(i: Instruction, results: Sequence[np.ndarray]) -> Literal:
    """One result alone, or a tuple of several; a tuple of one where the shape says so."""
    return results[0] if len(results) == 1 and not i.shape.is_tuple else tuple(results)


def _combine(computation: Computation, element: DType, run: Run) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A reduction's computation on arrays of a type that need not be its own: operands of several types share one."""
    opcode = plain_operation(computation)
    if opcode is None:
        return lambda a, b: run.map(computation, [a, b])[0]
    scalar = array(element)
    step = Instruction(opcode, opcode, scalar, [Instruction(name, "parameter", scalar) for name in "ab"])
    return lambda a, b: elementwise(step, [a, b])


def _reduced(i: Instruction, run: Run, number: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Operand `number` of all members, reduced."""
    element = i.operands[number].shape.dtype
    wide = F32 if element == BF16 and plain_operation(i.computation()) else element
    combine = _combine(i.computation(), wide, run)
    return converted(reduce(combine, [converted(x, element, wide) for x in arrays]), wide, element)


def _all_reduce(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    all_ = _meet(i, run, values)

    def make() -> list[np.ndarray]:
        return [_reduced(i, run, number, arrays) for number, arrays in enumerate(all_.by_operand)]

    return _packed(i, all_.meeting.once(i, make))


def _dimension(i: Instruction) -> int:
    return i.ints("dimensions")[0]


def _all_gather(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    all_ = _meet(i, run, values)
    results = all_.meeting.once(i, lambda: [np.concatenate(arrays, _dimension(i)) for arrays in all_.by_operand])
    if i.opcode == "all-gather":
        return _packed(i, results)
    if len(values) == 1 and not i.shape.elements[1].is_tuple:
        return started(i, values[0], results[0])
    return started(i, tuple(values), tuple(results))


def _split(x: np.ndarray, parts: int, axis: int) -> list[np.ndarray]:
    if x.shape[axis] % parts:
        raise HloError(f"{parts} devices do not divide dimension {axis} of {list(x.shape)}")
    return np.split(x, parts, axis)


def _reduce_scatter(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    all_ = _meet(i, run, values)
    results = []
    for number, arrays in enumerate(all_.by_operand):
        parts = [_split(x, all_.count, _dimension(i))[all_.place] for x in arrays]
        results.append(_reduced(i, run, number, parts))
    return _packed(i, results)


def _all_to_all(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    """With `dimensions` operands are cut along one; without, operand n is the part for the group's device n."""
    all_ = _meet(i, run, values)
    if not i.ints("dimensions", ()):
        if len(values) != all_.count:
            raise HloError(f"{len(values)} operands for a group of {all_.count} devices")
        return tuple(theirs[all_.place] for theirs in all_.operands)
    axis = _dimension(i)
    pieces = [[_split(x, all_.count, axis)[all_.place] for x in arrays] for arrays in all_.by_operand]
    return _packed(i, [np.concatenate(p, axis) for p in pieces])


def _collective_broadcast(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    """The operands of the group's first device; zeros on devices in no group (StableHLO)."""
    if run.device.number not in _groups(i, run):
        return _packed(i, [np.zeros_like(x) for x in values])
    return _packed(i, _meet(i, run, values).operands[0])


def sources(i: Instruction, run: Run, pairs: Callable[[], Sequence[Ids]]) -> dict[int, int]:
    """Target to source device; the pairs are asked for once in a run."""
    found = run.sources.get(i)
    if found is None:
        found = run.sources[i] = device_sources(i, run.device.topology, pairs())
    return found


def _permute(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    """Each target gets its source's operands, other devices zeros; slices in place keep their contents there."""
    device, group = run.device.number, _groups(i, run)[run.device.number]
    if in_place(i):
        brought = run.device.meet(i, _key(i), group, tuple(values)).brought
        moves = device_pairs(i, run.device.topology, pairs_of(i))
        sizes = cast("tuple[Ids, ...]", i.attributes.get("slice_sizes", ()))
        results = permute_slices(device, moves, cast("dict[int, tuple[Literal, ...]]", brought), sizes)
        whole: Literal = tuple(results) if i.operands[1].shape.is_tuple else results[0]
        return whole if i.opcode == "collective-permute" else started(i, values[0], whole)
    source = sources(i, run, lambda: pairs_of(i)).get(device)
    operands = _meet(i, run, values).operands
    results = operands[group.index(source)] if source is not None else [np.zeros_like(x) for x in values]
    if i.opcode == "collective-permute":
        return _packed(i, results)
    if len(values) == 1:
        return started(i, values[0], results[0])
    return started(i, tuple(values), tuple(results))


def _ragged_all_to_all(i: Instruction, values: list[np.ndarray], run: Run) -> Literal:
    """Slices of the operand's first dimension go to each device of the group, to where the sender says.

    Operands: input, output (its rows stay where nothing arrives), and for each device the same number of offsets in the
    input, sizes sent, offsets in the receiver's output, sizes received (which repeat the senders').
    """
    all_ = _meet(i, run, values)
    result = values[1].copy()
    for sender in all_.operands:
        data, _, *lists = sender
        starts, sizes, targets, _ = (x.reshape(-1) for x in lists)
        each = len(starts) // all_.count
        for n in range(all_.place * each, (all_.place + 1) * each):
            start, size, target = int(starts[n]), int(sizes[n]), int(targets[n])
            if not (0 <= start <= start + size <= len(data) and 0 <= target <= target + size <= len(result)):
                raise HloError(f"{size} rows from row {start} to row {target} are outside of operand or result")
            result[target : target + size] = data[start : start + size]
    return result


COLLECTIVES: dict[str, Callable[[Instruction, list[np.ndarray], Run], Literal]] = {
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "all-gather": _all_gather,
    "all-gather-start": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _collective_broadcast,
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "ragged-all-to-all": _ragged_all_to_all,
    "reduce-scatter": _reduce_scatter,
}
"""Opcode to its function on a device."""
