"""Whether two modules give the same results, on random inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.values.contraction import PRECISIONS, requested_precision
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array, random_array


@dataclass(frozen=True)
class Compared:
    """A comparison.

    Attributes:
        results: arrays compared.
        same: those of them that are the same to the bit.
        difference: the first that differs by more than rounding; None if none does.
    """

    results: int
    same: int
    difference: str | None = None


def compare_modules(
    before: Module, after: Module, count: int, seed: int, max_iterations: int | None = None
) -> Compared:
    """Evaluate both on `count` random inputs.

    Floats may differ by rounding: sums in another order, each within the square root of the type's precision relative
    to the largest magnitude of the result.  Products may be computed more precisely than before, as the vector unit
    computes convolutions: then those of `before` are, too.

    Args:
        before, after: verified modules of the same parameters.
        count: inputs.
        seed: of the inputs.
        max_iterations: that the loops of an evaluation may take together; None: any number.

    Raises:
        SystolithError: an operation is not implemented in the evaluator; parameters differ; loops take too many
            iterations.
    """
    shapes = [[leaf for p in m.entry.parameters for leaf in p.shape.leaves() if leaf.is_array] for m in (before, after)]
    if [str(s) for s in shapes[0]] != [str(s) for s in shapes[1]]:
        raise SystolithError("the passes changed the parameters of the module")
    rng = np.random.default_rng(seed)
    before = _as_precise(before, after)
    results = same = 0
    for turn in range(count):
        arguments = [random_array(rng, leaf.dtype, leaf.dims) for leaf in shapes[0]]
        pairs = zip(*(evaluate(m, *arguments, max_iterations=max_iterations) for m in (before, after)), strict=True)
        for number, (want, got) in enumerate(pairs):
            results += 1
            if _same_bits(want, got):
                same += 1
            elif (problem := _difference(want, got)) is not None:
                return Compared(results, same, f"input {turn}, result {number}: {problem}")
    return Compared(results, same)


def _as_precise(before: Module, after: Module) -> Module:
    """A copy of `before` whose products have the precision of those of their shapes in `after`, where that is higher.

    Passes rename instructions and copy them, so products are matched by their shapes; of several, the least counts.
    """
    least: dict[tuple[str, ...], int] = {}
    for i in _products(after):
        precision = PRECISIONS.index(requested_precision(i))
        least[_shapes(i)] = min(precision, least.get(_shapes(i), precision))
    copy = clone(before)
    for i in _products(copy):
        if least.get(_shapes(i), 0) > PRECISIONS.index(requested_precision(i)):
            i.attributes["operand_precision"] = (PRECISIONS[least[_shapes(i)]],) * 2
    return copy


def _shapes(product: Instruction) -> tuple[str, ...]:
    return (product.opcode, *(str(i.shape) for i in (product, *product.operands)))


def _products(module: Module) -> Iterator[Instruction]:
    instructions = (i for c in module.computations for i in c.instructions)
    return (i for i in instructions if i.opcode in ("dot", "convolution"))


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _difference(want: Array, got: Array) -> str | None:
    """The error of a result, in words; None if it is rounding only."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{list(got.shape)}, before {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu":
        return f"{np.count_nonzero(want != got)} of {want.size} elements differ"
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(kind), got.astype(kind)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities or NaNs are elsewhere"
    allowed = _rounding(want) * np.abs(a[finite]).max(initial=0.0)
    worst = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return None if worst <= allowed else f"differs by {worst:.3g}, more than the {allowed:.3g} of rounding"


def _rounding(array: Array) -> float:
    """The square root of the distance from 1 to the next number of the array's type."""
    import ml_dtypes

    return float(np.sqrt(float(ml_dtypes.finfo(array.dtype).eps)))  # type: ignore[no-untyped-call]
