"""Shape rules of random numbers."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import Infer, arrays, require, require_array, require_kind, require_scalar
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.isa.dtypes import DTYPES, Kind

_DISTRIBUTIONS = {
    "rng_uniform": frozenset(Kind) - {Kind.COMPLEX},
    "rng_normal": frozenset({Kind.FLOAT}),
}


def _rng(i: Instruction) -> Shape:
    """Two parameters of the distribution -> the declared shape, of their element type."""
    parameters = [require_scalar(s, "a parameter of the distribution") for s in arrays(i)]
    require(len(parameters) == 2, f"takes the distribution's two parameters, got {len(parameters)}")
    first, second = parameters
    require(first.dtype == second.dtype, f"both parameters have one element type, got {first} and {second}")
    kind = i.word("distribution")
    require(kind in _DISTRIBUTIONS, f"distribution is one of {', '.join(_DISTRIBUTIONS)}, got {kind}")
    require_kind(first.dtype, _DISTRIBUTIONS[kind])
    return array(first.dtype, require_array(i.shape, "the result").dims)


def _rng_bit_generator(i: Instruction) -> Shape:
    """A state -> the next state and an array as declared; the array alone in an older form."""
    if not i.shape.is_tuple:
        return require_array(i.shape, "the result")
    require(len(i.shape.elements) == 2, f"the result is a state and an array, got {i.shape}")
    bits = require_array(i.shape.elements[1], "the second part of the result")
    require(bits.dtype.kind is not Kind.COMPLEX, f"random bits are no complex numbers, got {bits}")
    return tuple_of([i.operands[0].shape, bits])


def _rng_get_and_update_state(i: Instruction) -> Shape:
    return array(DTYPES["u64"], (2,))


RANDOM_RULES: dict[str, Infer] = {
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "rng-get-and-update-state": _rng_get_and_update_state,
}
"""Opcode to rule."""
