"""Linear algebra, Fourier transforms, batch normalization and random numbers."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.attributes import Raw
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.xla_builder.arguments import Ints, ShapeLike, as_shape, flag, integer, ints
from systolith.compiler.xla_builder.op import XlaOp
from systolith.compiler.xla_builder.reduction import Reduction

_ALGORITHMS = {
    "default": "rng_default", "rng_default": "rng_default",
    "three_fry": "rng_three_fry", "rng_three_fry": "rng_three_fry",
    "philox": "rng_philox", "rng_philox": "rng_philox",
}  # fmt: skip
_TRANSPOSE = {"NO_TRANSPOSE": "NO_TRANSPOSE", "TRANSPOSE": "TRANSPOSE", "ADJOINT": "ADJOINT"}
_FFT = ("FFT", "IFFT", "RFFT", "IRFFT")


def _word(words: dict[str, str], given: str, name: str) -> str:
    for word, meant in words.items():
        if str(given).lower() == word.lower():
            return meant
    raise HloError(f"{name} is one of {', '.join(words)}, got {given!r}")


def _number(epsilon: float) -> float:
    if not isinstance(epsilon, float | int | np.floating):
        raise HloError(f"epsilon is a number, got {type(epsilon).__name__}")
    return float(epsilon)


class Numeric(Reduction):
    """Operations of mathematics beyond sums of products."""

    def cholesky(self, a: XlaOp, lower: bool = True) -> XlaOp:
        """The triangular factor of positive definite matrices; the two minor dimensions are a matrix's."""
        return self._emit("cholesky", [a], lower=flag(lower, "lower"))

    def triangular_solve(
        self,
        a: XlaOp,
        b: XlaOp,
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose_a: str = "NO_TRANSPOSE",
    ) -> XlaOp:
        """Solves op(a) x = b, or x op(a) = b, for x, with triangular matrices a.

        Args:
            a: [..., M, M].
            b: [..., M, K], or [..., K, M] where `left_side` is false.
            left_side: op(a) x = b.
            lower: the lower triangle of a is read.
            unit_diagonal: the diagonal of a is 1 and not read.
            transpose_a: NO_TRANSPOSE, TRANSPOSE or ADJOINT.
        """
        return self._emit(
            "triangular-solve",
            [a, b],
            left_side=flag(left_side, "left_side"),
            lower=flag(lower, "lower"),
            unit_diagonal=flag(unit_diagonal, "unit_diagonal"),
            transpose_a=_word(_TRANSPOSE, transpose_a, "transpose_a"),
        )

    def fft(self, operand: XlaOp, fft_type: str, fft_length: Ints) -> XlaOp:
        """A Fourier transform along the last one to three dimensions.

        Args:
            operand: complex; real for RFFT.
            fft_type: FFT, IFFT, RFFT or IRFFT.
            fft_length: length along each transformed dimension, in time.
        """
        kind = _word(dict(zip(_FFT, _FFT, strict=True)), fft_type, "fft_type")
        return self._emit("fft", [operand], fft_type=kind, fft_length=ints(fft_length, "fft_length"))

    def batch_norm_training(
        self, operand: XlaOp, scale: XlaOp, offset: XlaOp, epsilon: float, feature_index: int
    ) -> XlaOp:
        """Normalized operand, mean and variance of each feature: a tuple."""
        return self._batch_norm("training", [operand, scale, offset], epsilon, feature_index)

    def batch_norm_inference(
        self,
        operand: XlaOp,
        scale: XlaOp,
        offset: XlaOp,
        mean: XlaOp,
        variance: XlaOp,
        epsilon: float,
        feature_index: int,
    ) -> XlaOp:
        """The operand normalized with given mean and variance of each feature."""
        return self._batch_norm("inference", [operand, scale, offset, mean, variance], epsilon, feature_index)

    def batch_norm_grad(
        self,
        operand: XlaOp,
        scale: XlaOp,
        batch_mean: XlaOp,
        batch_var: XlaOp,
        grad_output: XlaOp,
        epsilon: float,
        feature_index: int,
    ) -> XlaOp:
        """Gradients of operand, scale and offset: a tuple."""
        operands = [operand, scale, batch_mean, batch_var, grad_output]
        return self._batch_norm("grad", operands, epsilon, feature_index)

    def _batch_norm(self, kind: str, operands: list[XlaOp], epsilon: float, feature_index: int) -> XlaOp:
        index, shown = integer(feature_index, "feature_index"), Raw(f"{_number(epsilon):.9g}")
        return self._emit(f"batch-norm-{kind}", operands, epsilon=shown, feature_index=index)

    def rng_normal(self, mu: XlaOp, sigma: XlaOp, shape: ShapeLike) -> XlaOp:
        """Random numbers of a normal distribution with mean `mu` and standard deviation `sigma`, scalars."""
        return self._rng(mu, sigma, as_shape(shape), "rng_normal")

    def rng_uniform(self, a: XlaOp, b: XlaOp, shape: ShapeLike) -> XlaOp:
        """Random numbers of a uniform distribution over [a, b), scalars."""
        return self._rng(a, b, as_shape(shape), "rng_uniform")

    def _rng(self, first: XlaOp, second: XlaOp, shape: Shape, distribution: str) -> XlaOp:
        for operand in (first, second):
            scalar = self._array(operand)
            if scalar.rank or scalar.dtype != shape.dtype:
                raise HloError(f"both parameters are {shape.dtype}[], as the result {shape}; got {scalar}")
        return self._emit("rng", [first, second], shape, distribution=distribution)

    def rng_bernoulli(self, mean: XlaOp, shape: ShapeLike) -> XlaOp:
        """1 with probability `mean` (f32 scalar), else 0; HLO has it as a uniform number that is less than the mean."""
        result, chance = as_shape(shape), self._array(mean)
        if chance.rank or chance.dtype.name != "f32":
            raise HloError(f"mean is f32[], got {chance}")
        low, high = self._scalar(0, chance.dtype), self._scalar(1, chance.dtype)
        drawn = self._rng(low, high, array(chance.dtype, result.dims), "rng_uniform")
        return self.convert_element_type(self.lt(drawn, mean), result.dtype)

    def rng_bit_generator(self, algorithm: str, initial_state: XlaOp, shape: ShapeLike) -> XlaOp:
        """New state and random bits: a tuple.

        Args:
            algorithm: `rng_default`, `rng_three_fry` or `rng_philox` (`RNG_` and any case as well).
            initial_state: u64 vector of the algorithm's size.
            shape: of the bits.
        """
        made = tuple_of([self._array(initial_state), as_shape(shape)])
        found = _word(_ALGORITHMS, algorithm, "algorithm")
        return self._emit("rng-bit-generator", [initial_state], made, algorithm=found)

    def rng_get_and_update_state(self, delta: int, shape: ShapeLike) -> XlaOp:
        """The state of a generator of the device, which then advances by `delta`."""
        return self._emit("rng-get-and-update-state", [], as_shape(shape), delta=integer(delta, "delta"))
