"""Layouts: every array is dense and row-major, so that `bitcast` and layout-changing `copy` become plain data movement.

XLA's optimised modules say with `bitcast` "the same bytes with another shape and layout".  Read with the layouts that
the module states, that is the way to memory order (a transpose; for each tile a pad, a reshape and a transpose), a
reshape, and the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.linear_layout import COMBINED, check_layout, is_dense, memory_size, row_major, tiles
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.values.bitcasts import bit_width
from systolith.compiler.passes.part_views import is_view_of_parts
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, PRED, DType, Kind


@dataclass(frozen=True)
class NormaliseLayouts:
    """Replace `bitcast` (but those that show two parts of an element), and make every array's layout row-major."""

    def run(self, module: Module) -> bool:
        changed = rewrite(module, _rule)
        for instruction in module.instructions():
            shape = _row_major(instruction.shape)
            if shape != instruction.shape:
                instruction.shape = shape
                changed = True
        if changed:
            module.attributes.pop("entry_computation_layout", None)
            module.attributes.pop("is_scheduled", None)
        return changed


def _rule(r: Rewriter, i: Instruction) -> Instruction | None:
    return _expand(r, i) if i.opcode == "bitcast" and not is_view_of_parts(i) else None


def _row_major(shape: Shape) -> Shape:
    if shape.is_tuple:
        return replace(shape, elements=tuple(map(_row_major, shape.elements)))
    if not shape.is_array:
        return shape
    return replace(shape, layout=row_major(shape.rank) if shape.rank else None)


def _expand(r: Rewriter, bitcast: Instruction) -> Instruction:
    (x,) = bitcast.operands
    wanted = bitcast.shape
    if x.shape.is_dynamic or wanted.is_dynamic:
        return _expand_dynamic(r, bitcast)
    _check_bytes(bitcast)
    for step in _steps(x.shape):
        x = step.forward(r, x)
    back = _steps(wanted)
    in_memory = back[-1].after if back else wanted.dims
    x = _seen_as(r, x, wanted.dtype)
    if x.dims != in_memory:
        x = r.emit("reshape", x, shape=array(x.shape.dtype, in_memory))
    for step in reversed(back):
        x = step.back(r, x)
    if x is bitcast.operands[0]:
        return r.emit("copy", x, shape=wanted)
    x.shape = wanted
    return x


def _expand_dynamic(r: Rewriter, bitcast: Instruction) -> Instruction:
    (x,) = bitcast.operands
    for shape in (x.shape, bitcast.shape):
        layout = check_layout(shape)
        ordered = is_dense(layout) and layout.minor_to_major == row_major(shape.rank).minor_to_major
        if shape.dtype != x.shape.dtype or not ordered:
            raise compile_error(bitcast, "of dynamic sizes, it has to keep element type and row-major order")
    return r.emit("reshape" if x.dims != bitcast.dims else "copy", x, shape=bitcast.shape)


def _check_bytes(bitcast: Instruction) -> None:
    source, target = bitcast.operands[0].shape, bitcast.shape
    if source.dtype != target.dtype and Kind.COMPLEX in (source.dtype.kind, target.dtype.kind):
        raise compile_error(bitcast, f"no other operations take {source.dtype} as {target.dtype}; use real, imag")
    bits = [memory_size(s) * bit_width(s.dtype) for s in (source, target)]
    if bits[0] != bits[1]:
        what = " and ".join(f"{s.text()} takes {n}" for s, n in zip((source, target), bits, strict=True))
        raise compile_error(bitcast, f"it has to keep the bits in memory, but {what}")


@dataclass(frozen=True)
class _Step:
    """An operation on the way to memory order: `transpose` (by `order`), `pad` (above) or `reshape`."""

    opcode: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    order: tuple[int, ...] = ()

    def forward(self, r: Rewriter, x: Instruction) -> Instruction:
        shape = array(x.shape.dtype, self.after)
        if self.opcode == "transpose":
            return r.emit("transpose", x, shape=shape, dimensions=self.order)
        if self.opcode == "pad":
            added = tuple(PadDim(0, b - a) for a, b in zip(self.before, self.after, strict=True))
            return r.emit("pad", x, r.constant(0, x.shape.dtype), shape=shape, padding=added)
        return r.emit("reshape", x, shape=shape)

    def back(self, r: Rewriter, x: Instruction) -> Instruction:
        shape = array(x.shape.dtype, self.before)
        if self.opcode == "transpose":
            order = tuple(self.order.index(d) for d in range(len(self.order)))
            return r.emit("transpose", x, shape=shape, dimensions=order)
        if self.opcode == "pad":
            return r.emit("slice", x, shape=shape, slice=tuple(SliceDim(0, n) for n in self.before))
        return r.emit("reshape", x, shape=shape)


def _steps(shape: Shape) -> list[_Step]:
    """The way from an array's dimensions to those of its memory, major to minor, tiles included."""
    layout = check_layout(shape)
    order = layout.minor_to_major[::-1]
    padded = layout.padded_dimensions or shape.dims
    steps = [_Step("pad", shape.dims, padded)]
    steps.append(_Step("transpose", padded, tuple(padded[d] for d in order), order))
    for tile in tiles(layout):
        steps += _tile_steps(steps[-1].after, tile)
    return [s for s in steps if s.before != s.after or s.order != tuple(range(len(s.order)))]


def _tile_steps(dims: tuple[int, ...], tile: Sequence[int]) -> list[_Step]:
    """A tile splits the most minor dimensions (joined where it has `*`) into a grid and the places inside."""
    whole = (1,) * (len(tile) - len(dims)) + dims
    split = len(whole) - len(tile)
    joined = list(whole[:split])
    size = 1
    for n, of_tile in zip(whole[split:], tile, strict=True):
        size *= n
        if of_tile != COMBINED:
            joined.append(size)
            size = 1
    sizes = [t for t in tile if t != COMBINED]
    grid = [-(-n // t) for n, t in zip(joined[split:], sizes, strict=True)]
    pairs = [n for pair in zip(grid, sizes, strict=True) for n in pair]
    made = [
        _Step("reshape", dims, tuple(joined)),
        _Step("pad", tuple(joined), (*joined[:split], *(g * t for g, t in zip(grid, sizes, strict=True)))),
    ]
    made.append(_Step("reshape", made[-1].after, (*joined[:split], *pairs)))
    order = (*range(split), *range(split, split + len(pairs), 2), *range(split + 1, split + len(pairs), 2))
    made.append(_Step("transpose", made[-1].after, (*joined[:split], *grid, *sizes), order))
    return made


def _seen_as(r: Rewriter, x: Instruction, wanted: DType) -> Instruction:
    """The elements in memory, or parts or groups of them, as another type."""
    if x.shape.dtype == wanted:
        return x
    if x.shape.dtype is PRED:
        x = r.emit("convert", x, shape=replace(x.shape, element=DTYPES["u8"]))
    if wanted is PRED:
        x = _seen_as(r, x, DTYPES["u8"])
        return r.emit("convert", x, shape=replace(x.shape, element=PRED))
    source, ratio = bit_width(x.shape.dtype), max(1, bit_width(wanted) // bit_width(x.shape.dtype))
    if ratio > 1:
        x = r.emit("reshape", x, shape=array(x.shape.dtype, (x.shape.size // ratio, ratio)))
    dims = x.dims[:-1] if ratio > 1 else x.dims
    parts = source // bit_width(wanted)
    return r.emit("bitcast-convert", x, shape=array(wanted, (*dims, parts) if parts > 1 else dims))
