"""`bitcast-convert` between element types of different widths, as shifts of unsigned numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.words.wide_rules import is_wide
from systolith.isa.dtypes import U32, DType, Kind

_WIDTHS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class ExpandBitcastDtypes:
    """Replace `bitcast-convert` to another width by shifts; pred and complex numbers stay.

    64-bit integers and f64 become pairs of u32 (`wide_types.py`), or are made of such.
    """

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expand(r, i) if i.opcode == "bitcast-convert" else None)


def _expand(r: Rewriter, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    source, target = x.shape.dtype, i.shape.dtype
    kinds = {source.kind, target.kind} & {Kind.COMPLEX, Kind.PRED}
    if kinds or source.bits == target.bits or i.shape.is_dynamic:
        return None
    if any(is_wide(s) for s in (x.shape, i.shape)) and min(source.bits, target.bits) < U32.bits:
        return _by_words(r, x, i)
    if not {source.bits, target.bits} <= {*_WIDTHS}:
        return None
    bits = _as(r, x, _unsigned(source))
    made = _split(r, bits, target) if source.bits > target.bits else _joined(r, bits, target)
    return r.emit("bitcast-convert", made, shape=i.shape)


def _by_words(r: Rewriter, x: Instruction, i: Instruction) -> Instruction:
    """Between 64-bit types and those below 32 bits: parts of words, along a dimension of their own."""
    narrow = min(x.shape.dtype, i.shape.dtype, key=lambda t: t.bits)
    if is_wide(x.shape):
        words = r.emit("bitcast-convert", x, shape=array(U32, (*x.dims, 2)))
        parts = _split(r, words, narrow)
        return r.emit(
            "bitcast-convert", r.emit("reshape", parts, shape=array(parts.shape.dtype, i.dims)), shape=i.shape
        )
    parts = r.emit(
        "reshape", _as(r, x, _unsigned(narrow)), shape=array(_unsigned(narrow), (*i.dims, 2, U32.bits // narrow.bits))
    )
    return r.emit("bitcast-convert", _joined(r, parts, U32), shape=i.shape)


def _unsigned(dtype: DType) -> DType:
    return ELEMENT_TYPES[f"u{dtype.bits}"]


def _as(r: Rewriter, x: Instruction, dtype: DType, opcode: str = "bitcast-convert") -> Instruction:
    return x if x.shape.dtype == dtype else r.emit(opcode, x, shape=replace(x.shape, element=dtype))


def _split(r: Rewriter, bits: Instruction, target: DType) -> Instruction:
    """The parts of each element along a new last dimension, low bits first."""
    dims = (*bits.dims, bits.shape.dtype.bits // target.bits)
    wide = array(bits.shape.dtype, dims)
    repeated = r.emit("broadcast", bits, shape=wide, dimensions=tuple(range(len(dims) - 1)))
    place = r.emit("iota", shape=wide, iota_dimension=len(dims) - 1)
    distance = r.emit("multiply", place, r.full(target.bits, wide))
    return _as(r, r.emit("shift-right-logical", repeated, distance), _unsigned(target), "convert")


def _joined(r: Rewriter, bits: Instruction, target: DType) -> Instruction:
    """The elements whose parts lie along the last dimension, low bits first."""
    *dims, count = bits.dims
    whole = array(_unsigned(target), tuple(dims))
    made: Instruction | None = None
    for k in range(count):
        places = (*(SliceDim(0, n) for n in dims), SliceDim(k, k + 1))
        part = r.emit("reshape", r.emit("slice", bits, slice=places), shape=array(bits.shape.dtype, tuple(dims)))
        part = _as(r, part, whole.dtype, "convert")
        if k:
            part = r.emit("shift-left", part, r.full(k * bits.shape.dtype.bits, whole))
        made = part if made is None else r.emit("or", made, part)
    assert made is not None
    return made
