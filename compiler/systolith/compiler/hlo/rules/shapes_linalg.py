"""Shape rules of fft, linear algebra and batch normalization."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    Infer,
    agree,
    arrays,
    flags_of,
    require,
    require_kind,
    resized,
    retyped,
    sized,
    sizes_agree,
    types_agree,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape, tuple_of
from systolith.isa.dtypes import DTYPES, Kind

_ANALYTIC = frozenset({Kind.FLOAT, Kind.COMPLEX})
_COMPLEX_OF = {"f32": "c64", "f64": "c128"}
_REAL_OF = {"c64": "f32", "c128": "f64"}


def _fft(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    lengths, kind = i.ints("fft_length"), i.word("fft_type")
    count = len(lengths)
    require(1 <= count <= 3, f"fft_length has 1 to 3 entries, got {count}")
    require(shape.rank >= count, f"the operand has at least {count} dimensions, got {shape}")
    types, what = (_COMPLEX_OF, "f32 or f64") if kind == "RFFT" else (_REAL_OF, "complex")
    require(shape.dtype.name in types, f"{kind} takes {what} elements, got {shape.dtype}")
    if kind not in ("RFFT", "IRFFT"):
        return shape
    result = retyped(shape, DTYPES[types[shape.dtype.name]])
    last, half = shape.dims[-1], lengths[-1] // 2 + 1
    outer = shape.dims[shape.rank - count : -1]
    fits = all(map(sizes_agree, outer, lengths[:-1]))
    if kind == "RFFT":
        require(fits and sizes_agree(last, lengths[-1]), f"the last dimensions of {shape} are fft_length {lengths}")
        size = half if lengths[-1] else 0
    else:
        fits &= last in (half, UNBOUNDED) or last == lengths[-1] == 0
        require(fits, f"the last dimensions of {shape} are those of fft_length {lengths}, the last {half}")
        size = lengths[-1]
    return resized(result, shape.rank - 1, size, flags_of(shape)[-1] and last != UNBOUNDED)


def _square(shape: Shape) -> None:
    require_kind(shape.dtype, _ANALYTIC)
    fits = shape.rank >= 2 and sizes_agree(shape.dims[-1], shape.dims[-2])
    require(fits, f"the operand is a stack of square matrices, got {shape}")


def _cholesky(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    _square(shape)
    return shape


def _triangular_solve(i: Instruction) -> Shape:
    a, b = arrays(i)
    _square(a)
    require(a.dtype == b.dtype, f"operands have one element type, got {a} and {b}")
    require(a.rank == b.rank and a.dims[:-2] == b.dims[:-2], f"operands have equal batch dimensions, got {a} and {b}")
    shared = b.dims[-2 if i.flag("left_side") else -1]
    require(sizes_agree(a.dims[-1], shared), f"the matrices {a} are multiplied with {b}, got {a.dims[-1]} and {shared}")
    return b


def _features(i: Instruction, shapes: list[Shape]) -> Shape:
    """The first operand has floats; the others are vectors with an entry a feature.  Returns such a vector."""
    first, *vectors = shapes
    index = i.integer("feature_index")
    require_kind(first.dtype, frozenset({Kind.FLOAT}))
    require(0 <= index < first.rank, f"feature_index is 0 to {first.rank - 1}, got {index}")
    for vector in vectors:
        fits = vector.rank == 1 and types_agree(vector.dtype, first.dtype)
        require(fits and sizes_agree(vector.dims[0], first.dims[index]),
                f"there is a value for each of the {first.dims[index]} features of {first}, got {vector}")  # fmt: skip
    return sized(first.dtype, [first.dims[index]], [flags_of(first)[index]])


def _batch_norm_training(i: Instruction) -> Shape:
    shapes = arrays(i)
    vector = _features(i, shapes)
    return tuple_of([shapes[0], vector, vector])


def _batch_norm_inference(i: Instruction) -> Shape:
    shapes = arrays(i)
    _features(i, shapes)
    return shapes[0]


def _batch_norm_grad(i: Instruction) -> Shape:
    *shapes, gradient = arrays(i)
    vector = _features(i, shapes)
    require(agree(gradient, shapes[0], any_float=True), f"the gradient has the shape {shapes[0]}, got {gradient}")
    return tuple_of([shapes[0], vector, vector])


LINALG_RULES: dict[str, Infer] = {
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "batch-norm-training": _batch_norm_training,
    "batch-norm-inference": _batch_norm_inference,
    "batch-norm-grad": _batch_norm_grad,
}
"""Opcode to rule."""
