"""Algebraic rules of elementwise operations.

Only what gives the same bits for every input: x + 0 stays for floats (it changes -0), and so do x * 1 (it makes NaNs
canonical) and x - x (infinities).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, Rule
from systolith.compiler.passes.simplify.algebraic_sinking import below_moves, is_scalar
from systolith.isa.dtypes import DType, Kind


def splat(i: Instruction) -> np.ndarray | None:
    """The value that every element of a constant, or of a broadcast constant, has; None for all else."""
    source = i.operands[0] if i.opcode == "broadcast" else i
    literal = source.literal
    if not isinstance(literal, np.ndarray) or not literal.size:
        return None
    flat = literal.reshape(-1)
    first, last = flat[:1], flat[-1:]
    same = first.tobytes() == last.tobytes() and flat.tobytes() == first.tobytes() * flat.size
    return first.reshape(()) if same else None


def is_integral(dtype: DType) -> bool:
    """Whether arithmetic is exact: integers, and pred."""
    return dtype.is_integer or dtype.name == "pred"


def value_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if dtype.kind is Kind.UNSIGNED:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _ones(dtype: DType) -> object:
    """The value with all bits set."""
    return True if dtype.name == "pred" else np.asarray(-1).astype(dtype.stored)


# Operations of integers: (opcode, which operand is the constant, its value): what the result is.
_FIRST, _SECOND, _CONSTANT = "first", "second", "constant"
_Identity = tuple[int, Callable[[DType], object], str]


def _zero(dtype: DType) -> object:
    return 0


def _one(dtype: DType) -> object:
    return 1


IDENTITIES: dict[str, tuple[_Identity, ...]] = {
    "add": ((0, _zero, _SECOND), (1, _zero, _FIRST)),
    "subtract": ((1, _zero, _FIRST),),
    "multiply": ((0, _one, _SECOND), (1, _one, _FIRST), (0, _zero, _CONSTANT), (1, _zero, _CONSTANT)),
    "divide": ((1, _one, _FIRST),),
    "and": ((0, _ones, _SECOND), (1, _ones, _FIRST), (0, _zero, _CONSTANT), (1, _zero, _CONSTANT)),
    "or": ((0, _zero, _SECOND), (1, _zero, _FIRST), (0, _ones, _CONSTANT), (1, _ones, _CONSTANT)),
    "xor": ((0, _zero, _SECOND), (1, _zero, _FIRST)),
    "shift-left": ((1, _zero, _FIRST), (0, _zero, _CONSTANT)),
    "shift-right-logical": ((1, _zero, _FIRST), (0, _zero, _CONSTANT)),
    "shift-right-arithmetic": ((1, _zero, _FIRST), (0, _zero, _CONSTANT)),
}
"""With a constant as operand number n, the result is the other operand, or that constant."""

SAME: dict[str, str] = {
    **dict.fromkeys(("and", "or", "minimum", "maximum"), _FIRST),
    **dict.fromkeys(("subtract", "xor"), _CONSTANT),
}
"""With one operand twice, the result is it, or zero."""


def integer_identity(r: Rewriter, i: Instruction) -> Instruction | None:
    """Identities of integers and predicates: `IDENTITIES` and `SAME`."""
    dtype = i.shape.dtype
    if not is_integral(dtype) or len(i.operands) != 2:
        return None
    a, b = i.operands
    if a is b and i.opcode in SAME:
        return a if SAME[i.opcode] == _FIRST else r.full(0, i.shape)
    if dtype.name == "pred" and i.opcode not in ("and", "or", "xor"):
        return None
    for place, value_of, result in IDENTITIES.get(i.opcode, ()):
        found = splat(i.operands[place])
        if found is not None and found == np.asarray(value_of(dtype)).astype(dtype.stored):
            return {_FIRST: a, _SECOND: b, _CONSTANT: i.operands[place]}[result]
    return None


FLIPPED = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}


def undone(r: Rewriter, i: Instruction) -> Instruction | None:
    """An operation that undoes its operand: not(not(x)), and of integers negate(negate(x))."""
    (x,) = i.operands
    exact = i.opcode == "not" or is_integral(i.shape.dtype)
    return x.operands[0] if x.opcode == i.opcode and exact else None


def idempotent(r: Rewriter, i: Instruction) -> Instruction | None:
    """An operation that its operand did already, or that integers are not changed by: abs, sign, floor, ..."""
    (x,) = i.operands
    if x.opcode == i.opcode:
        return x
    source = x.operands[0].shape.dtype if x.opcode == "convert" else None
    return x if i.opcode in ROUNDINGS and source is not None and is_integral(source) else None


ROUNDINGS = frozenset({"floor", "ceil", "round-nearest-afz", "round-nearest-even"})


def negated_compare(r: Rewriter, i: Instruction) -> Instruction | None:
    """The negation of a comparison of integers is the opposite comparison (of floats, NaN is in the way)."""
    (x,) = i.operands
    if x.opcode != "compare" or not is_integral(x.operands[0].shape.dtype):
        return None
    made = r.like(x, x.operands, i.shape)
    made.attributes["direction"] = FLIPPED[x.word("direction")]
    return made


def compare(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of a thing with itself, and of unsigned numbers with 0."""
    a, b = i.operands
    direction, dtype = i.word("direction"), a.shape.dtype
    if a is b and (is_integral(dtype) or i.attributes.get("type") == "TOTALORDER"):
        return r.full(direction in ("EQ", "LE", "GE"), i.shape)
    if dtype.kind is Kind.UNSIGNED and direction in ("LT", "GE") and (zero := splat(b)) is not None and zero == 0:
        return r.full(direction == "GE", i.shape)
    return None


def select(r: Rewriter, i: Instruction) -> Instruction | None:
    """Of one thing, by a constant, by a negation, and of true and false."""
    p, a, b = i.operands
    if a is b:
        return a
    if (chosen := splat(p)) is not None:
        return a if bool(chosen) else b
    if p.opcode == "not":
        return r.like(i, [p.operands[0], b, a], i.shape)
    if i.shape.is_array and i.shape.dtype.name == "pred" and p.shape.same(i.shape):
        values = splat(a), splat(b)
        if values[0] is not None and values[1] is not None and values[0] != values[1]:
            return p if values[0] else r.emit("not", p, shape=i.shape)
    return None


def convert(r: Rewriter, i: Instruction) -> Instruction | None:
    """To the type that it has, and of integers to a wider type and back."""
    (x,) = i.operands
    if x.shape.same(i.shape):
        return x
    if x.opcode != "convert" or not (_holds(x.shape.dtype, x.operands[0].shape.dtype)):
        return None
    return r.like(i, x.operands, i.shape) if is_integral(i.shape.dtype) else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether an integer type has every value of another."""
    if not (wide.is_integer and narrow.is_integer):
        return False
    a, b = value_range(wide), value_range(narrow)
    return a[0] <= b[0] and b[1] <= a[1]


def bitcast_convert(r: Rewriter, i: Instruction) -> Instruction | None:
    """To the type that it has, and of what was another type before."""
    (x,) = i.operands
    if x.shape.same(i.shape):
        return x
    if x.opcode != "bitcast-convert":
        return None
    widths = {shape.dtype.bits for shape in (x.operands[0].shape, x.shape, i.shape)}
    return r.like(i, x.operands, i.shape) if len(widths) < 3 else None


def part_of_complex(r: Rewriter, i: Instruction) -> Instruction | None:
    """The real or imaginary part of what was made of both."""
    (x,) = i.operands
    if x.shape.dtype.kind is not Kind.COMPLEX:
        return x if i.opcode == "real" else r.full(0, i.shape)
    return x.operands[0 if i.opcode == "real" else 1] if x.opcode == "complex" else None


def complex_of_parts(r: Rewriter, i: Instruction) -> Instruction | None:
    """complex(real(x), imag(x)) -> x."""
    a, b = i.operands
    same = (a.opcode, b.opcode) == ("real", "imag") and a.operands[0] is b.operands[0]
    return a.operands[0] if same else None


def divide(r: Rewriter, i: Instruction) -> Instruction | None:
    """Division of floats by a power of two is multiplication by its inverse, to the bit."""
    x, d = i.operands
    found = splat(d)
    if found is None or not i.shape.dtype.is_float:
        return None
    mantissa, exponent = math.frexp(float(found))
    if abs(mantissa) != 0.5 or abs(exponent) > _EXACT_EXPONENTS or i.shape.dtype.bits < 16:
        return None
    return r.emit("multiply", x, r.full(1.0 / float(found), d.shape), shape=i.shape)


_EXACT_EXPONENTS = 12
"""Powers of two that every float type of 16 bits or more holds, as their inverses, without rounding."""


def elementwise(r: Rewriter, i: Instruction) -> Instruction | None:
    """An operation on broadcasts of scalars is a broadcast of the operation on the scalars; an operation on reshapes
    or transposes (of arrays of one shape, alike) and scalars is one of the operation on what they move.
    """
    if i.opcode not in ELEMENTWISE or not i.shape.is_array or i.shape.rank == 0 or not i.operands:
        return None
    if not all(map(is_scalar, i.operands)):
        return below_moves(r, i)
    scalars = [o.operands[0] if o.shape.rank else o for o in i.operands]
    value = r.like(i, scalars, array(i.shape.dtype), f"{i.name}.s")
    return r.emit("broadcast", value, shape=i.shape, dimensions=())


ARITHMETIC: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(set(IDENTITIES) | set(SAME), (integer_identity,)),
    "not": (undone, negated_compare),
    "negate": (undone,),
    **dict.fromkeys({"abs", "sign", *ROUNDINGS}, (idempotent,)),
    "compare": (compare,),
    "select": (select,),
    "convert": (convert,),
    "bitcast-convert": (bitcast_convert,),
    "real": (part_of_complex,),
    "imag": (part_of_complex,),
    "complex": (complex_of_parts,),
    "divide": (integer_identity, divide),
}
"""Opcode to its rules; `elementwise` comes after them for every elementwise opcode."""
