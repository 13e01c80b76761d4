"""Shape rules of operations of several devices.

How many devices a group has is read from `replica_groups`; where that is empty (all devices), from the declared shape.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from systolith.compiler.hlo.attributes import DeviceGroups
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    Infer,
    agree,
    arrays,
    flags_of,
    listed,
    one_dimension,
    one_or_tuple,
    operand_shapes,
    parameter_shapes,
    require,
    resized,
    unique_within,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape, tuple_of


def groups_of(i: Instruction) -> tuple[tuple[int, ...], ...]:
    """The groups of a collective, as lists of device numbers; none stands for one group of all devices."""
    value = i.attributes.get("replica_groups")
    return value.lists if isinstance(value, DeviceGroups) else ()


def _group_size(i: Instruction) -> int | None:
    """Devices of a group; None where the groups do not say."""
    groups = groups_of(i)
    return len(groups[0]) if groups and len(groups[0]) > 1 else None


def stated_size(i: Instruction) -> int | None:
    """Devices of a group as the shapes of a verified collective say; None where they do not."""
    opcode = i.opcode.removesuffix("-start")
    if opcode == "all-to-all" and not i.ints("dimensions", ()):
        return len(i.operands)
    if opcode not in ("all-gather", "reduce-scatter"):
        return None
    (dim,) = i.ints("dimensions")
    results = i.shape.elements[1] if i.opcode == "all-gather-start" else i.shape
    sizes = sorted((next(results.leaves()).dims[dim], i.operands[0].shape.dims[dim]))
    return None if sizes[0] < 1 else _shards(sizes[1], sizes[0])


def _parts(shape: Shape, count: int) -> list[Shape]:
    """The declared results of `count` operands: the shape itself for one, else the elements of a tuple."""
    if count == 1:
        return [shape]
    require(shape.is_tuple and len(shape.elements) == count, f"the result is a tuple of {count}, got {shape}")
    return list(shape.elements)


def _gathered(i: Instruction, declared: Shape) -> list[Shape]:
    """The results of an all-gather: as many times as large in one dimension as a group has devices."""
    shapes = arrays(i)
    require(bool(shapes), "takes at least one operand, got 0")
    parts = _parts(declared, len(shapes))
    dims = i.ints("dimensions")
    require(len(dims) == 1, f"dimensions names one dimension, got {len(dims)}")
    (dim,) = dims
    for shape, part in zip(shapes, parts, strict=True):
        unique_within(dims, shape.rank, "dimensions")
        require(part.rank > dim, f"the result has dimension {dim}, got {part}")
    size = shapes[0].dims[dim]
    count = _shards(parts[0].dims[dim], size)
    _check_shards(i, shapes[0], count)
    return [s if s.dims[dim] == UNBOUNDED else resized(s, dim, s.dims[dim] * count) for s in shapes]


def _shards(whole: int, part: int) -> int:
    """How many parts make the whole, rounded up."""
    return max(-(-whole // part), 1) if part > 0 and whole != UNBOUNDED else 1


def _check_shards(i: Instruction, shape: Shape, count: int) -> None:
    """The declared shape agrees with the groups on the number of devices.

    With a channel but without global numbers a group holds replicas in all partitions, which the module counts.
    """
    size = _group_size(i)
    if size is None or 0 in shape.dims or ("channel_id" in i.attributes and not i.flag("use_global_device_ids")):
        return
    require(size == count, f"a group has {count} devices as the shapes say, got {size}")


def _all_gather(i: Instruction) -> Shape:
    return one_or_tuple(_gathered(i, i.shape))


def _all_gather_start(i: Instruction) -> Shape:
    require(i.shape.is_tuple and len(i.shape.elements) == 2, f"the result is (operands, gathered), got {i.shape}")
    return tuple_of([one_or_tuple(operand_shapes(i)), one_or_tuple(_gathered(i, i.shape.elements[1]))])


def _second(i: Instruction) -> Shape:
    """The result shape that -start declared: the second part of its tuple."""
    shape = i.operands[0].shape
    require(shape.is_tuple and len(shape.elements) >= 2, f"the operand is (operands, result, ...), got {shape}")
    return shape.elements[1]


def _check_reduction(i: Instruction) -> None:
    """The computation takes two scalars; XLA lets their type differ from that of the operands."""
    computation = i.computation()
    scalars = parameter_shapes(computation)
    require(len(scalars) == 2 and all(s.is_array and not s.dims for s in scalars),
            f"computation {computation.name!r} takes two scalars, got ({listed(scalars)})")  # fmt: skip


def _all_reduce(i: Instruction) -> Shape:
    shapes = arrays(i)
    _check_reduction(i)
    return one_or_tuple(shapes)


def _same_as_operand(i: Instruction) -> Shape:
    return i.operands[0].shape


def _reduce_scatter(i: Instruction) -> Shape:
    shapes = arrays(i)
    require(bool(shapes), "takes at least one operand, got 0")
    _check_reduction(i)
    parts = _parts(i.shape, len(shapes))
    dim = one_dimension(i, min(s.rank for s in shapes))
    require(all(p.rank > dim for p in parts), f"results have dimension {dim}, got {listed(parts)}")
    count = _shards(shapes[0].dims[dim], parts[0].dims[dim])
    _check_shards(i, shapes[0], count)
    sizes = [s.dims[dim] for s in shapes]
    require(all(n % count == 0 or n == UNBOUNDED for n in sizes),
            f"dimension {dim} is a multiple of the {count} devices of a group, got {listed(shapes)}")  # fmt: skip
    scattered = zip(shapes, sizes, strict=True)
    return one_or_tuple(
        [resized(s, dim, UNBOUNDED if flags_of(s)[dim] else n // count, flags_of(s)[dim]) for s, n in scattered]
    )


def _all_to_all(i: Instruction) -> Shape:
    """With `dimensions` one array is split and joined along it; else each operand goes to another device."""
    shapes = arrays(i)
    require(bool(shapes), "takes at least one operand, got 0")
    count = _group_size(i)
    if "dimensions" in i.attributes:
        require(len(shapes) == 1, f"takes 1 operand with dimensions, got {len(shapes)}")
        size = shapes[0].dims[one_dimension(i, shapes[0].rank)]
        require(count is None or size == UNBOUNDED or size % count == 0,
                f"the dimension is split among {count} devices, got {shapes[0]}")  # fmt: skip
        return shapes[0]
    require(count is None or len(shapes) == count, f"takes an operand for each of {count} devices, got {len(shapes)}")
    require(all(agree(s, shapes[0]) for s in shapes), f"operands have one shape, got {listed(shapes)}")
    return tuple_of(shapes)


def _ragged_all_to_all(i: Instruction) -> Shape:
    """Input, output, and four lists: where and how much to send, where it goes, how much to receive."""
    shapes = arrays(i)
    require(len(shapes) == 6, f"takes 6 operands, got {len(shapes)}")
    lists = shapes[2:]
    require(all(s.rank in (1, 2) and agree(s, lists[0]) for s in lists),
            f"offsets and sizes have one shape of 1 or 2 dimensions, got {listed(lists)}")  # fmt: skip
    require(all(s.dtype.is_integer for s in lists), f"offsets and sizes are integers, got {listed(lists)}")
    return shapes[1]


def _collective_broadcast(i: Instruction) -> Shape:
    shapes = arrays(i)
    require(bool(shapes), "takes at least one operand, got 0")
    return one_or_tuple(shapes)


def _permuted(i: Instruction) -> tuple[Shape, Shape]:
    """Shapes of a collective-permute's operand and result; in place it writes into its second operand."""
    _check_pairs(i)
    if in_place(i):
        source, target, source_at, target_at = operand_shapes(i)
        require(source.is_tuple == target.is_tuple and len(source.elements) == len(target.elements),
                f"source and target are both arrays, or tuples of one length, got {source} and {target}")  # fmt: skip
        _check_offsets(source, source_at)
        _check_offsets(target, target_at)
        return source, target
    shapes = arrays(i)
    require(bool(shapes), "takes at least one operand, got 0")
    whole = one_or_tuple(shapes)
    return whole, whole


def in_place(i: Instruction) -> bool:
    """Whether a collective-permute moves slices from its first operand into its second, at offsets that follow."""
    return len(i.operands) == 4 and i.operands[2].shape.is_tuple and i.operands[3].shape.is_tuple


def _check_offsets(buffer: Shape, offsets: Shape) -> None:
    """Offsets of slices of an array: one for each dimension, or a tuple of such tuples; of a tuple, one such each."""
    if buffer.is_tuple:
        fits = offsets.is_tuple and len(offsets.elements) == len(buffer.elements)
        require(fits, f"there are offsets for each part of {buffer}, got {offsets}")
        for part, part_offsets in zip(buffer.elements, offsets.elements, strict=True):
            _check_offsets(part, part_offsets)
        return
    parts = offsets.elements
    flat = all(p.is_array for p in parts) and len(parts) == buffer.rank
    nested = all(p.is_tuple and len(p.elements) == buffer.rank for p in parts)
    require(offsets.is_tuple and (flat or nested), f"there is an offset for each dimension of {buffer}, got {offsets}")


def _check_pairs(i: Instruction) -> None:
    """A device sends once and receives once; in place, once for each slice."""
    pairs = cast("tuple[tuple[int, ...], ...]", i.attributes.get("source_target_pairs", ()))
    if not isinstance(pairs, tuple):
        return
    require(all(len(p) == 2 and min(p) >= 0 for p in pairs), "source_target_pairs are pairs of devices from 0")
    allowed = 1
    if in_place(i):
        offsets = i.operands[2].shape
        allowed = len((offsets.elements[0] if i.operands[0].shape.is_tuple else offsets).elements)
    for what, devices in (("source", [p[0] for p in pairs]), ("target", [p[1] for p in pairs])):
        device, times = Counter(devices).most_common(1)[0] if devices else (0, 0)
        require(times <= allowed, f"a device is a {what} at most {allowed} time(s), {device} is {times} times")


def _collective_permute(i: Instruction) -> Shape:
    return _permuted(i)[1]


def _collective_permute_start(i: Instruction) -> Shape:
    contexts = i.shape.elements[2:] if i.shape.is_tuple else ()
    return tuple_of([*_permuted(i), *contexts])


COLLECTIVE_RULES: dict[str, Infer] = {
    "all-gather": _all_gather,
    "all-gather-start": _all_gather_start,
    "all-gather-done": _second,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "all-reduce-done": _same_as_operand,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "ragged-all-to-all": _ragged_all_to_all,
    "collective-broadcast": _collective_broadcast,
    "collective-permute": _collective_permute,
    "collective-permute-start": _collective_permute_start,
    "collective-permute-done": _second,
}
"""Opcode to rule."""
