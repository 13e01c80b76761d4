"""Algebraic simplification: data movement that moves nothing, or that is one movement instead of two.

Only what gives the same bits for every input: x + 0 stays for floats (it changes -0), and so does x * 1 (it makes NaNs
canonical).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from systolith.compiler.hlo.builder import constant, emit
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array
from systolith.isa.dtypes import BF16, F32

Rule = Callable[[Computation, Instruction], "Instruction | None"]
"""The simpler instruction (an old one, or a new one that stands before), or None."""


@dataclass(frozen=True)
class Simplify:
    """Apply the rules until none fits."""

    def run(self, module: Module) -> bool:
        changes = [_simplify(c) for c in module.computations]
        return any(changes)


def _simplify(computation: Computation) -> bool:
    changed = False
    for instruction in list(computation.instructions):
        while (rule := RULES.get(instruction.opcode, _elementwise)) is not None:
            simpler = rule(computation, instruction)
            if simpler is None:
                break
            computation.root = computation.result
            computation.replace(instruction, simpler)
            computation.instructions.remove(instruction)
            changed = True
            if simpler not in computation.instructions or simpler in instruction.operands:
                break
            instruction = simpler
    return changed


def _same_shape(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.same(i.shape) else None


def _reshape(c: Computation, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    if x.dims == i.dims:
        return x
    if x.opcode == "reshape":
        return emit(c, "reshape", x.operands[0], shape=i.shape, before=i)
    if x.opcode == "broadcast" and x.operands[0].shape.rank == 0:
        return emit(c, "broadcast", x.operands[0], shape=i.shape, before=i, dimensions=())
    return _reshape_of_broadcast(c, i, x) if x.opcode == "broadcast" else None


def _reshape_of_broadcast(c: Computation, i: Instruction, x: Instruction) -> Instruction | None:
    """A reshape that only adds or drops dimensions of size 1 after a broadcast: a reshape of the operand, broadcast."""
    place = _unit_places(x.dims, i.dims)
    if place is None:
        return None
    (y,) = x.operands
    kept = [(place[d], n) for d, n in zip(x.ints("dimensions"), y.dims, strict=True) if place[d] is not None]
    dims = tuple(n for _, n in kept)
    if prod(dims) != prod(y.dims):
        return None
    inner = y if dims == y.dims else emit(c, "reshape", y, shape=array(y.shape.dtype, dims), before=i)
    return emit(c, "broadcast", inner, shape=i.shape, before=i, dimensions=tuple(d for d, _ in kept if d is not None))


def _unit_places(old: tuple[int, ...], new: tuple[int, ...]) -> list[int | None] | None:
    """For each old dimension its new number (None: a dropped one of size 1); None if more changes than ones."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    big = [d for d, n in enumerate(new) if n != 1]
    places: list[int | None] = []
    k = 0
    for n in old:
        if n == 1:
            places.append(None)
        else:
            places.append(big[k])
            k += 1
    return places


def _transpose(c: Computation, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    order = i.ints("dimensions")
    if order == tuple(range(len(order))):
        return x
    if x.opcode == "transpose":
        inner = x.ints("dimensions")
        return emit(c, "transpose", x.operands[0], before=i, dimensions=tuple(inner[d] for d in order))
    if [d for d in order if x.dims[d] != 1] == [d for d, n in enumerate(x.dims) if n != 1]:
        return emit(c, "reshape", x, shape=i.shape, before=i)
    return None


def _broadcast(c: Computation, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    dims = i.ints("dimensions", ())
    if x.dims == i.dims and dims == tuple(range(len(dims))):
        return x
    if x.opcode == "broadcast":
        inner = tuple(dims[d] for d in x.ints("dimensions", ()))
        return emit(c, "broadcast", x.operands[0], shape=i.shape, before=i, dimensions=inner)
    if x.opcode == "reshape":
        (y,) = x.operands
        place = _unit_places(y.dims, x.dims)
        if place is not None and 1 not in y.dims:
            inner = tuple(dims[p] for p in place if p is not None)
            return emit(c, "broadcast", y, shape=i.shape, before=i, dimensions=inner)
    if prod(x.dims) == prod(i.dims) and list(dims) == sorted(dims):
        return emit(c, "reshape", x, shape=i.shape, before=i)
    return None


def _copy(c: Computation, i: Instruction) -> Instruction | None:
    return i.operands[0]


def _whole_slice(c: Computation, i: Instruction) -> Instruction | None:
    return _same_shape(i) if all(s.stride == 1 for s in i.slices) else None


def _no_pad(c: Computation, i: Instruction) -> Instruction | None:
    padding = i.attributes["padding"]
    assert isinstance(padding, tuple)
    nothing = all((p.low, p.high, p.interior) == (0, 0, 0) for p in padding)  # type: ignore[union-attr]
    return i.operands[0] if nothing else None


def _reverse(c: Computation, i: Instruction) -> Instruction | None:
    return i.operands[0] if all(i.dims[d] == 1 for d in i.ints("dimensions")) else None


def _concatenate(c: Computation, i: Instruction) -> Instruction | None:
    return i.operands[0] if len(i.operands) == 1 else None


def _select(c: Computation, i: Instruction) -> Instruction | None:
    p, a, b = i.operands
    if a is b:
        return a
    source = p.operands[0] if p.opcode == "broadcast" else p
    if source.opcode == "constant" and isinstance(source.literal, np.ndarray) and source.literal.size == 1:
        return a if bool(source.literal.reshape(-1)[0]) else b
    return _elementwise(c, i)


def _logic(c: Computation, i: Instruction) -> Instruction | None:
    """X and true is x; x or false is x."""
    neutral = i.opcode == "and"
    if i.shape.dtype.name == "pred":
        for x, other in (i.operands, reversed(i.operands)):
            source = other.operands[0] if other.opcode == "broadcast" else other
            if source.opcode == "constant" and np.all(np.asarray(source.literal) == neutral):
                return x
    return _elementwise(c, i)


def _is_scalar(i: Instruction) -> bool:
    """Whether it is a scalar, or one repeated."""
    return i.shape.rank == 0 or (i.opcode == "broadcast" and i.operands[0].shape.rank == 0)


def _elementwise(c: Computation, i: Instruction) -> Instruction | None:
    """An operation on broadcasts of scalars is a broadcast of the operation on the scalars; an operation on reshapes
    (of arrays of one shape) and scalars is a reshape of the operation on what they reshape.
    """
    if i.opcode not in ELEMENTWISE or i.shape.rank == 0 or not i.operands:
        return None
    if not all(map(_is_scalar, i.operands)):
        return _below_reshapes(c, i)
    scalars = [o.operands[0] if o.shape.rank else o for o in i.operands]
    value = _like(c, i, scalars, ())
    return emit(c, "broadcast", value, shape=i.shape, before=i, dimensions=())


def _like(c: Computation, i: Instruction, operands: list[Instruction], dims: tuple[int, ...]) -> Instruction:
    """The same operation on other operands with a result of other dims, before it."""
    attributes = {k: v for k, v in i.attributes.items() if k != "sharding"}
    name, shape = c.fresh_name(f"{i.name}.s"), array(i.shape.dtype, dims)
    made = Instruction(name, i.opcode, shape, operands, attributes, line=i.line)
    c.instructions.insert(c.instructions.index(i), made)
    return made


def _below_reshapes(c: Computation, i: Instruction) -> Instruction | None:
    arrays = [o for o in i.operands if not _is_scalar(o)]
    if any(o.opcode != "reshape" for o in arrays) or len({o.operands[0].dims for o in arrays}) != 1:
        return None
    dims = arrays[0].operands[0].dims
    operands = []
    for o in i.operands:
        if o in arrays or o.shape.rank == 0:
            operands.append(o.operands[0] if o in arrays else o)
        else:
            shape = array(o.shape.dtype, dims)
            operands.append(emit(c, "broadcast", o.operands[0], shape=shape, before=i, dimensions=()))
    value = _like(c, i, operands, dims)
    return emit(c, "reshape", value, shape=i.shape, before=i)


def _divide(c: Computation, i: Instruction) -> Instruction | None:
    """Division of floats by a power of two is multiplication by its inverse, to the bit."""
    x, d = i.operands
    source = d.operands[0] if d.opcode == "broadcast" else d
    if not i.shape.dtype.is_float or source.opcode != "constant" or source.shape.size != 1:
        return _elementwise(c, i)
    value = float(np.asarray(source.literal).reshape(-1)[0])
    mantissa, exponent = math.frexp(value)
    if abs(mantissa) != 0.5 or abs(exponent) > _EXACT_EXPONENTS:
        return _elementwise(c, i)
    inverse = constant(c, np.asarray(1.0 / value), source.shape.dtype, before=i)
    factor = inverse
    if d.shape.rank:
        factor = emit(c, "broadcast", inverse, shape=i.shape, before=i, dimensions=())
    return emit(c, "multiply", x, factor, shape=i.shape, before=i)


_EXACT_EXPONENTS = 12
"""Powers of two that every float type holds, as their inverses, without rounding."""


def _convert(c: Computation, i: Instruction) -> Instruction | None:
    return _same_shape(i) or _elementwise(c, i)


def _narrow_operands(c: Computation, i: Instruction) -> Instruction | None:
    """A product of f32 operands that were bf16 is a product of bf16 operands: widening changes no value."""
    if any(
        o.opcode != "convert" or o.operands[0].shape.dtype is not BF16 or o.shape.dtype is not F32 for o in i.operands
    ):
        return None
    return _like(c, i, [o.operands[0] for o in i.operands], i.dims)


RULES: dict[str, Rule] = {
    "dot": _narrow_operands,
    "convolution": _narrow_operands,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "copy": _copy,
    "slice": _whole_slice,
    "pad": _no_pad,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "select": _select,
    "and": _logic,
    "or": _logic,
    "divide": _divide,
    "convert": _convert,
    "bitcast-convert": _convert,
}
