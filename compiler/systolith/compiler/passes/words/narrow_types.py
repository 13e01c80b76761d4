"""Element types that no instruction has are computed in others: between, values are converted and rounded.

XLA's `float-normalization` does so for types of floats.  Their arrays stay what they are, and are moved as bytes; the
vector unit converts them (`ops/elementwise.py`).  Floats compute in f32, as all narrow floats do, integers in those of
a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.values.reduction import plain_parts
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.comparators import has_sign, ordered
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.words.pairs import MOVED
from systolith.isa.dtypes import BF16, F16, F32, S8, S32, U8, U32, DType, Kind

_LOGICAL = frozenset({"shift-right-logical", "popcnt", "count-leading-zeros"})
"""Opcodes that take integers as unsigned, whatever their type."""

_AS_THEY_ARE = frozenset({"convert", "bitcast-convert", "select", "copy"})
"""Elementwise opcodes that the vector unit has for these types, too."""


@dataclass(frozen=True)
class NormaliseNarrowTypes:
    """Let operations on element types that no instruction has compute in f32, s32 or bytes, between conversions."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        # These look at their computations, which the others change.
        reductions = rewrite(module, lambda r, i: _reduction(r, i, callees) if _is_reduction(i) else None)
        callees.place()
        others = rewrite(module, lambda r, i: _normalised(r, i) if _touches(i) else None)
        return reductions or others


def is_carried(shape: Shape) -> bool:
    """Whether it is an array of a type that no instruction has."""
    return shape.element is not None and shape.element.code < 0


def _touches(i: Instruction) -> bool:
    return any(map(is_carried, i.shape.leaves())) or any(is_carried(o.shape) for o in i.operands)


def _is_reduction(i: Instruction) -> bool:
    return i.opcode in ("reduce", "reduce-window") and _touches(i)


def _normalised(r: Rewriter, i: Instruction) -> Instruction | None:
    rule = _RULES.get(i.opcode)
    if rule is not None:
        return rule(r, i)
    return _elementwise(r, i) if family(i) is Family.ELEMENTWISE and i.opcode not in _AS_THEY_ARE else None


def _word(dtype: DType) -> DType:
    """The type of 32 bits with all values of another."""
    return F32 if dtype.is_float else S32


def _byte(dtype: DType) -> DType:
    return F32 if dtype.is_float else S8 if dtype.kind is Kind.SIGNED else U8


def _in(r: Rewriter, x: Instruction, wide: Callable[[DType], DType]) -> Instruction:
    """An operand of one of these types in another; others as they are."""
    return r.converted(x, wide(x.shape.dtype)) if is_carried(x.shape) else x


def _elementwise(r: Rewriter, i: Instruction) -> Instruction:
    """An operation in f32, or on bytes; of integers the result is wrapped."""
    dtype = i.operands[-1].shape.dtype  # of a select with a predicate, and of all others
    if not dtype.is_float and (i.opcode in _LOGICAL or i.opcode == "shift-right-arithmetic"):
        return _as_signed(r, i, i.opcode not in _LOGICAL)
    made = r.like(i, [_in(r, o, _byte) for o in i.operands], _computed(i.shape))
    return r.converted(made, i.shape.dtype)


def _computed(shape: Shape) -> Shape:
    return array(_byte(shape.dtype), shape.dims) if is_carried(shape) else shape


def _as_signed(r: Rewriter, i: Instruction, signed: bool) -> Instruction:
    """A shift or a count on integers whose bits are taken as signed or as unsigned."""
    dtype = i.shape.dtype
    kind, byte = ELEMENT_TYPES[f"{'s' if signed else 'u'}{dtype.bits}"], S8 if signed else U8

    def bits(x: Instruction, to: DType) -> Instruction:
        return x if x.shape.dtype == to else r.emit("bitcast-convert", x, shape=array(to, x.dims))

    made = r.like(i, [r.converted(bits(o, kind), byte) for o in i.operands], array(byte, i.dims))
    if i.opcode == "count-leading-zeros":
        made = r.emit("subtract", made, r.full(byte.bits - dtype.bits, made.shape))
    return bits(r.converted(made, kind), dtype)


def _high_half(r: Rewriter, i: Instruction) -> Instruction:
    """The upper bits of a product, in s32."""
    a, b = (Real(r, r.converted(o, S32)) for o in i.operands)
    return (a * b).of("shift-right-arithmetic", i.shape.dtype.bits).converted(i.shape.dtype).i


def _compare(r: Rewriter, i: Instruction) -> Instruction:
    dtype = i.operands[0].shape.dtype
    if dtype.is_float and i.word("type", "FLOAT") == "TOTALORDER":
        a, b = (ordered(r, o) for o in i.operands)
        return r.emit("compare", a, b, shape=i.shape, direction=i.word("direction"))
    return _elementwise(r, i)


def _reduce_precision(r: Rewriter, i: Instruction) -> Instruction:
    """In f16, which has all of their values, or in f32."""
    dtype = i.shape.dtype
    wide = F16 if has_sign(dtype) else F32
    return r.converted(r.like(i, [r.converted(i.operands[0], wide)], array(wide, i.dims)), dtype)


def _iota(r: Rewriter, i: Instruction) -> Instruction:
    return r.converted(r.like(i, [], array(_word(i.shape.dtype), i.dims)), i.shape.dtype)


def _contraction(r: Rewriter, i: Instruction) -> Instruction:
    """On bf16, which is exact, unless the other side is wider; of integers on bytes, in s32."""
    narrow = all(is_carried(o.shape) or o.shape.dtype.bits < F16.bits or o.shape.dtype is BF16 for o in i.operands)

    def side(dtype: DType) -> DType:
        return (BF16 if narrow else F32) if dtype.is_float else _byte(dtype)

    result = array(_word(i.shape.dtype), i.dims) if is_carried(i.shape) else i.shape
    return r.converted(r.like(i, [_in(r, o, side) for o in i.operands], result), i.shape.dtype)


def _moved(r: Rewriter, i: Instruction) -> Instruction | None:
    """Indices as s32."""
    count = MOVED.get(i.opcode, len(i.operands))
    if not any(is_carried(o.shape) for o in i.operands[count:]):
        return None
    return r.like(i, [*i.operands[:count], *(_in(r, o, _word) for o in i.operands[count:])], i.shape)


def _wide_convert(r: Rewriter, i: Instruction) -> Instruction | None:
    """From and to types of 64 bits and more by way of one of 32; of floats out of range the nearest integer."""
    (x,) = i.operands
    source, target = x.shape.dtype, i.shape.dtype
    if max(source.bits, target.bits) <= U32.bits:
        return None
    made = r.converted(x, _word(source if is_carried(x.shape) else target))
    if source.is_float and target.is_integer and is_carried(i.shape):
        least, greatest = (r.full(n, made.shape) for n in (target.least, target.greatest))
        made = r.emit("clamp", least, made, greatest)
    return r.converted(made, target)


def _reduction(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    """Of operands of 32 bits; the result is rounded once if one operation combines each, else after each operation."""
    called, half = i.computation(), len(i.operands) // 2
    types = [_word(o.shape.dtype) if is_carried(o.shape) else o.shape.dtype for o in i.operands[:half]]
    make = _widened if plain_parts(called, half) else _wrapped
    computation = callees.add(make(called, callees.name(f"{called.name}.wide"), [*types, *types]))
    shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
    wide = [array(t, s.dims) for t, s in zip(types, shapes, strict=True)]
    made = r.like(i, [_in(r, o, _word) for o in i.operands], tuple_of(wide) if i.shape.is_tuple else wide[0])
    made.attributes["to_apply"] = computation
    if not i.shape.is_tuple:
        return r.converted(made, i.shape.dtype)
    parts = [r.emit("get-tuple-element", made, index=k) for k in range(half)]
    return r.emit("tuple", *(r.converted(p, s.dtype) for p, s in zip(parts, shapes, strict=True)), shape=i.shape)


def _widened(called: Computation, name: str, types: Sequence[DType]) -> Computation:
    """A computation of one operation for each operand, in other types."""
    wide: dict[Instruction, Instruction] = {}
    given = {p: array(t) for p, t in zip(called.parameters, types, strict=True)}
    root = called.result
    for i in (i for i in called.instructions if i in given or i is root or i in root.operands):
        operands = [wide[o] for o in i.operands]
        shape = given.get(i) or (tuple_of([o.shape for o in operands]) if i.opcode == "tuple" else operands[0].shape)
        wide[i] = i.copy(operands, dict(i.attributes), shape)
    return Computation(name, list(wide.values()), wide[root])


def _wrapped(called: Computation, name: str, types: Sequence[DType]) -> Computation:
    """A computation on values of other types, which are converted before and after."""
    given = [
        Instruction(f"{p.name}.wide", "parameter", array(t), number=k)
        for k, (p, t) in enumerate(zip(called.parameters, types, strict=True))
    ]
    made = Computation(name, list(given))
    r = Rewriter(made)
    inside = [r.converted(g, p.shape.dtype) for g, p in zip(given, called.parameters, strict=True)]
    result = r.emit("call", *inside, shape=called.result.shape, to_apply=called)
    if result.shape.is_tuple:
        parts = [r.emit("get-tuple-element", result, index=k) for k in range(len(result.shape.elements))]
        root = r.emit("tuple", *map(r.converted, parts, types))
    else:
        root = r.converted(result, types[0])
    made.instructions, made.root = [*given, *r.made], root
    return made


_RULES: dict[str, Callable[[Rewriter, Instruction], Instruction | None]] = {
    "compare": _compare,
    "mulhi": _high_half,
    "reduce-precision": _reduce_precision,
    "iota": _iota,
    "dot": _contraction,
    "convolution": _contraction,
    "convert": _wide_convert,
    **dict.fromkeys(MOVED, _moved),
}
