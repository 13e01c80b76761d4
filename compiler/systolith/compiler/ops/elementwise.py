"""Elementwise HLO operations as micro-operations: a rule for each opcode.

Every operation rounds to its element type, also inside a group: floats narrower than f32 are rounded after each
operation (f32 has over twice their precision, so rounding twice is rounding once), narrow integers wrap.  Semantics:
XLA's operation semantics; micro-operations: `systolith.isa.microops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.element_builder import Builder, Rule
from systolith.compiler.ops.expression import Node
from systolith.compiler.ops.float_bits import float_bits, float_of_bits, one_nan, rounded_bits
from systolith.compiler.ops.functions import COMPOSED
from systolith.isa.dtypes import BF16, ELEMENT_TYPES, F16, F32, PRED, S8, S32, U8, U32, DType, Kind

COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


def check_dtype(instruction: Instruction, dtype: DType) -> None:
    """Refuse element types that the vector unit has no registers for.

    Raises:
        CompileError: 64-bit and complex types.
    """
    if dtype.bits > 32 or dtype.kind is Kind.COMPLEX:
        hint = "use f32" if dtype.is_float else "use 32-bit integers" if dtype.is_integer else "use pairs of f32"
        raise compile_error(instruction, f"element type {dtype} is not on this chip; {hint}")


@dataclass(frozen=True)
class MicroOps:
    """The rule of an operation that is one micro-operation; empty: of elements of that kind there is none.

    Attributes:
        exact: results of floats are in the operands' element type without rounding (but -0, where it has none).
    """

    float: str = ""
    signed: str = ""
    unsigned: str = ""
    pred: str = ""
    exact: bool = False

    def of(self, kind: Kind) -> str:
        """The micro-operation on elements of a kind."""
        return {Kind.FLOAT: self.float, Kind.SIGNED: self.signed, Kind.UNSIGNED: self.unsigned}.get(kind, self.pred)

    def __call__(self, b: Builder, sources: Sequence[Node]) -> Node:
        name = self.of(b.operand_dtype.kind)
        if not name:
            kinds = {"f32": self.float, "s32": self.signed, "u32": self.unsigned, "pred": self.pred}
            to = " or ".join(dtype for dtype, has in kinds.items() if has)
            raise b.fail(f"not supported for {b.operand_dtype} on the vector unit; convert the operands to {to}")
        value = b.graph.micro(name, *sources)
        return value if b.dtype.is_float and self.exact and not one_nan(b.dtype) else b.rounded(value, b.dtype)


def _compare(b: Builder, s: Sequence[Node]) -> Node:
    direction = COMPARISONS[b.instruction.word("direction")]
    dtype = b.operand_dtype
    if dtype.is_float and b.instruction.word("type", "FLOAT") == "TOTALORDER":
        if one_nan(dtype):  # its bits are those of -0
            s = [b.graph.micro("select", b.graph.micro("eq.f32", x, x), x, b.graph.const(0xFFC00000)) for x in s]
        return b.graph.micro(f"{direction}.s32", *(_total_order(b, x) for x in s))
    suffix = "f32" if dtype.is_float else "s32" if direction in ("eq", "ne") or dtype.kind is Kind.SIGNED else "u32"
    return b.graph.micro(f"{direction}.{suffix}", *s)


def _total_order(b: Builder, x: Node) -> Node:
    """An integer that orders floats as totalOrder does: flip the low bits of negative ones."""
    sign = b.graph.micro("sra", x, b.graph.const(31))
    return b.graph.micro("xor", x, b.graph.micro("shr", sign, b.graph.const(1)))


def _convert(b: Builder, s: Sequence[Node]) -> Node:
    (x,), src, dst = s, b.operand_dtype, b.dtype
    if src == dst:
        return x
    if src.code < 0:
        x, src = _of_bits(b, x, src)
    if dst.code < 0:
        return _as_bits(b, _converted(b, x, src, F32 if dst.is_float else S32), dst, src)
    return _converted(b, x, src, dst)


def _of_bits(b: Builder, x: Node, dtype: DType) -> tuple[Node, DType]:
    """The value of a type that no instruction has, whose image is its bits, and the type it has then."""
    g = b.graph
    if dtype.is_float:
        return float_of_bits(g, x, dtype), F32
    if dtype.kind is Kind.UNSIGNED:
        return g.micro("and", x, g.const((1 << dtype.bits) - 1)), U8
    missing = g.const(32 - dtype.bits)
    return g.micro("sra", g.micro("shl", x, missing), missing), S8


def _as_bits(b: Builder, value: Node, dtype: DType, source: DType) -> Node:
    """The bits of such a type of a number as f32 or s32; integers that were floats saturate, others wrap."""
    g = b.graph
    if dtype.is_float:
        return rounded_bits(g, value, dtype)
    if source.is_float:
        value = g.micro("min.s32", g.micro("max.s32", value, g.const(dtype.least)), g.const(dtype.greatest))
    return g.micro("and", value, g.const((1 << dtype.bits) - 1))


def _converted(b: Builder, x: Node, src: DType, dst: DType) -> Node:
    """An image as another type, both of instructions."""
    g = b.graph
    if src == dst:
        return x
    if dst.kind is Kind.PRED:
        return g.micro("ne.f32" if src.is_float else "ne.s32", x, g.const(0))
    if dst.is_float:
        if not src.is_float:
            x = g.micro("cvt.f32.u32" if src is U32 else "cvt.f32.s32", x)
        return x if src is BF16 and dst is F32 else b.rounded(x, dst)
    if src.is_float:
        if dst in (S32, U32):
            return g.micro(f"cvt.{dst}.f32", x)
        return g.micro(f"sat.{dst}", g.micro("cvt.s32.f32", x))
    wider = dst.bits > src.bits and (src.kind is not Kind.SIGNED or dst.kind is Kind.SIGNED)
    return x if src.kind is Kind.PRED or wider or dst.bits == 32 else b.rounded(x, dst)


def _bitcast_convert(b: Builder, s: Sequence[Node]) -> Node:
    (x,), g = s, b.graph
    src, dst = (t if t.code >= 0 else ELEMENT_TYPES[f"u{t.bits}"] for t in (b.operand_dtype, b.dtype))
    if src == dst:
        return x
    if src.bits != dst.bits or Kind.PRED in (src.kind, dst.kind):
        raise b.fail(f"from {src} to {dst}: the vector unit has it between numbers of equal width; convert to u8 first")
    if src.bits == 32:
        return x
    if not src.is_float and not dst.is_float:
        return b.rounded(x, dst)
    if src is BF16 and dst.kind is Kind.SIGNED:
        return g.micro("sra", x, g.const(16))
    bits = float_bits(g, x, src) if src.is_float else b.zero_extended(x, src)
    if dst.is_float:
        return float_of_bits(g, bits, dst)
    return b.rounded(bits, dst) if dst.kind is Kind.SIGNED else bits


def _clamp(b: Builder, s: Sequence[Node]) -> Node:
    low, x, high = s
    least, greatest = (MICRO_OPS[opcode].of(b.dtype.kind) for opcode in ("minimum", "maximum"))
    return b.graph.micro(least, b.graph.micro(greatest, x, low), high)


def _not(b: Builder, s: Sequence[Node]) -> Node:
    if b.dtype is PRED:
        return b.graph.micro("xor", s[0], b.graph.const(1))
    return b.rounded(b.graph.micro("not", s[0]), b.dtype)


def _shift_right_logical(b: Builder, s: Sequence[Node]) -> Node:
    return b.rounded(b.graph.micro("shr", b.zero_extended(s[0], b.dtype), s[1]), b.dtype)


def _shift_right_arithmetic(b: Builder, s: Sequence[Node]) -> Node:
    x, bits, g = s[0], b.dtype.bits, b.graph
    if b.dtype.kind is Kind.UNSIGNED and bits < 32:
        x = g.micro("sra", g.micro("shl", x, g.const(32 - bits)), g.const(32 - bits))
    return b.rounded(g.micro("sra", x, s[1]), b.dtype)


def _clz(b: Builder, s: Sequence[Node]) -> Node:
    g = b.graph
    zeros = g.micro("clz", b.zero_extended(s[0], b.dtype))
    return zeros if b.dtype.bits == 32 else g.micro("sub.s32", zeros, g.const(32 - b.dtype.bits))


def _reduce_precision(b: Builder, s: Sequence[Node]) -> Node:
    """On the bits of f32; of types with fewer exponents, on those of f16, which has all of their values."""
    exponent, mantissa = b.instruction.integer("exponent_bits"), b.instruction.integer("mantissa_bits")
    g, x, carrier = b.graph, s[0], F32 if b.dtype in (F32, BF16) else F16
    if carrier is F32 and (exponent, mantissa) == (8, 7):
        return b.rounded(x, BF16)
    has_exponent, has_mantissa = carrier.finfo.nexp, carrier.finfo.nmant
    bits = x if carrier is F32 else float_bits(g, x, F16)
    value = bits
    if mantissa < has_mantissa:
        half = g.const((1 << (has_mantissa - 1 - mantissa)) - 1)
        last = g.micro("and", g.micro("shr", bits, g.const(has_mantissa - mantissa)), g.const(1))
        kept = g.const(0xFFFFFFFF << (has_mantissa - mantissa))
        value = g.micro("and", g.micro("add.s32", bits, g.micro("add.s32", half, last)), kept)
    if exponent < has_exponent:
        bias, narrow = (1 << (has_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        sign = g.micro("and", bits, g.const(1 << (carrier.bits - 1)))
        infinity = g.const(((1 << has_exponent) - 1) << has_mantissa)
        field = g.micro("and", value, infinity)
        large = g.micro("gt.s32", field, g.const((bias + narrow) << has_mantissa))
        small = g.micro("le.s32", field, g.const((bias - narrow) << has_mantissa))
        value = g.micro("select", small, sign, value)
        value = g.micro("select", large, g.micro("or", sign, infinity), value)
    made = value if carrier is F32 else float_of_bits(g, value, F16)
    return b.rounded(g.micro("select", g.micro("eq.f32", x, x), made, x), b.dtype)


def _sign(b: Builder, s: Sequence[Node]) -> Node:
    if b.dtype.kind is Kind.UNSIGNED:
        return b.graph.micro("ne.s32", s[0], b.graph.const(0))
    return b.graph.micro("sign.f32" if b.dtype.is_float else "sign.s32", s[0])


MICRO_OPS = {
    "add": MicroOps("add.f32", "add.s32", "add.s32", "or"),
    "subtract": MicroOps("sub.f32", "sub.s32", "sub.s32"),
    "multiply": MicroOps("mul.f32", "mul.s32", "mul.s32", "and"),
    "divide": MicroOps("div.f32", "div.s32", "div.u32"),
    "remainder": MicroOps("rem.f32", "rem.s32", "rem.u32"),
    "maximum": MicroOps("max.f32", "max.s32", "max.u32", "or", exact=True),
    "minimum": MicroOps("min.f32", "min.s32", "min.u32", "and", exact=True),
    "negate": MicroOps("neg.f32", "neg.s32", "neg.s32", exact=True),
    "abs": MicroOps("abs.f32", "abs.s32", "mov", exact=True),
    "and": MicroOps("", "and", "and", "and"),
    "or": MicroOps("", "or", "or", "or"),
    "xor": MicroOps("", "xor", "xor", "xor"),
    "shift-left": MicroOps("", "shl", "shl"),
    "floor": MicroOps("floor.f32", exact=True),
    "ceil": MicroOps("ceil.f32", exact=True),
    "round-nearest-even": MicroOps("rne.f32", exact=True),
    "round-nearest-afz": MicroOps("rna.f32", exact=True),
    "atan2": MicroOps("atan2.f32"),
    "exponential": MicroOps("exp.f32"),
    "exponential-minus-one": MicroOps("expm1.f32"),
    "log": MicroOps("log.f32"),
    "log-plus-one": MicroOps("log1p.f32"),
    "tanh": MicroOps("tanh.f32"),
    "logistic": MicroOps("logistic.f32"),
    "rsqrt": MicroOps("rsqrt.f32"),
    "sqrt": MicroOps("sqrt.f32"),
    "cbrt": MicroOps("cbrt.f32"),
    "sine": MicroOps("sin.f32"),
    "cosine": MicroOps("cos.f32"),
    "tan": MicroOps("tan.f32"),
    "erf": MicroOps("erf.f32"),
}
"""Operations that are one micro-operation."""

RULES: dict[str, Rule] = {
    **MICRO_OPS,
    **COMPOSED,
    "compare": _compare,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "clamp": _clamp,
    "select": lambda b, s: b.graph.micro("select", *s),
    "not": _not,
    "sign": _sign,
    "shift-right-logical": _shift_right_logical,
    "shift-right-arithmetic": _shift_right_arithmetic,
    "count-leading-zeros": _clz,
    "popcnt": lambda b, s: b.graph.micro("popc", b.zero_extended(s[0], b.dtype)),
    "is-finite": lambda b, s: b.graph.micro("isfinite.f32", *s),
    "reduce-precision": _reduce_precision,
    "copy": lambda b, s: s[0],
}
"""Opcode to what computes an element of its result from those of its operands."""
