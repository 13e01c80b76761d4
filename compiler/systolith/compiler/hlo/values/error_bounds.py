"""Reference values of a computation and how far a correct chip may be from them: running error analysis.

Beside each value runs a bound E >= 0 of its error, by element, propagated to first order by one rule an opcode:

    data movement         E moves along
    add, subtract         Ea + Eb, and one rounding
    multiply              |a| Eb + |b| Ea + Ea Eb, and one rounding
    functions of one      max |f(a +- Ea) - f(a)|, and TRANSCENDENTAL roundings where f is no IEEE operation
    dot, convolution      C K 2^-24 sum |a b|, and the rounding of the result's type  (inexact operands: |a| Eb + ...)
    reduce by add         sum E + C n 2^-24 sum |x|, and one rounding of the result's type, however narrow
    reduce by multiply    |result| (product of 1 + E / |x|, and C n 2^-24), and one rounding likewise
    compare               where the operands' intervals overlap either outcome may be right, and its users are
                          bounded by both

An operation without a rule gives its exact result on exact operands and has no bound (infinity) on others.  One
rounding is a unit in the last place of the result's type (half on the chip, half in the reference), and at least its
least subnormal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Literal
from systolith.compiler.hlo.values.elementwise import OPERATIONS
from systolith.compiler.hlo.values.evaluator import evaluate_computation, evaluate_instruction, flatten
from systolith.compiler.hlo.values.reduction import plain_parts, window_elements, window_sum
from systolith.isa import routines
from systolith.isa.dtypes import DType, Kind

C = 3.0
"""Of sums: the chip adds K products in f32 in some order, up to six passes; the reference rounds once."""

TRANSCENDENTAL = 5.0
"""Roundings of a function that IEEE 754 does not define: the chip's sequences are within 4 ulp."""

U32 = 2.0**-24

F32_MAX, F32_TINY = (float(x) for x in (np.finfo(np.float32).max, np.finfo(np.float32).tiny))

Errors = list[np.ndarray]
Rule = Callable[[Instruction, np.ndarray, list[np.ndarray], Errors], np.ndarray]


def bounded(
    computation: Computation, arguments: Sequence[Literal], precision: str | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The results of a computation on exact arguments, tuples flattened, each with its error bound (f64, by element).

    Raises:
        HloError: an operation is not implemented.
    """
    values: dict[Instruction, Literal] = {}
    evaluate_computation(computation, arguments, precision, observe=values.__setitem__)
    errors: dict[Instruction, list[np.ndarray]] = {}
    for i in computation.instructions:
        errors[i] = _instruction(i, values, errors)
    result = computation.result
    return list(zip(flatten(values[result]), errors[result], strict=True))


def _instruction(
    i: Instruction, values: dict[Instruction, Literal], errors: dict[Instruction, list[np.ndarray]]
) -> list[np.ndarray]:
    """Bounds of an instruction's results, one a leaf of its shape."""
    if i.opcode == "tuple":
        return [e for o in i.operands for e in errors[o]]
    results = flatten(values[i])
    given = [e for o in i.operands for e in errors[o]]
    if i.opcode == "custom-call" and routines.is_known(i.word("custom_call_target")):
        return _routine(i, results, given)
    exact = not any(e.any() for e in given)
    if exact and (i.opcode in _EXACT or not any(_rounds(leaf.dtype) for leaf in i.shape.arrays)):
        return [np.zeros(r.shape) for r in results]
    operands = [x for o in i.operands for x in flatten(values[o])]
    if i.opcode in ("reduce", "reduce-window"):
        with np.errstate(all="ignore"):
            bounds = _reduced(i, results, operands, given)
        return [_settled(np.broadcast_to(e, r.shape), r) for e, r in zip(bounds, results, strict=True)]
    if i.opcode == "scan":
        with np.errstate(all="ignore"):
            return [_settled(e, r) for e, r in zip(_scanned(i, results, operands, given), results, strict=True)]
    rule = _RULES.get(i.opcode)
    if rule is None:
        return [_unknown(r, given) for r in results]
    with np.errstate(all="ignore"):
        bound = rule(i, results[0], operands, given)
        roundings = _ROUNDINGS.get(i.opcode, 0.0)
        if roundings and _rounds(i.shape.dtype):
            bound = bound + roundings * rounding(results[0], i.shape.dtype)
    return [_settled(bound, results[0])]


def _routine(i: Instruction, results: list[np.ndarray], given: Errors) -> list[np.ndarray]:
    """Floats are as near to the reference as the routine says; on inexact operands nothing is known."""
    if any(e.any() for e in given):
        return [_unknown(r, given) for r in results]
    ulp, dtypes = routines.find(i.word("custom_call_target")).ulp, [s.dtype for s in i.shape.arrays]
    pairs = zip(results, dtypes, strict=True)
    return [_settled(ulp * rounding(r, d), r) if _rounds(d) else np.zeros(r.shape) for r, d in pairs]


def _settled(bound: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Non-finite results are compared for identity, unless an operand's bound says that anything goes."""
    kept = np.where(np.isfinite(_wide(result)) | np.isinf(bound), bound, 0.0)
    return np.where(np.isnan(bound), np.inf, kept)


def rounding(x: np.ndarray, dtype: DType) -> np.ndarray:
    """How far two roundings to `dtype` of numbers near x may lie apart: the chip's and the reference's."""
    info = dtype.finfo
    return np.asarray(np.maximum(np.abs(_wide(x)) * float(info.eps), float(info.smallest_subnormal)))


def _rounds(dtype: DType) -> bool:
    return dtype.kind in (Kind.FLOAT, Kind.COMPLEX)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _move(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """E goes where the elements go; with inexact index operands nothing is known."""
    fixed = {"dynamic-slice": 1, "gather": 1, "dynamic-update-slice": 2}.get(i.opcode, len(errors))
    if any(e.any() for e in errors[fixed:]):
        return np.full(result.shape, np.inf)
    (value,) = flatten(evaluate_instruction(i, [*errors[:fixed], *operands[fixed:]]))
    return np.asarray(value, dtype=np.float64)


def _sum(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    return errors[0] + errors[1]


def _multiply(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    a, b = (np.abs(_wide(x)) for x in operands)
    # inf x 0: an exact operand adds no error, however large the other is.
    by_a, by_b = np.where(errors[1] > 0, a * errors[1], 0.0), np.where(errors[0] > 0, b * errors[0], 0.0)
    return np.asarray(by_a + by_b + errors[0] * errors[1])


def _divide(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    room = np.abs(_wide(operands[1])) - errors[1]
    spread = errors[0] + np.abs(_wide(result)) * errors[1]
    return np.where(spread == 0, 0.0, np.where(room > 0, spread / room, np.inf))


def _power(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    if not any(e.any() for e in errors):
        return np.zeros(result.shape)
    a, b = (_wide(x) for x in operands)
    slope = np.abs(b) * errors[0] / np.maximum(np.abs(a) - errors[0], 0) + np.abs(np.log(np.abs(a))) * errors[1]
    return np.asarray(np.abs(_wide(result)) * np.expm1(slope))


def _function(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """Of one operand: how far the function moves over the operand's interval (it is monotone, or E is small)."""
    (error,) = errors
    if not error.any():
        return np.zeros(result.shape)
    f = OPERATIONS[i.opcode].function
    at = _wide(operands[0])
    centre = f(at)
    moved = [np.abs(f(at + side * error) - centre) for side in (-1.0, 1.0)]
    return np.where(error == 0, 0.0, np.maximum(*moved))


def _periodic(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """sine, cosine: slope at most 1."""
    return np.minimum(errors[0], 2.0)


def _largest(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*errors)))


def _select(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    predicate, on_true, on_false = operands
    doubtful = np.broadcast_to(errors[0] > 0, result.shape)
    gap = np.abs(_wide(on_true) - _wide(on_false))
    chosen = np.where(predicate, errors[1], errors[2])
    return np.where(doubtful, np.where(np.isnan(gap), np.inf, gap) + np.maximum(errors[1], errors[2]), chosen)


def _compare(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    reach = errors[0] + errors[1]
    return np.where((reach > 0) & (np.abs(_wide(operands[0]) - _wide(operands[1])) <= reach), 1.0, 0.0)


def _logical(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """Of predicates: in doubt where an operand is."""
    if i.shape.dtype.kind is not Kind.PRED:
        return _unknown(result, errors)
    return np.asarray(np.minimum(_largest(i, result, operands, errors), 1.0))


def _convert(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    if _rounds(i.shape.dtype):
        return errors[0]
    return np.where(errors[0] > 0, np.ceil(errors[0]) + 1.0, 0.0)


def _steps(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """floor, ceil, round, sign: exact unless the interval holds a step."""
    return _function(i, result, operands, errors)


def _reduced(i: Instruction, results: list[np.ndarray], operands: list[np.ndarray], errors: Errors) -> Errors:
    """Bounds of a `reduce` or `reduce-window`."""
    count = len(operands) // 2
    opcodes = plain_parts(i.computation(), count)
    if opcodes is not None:
        pairs = [(side[k], side[count + k]) for side in (operands, errors) for k in range(count)]
        leaves = zip(opcodes, i.shape.leaves(), results, pairs[:count], pairs[count:], strict=True)
        return [
            _PARTS[op](_Part(i, leaf.dtype, result, *values, *bounds)) for op, leaf, result, values, bounds in leaves
        ]
    seen = (
        _window_steps(i, operands[:count], operands[count:])
        if i.opcode == "reduce-window"
        else _line_steps(i, operands[:count])
    )
    zeros = [np.zeros(()) for _ in range(count)]
    of_errors = (
        _window_steps(i, errors[:count], zeros) if i.opcode == "reduce-window" else _line_steps(i, errors[:count])
    )
    return _folded(i.computation(), [operands[count:], *seen], [errors[count:], *of_errors])


@dataclass(frozen=True)
class _Part:
    """One result of a reduction by one operation: elements, the initial value, and the bounds of both."""

    i: Instruction
    dtype: DType
    result: np.ndarray
    x: np.ndarray
    init: np.ndarray
    error: np.ndarray
    init_error: np.ndarray

    @property
    def steps(self) -> int:
        """How many elements are combined."""
        if self.i.opcode == "reduce-window":
            return prod(d.size for d in self.i.window.dims)
        return prod(self.x.shape[d] for d in self.i.ints("dimensions"))

    @property
    def inits(self) -> int:
        """How often the initial value is among them at the most: a window pads with it."""
        return self.steps if self.i.opcode == "reduce-window" else 1

    def total(self, x: np.ndarray) -> np.ndarray:
        """Sums of elements; padding of a window is 0."""
        if self.i.opcode == "reduce-window":
            return window_sum(self.i, x)
        return np.asarray(x.sum(axis=self.i.ints("dimensions")))

    def rounded(self, bound: np.ndarray) -> np.ndarray:
        """With the one rounding of the result."""
        return bound + rounding(self.result, self.dtype) if _rounds(self.dtype) else bound


def _added(p: _Part) -> np.ndarray:
    """In f32, whatever the element type; not known where the sum may leave f32 on the way."""
    spread = p.total(np.abs(_wide(p.x))) + p.inits * np.abs(_wide(p.init))
    bound = p.total(p.error) + p.inits * p.init_error
    if _rounds(p.dtype):
        bound = np.where(spread > F32_MAX, np.inf, bound + C * p.steps * U32 * spread)
    return p.rounded(bound)


def _multiplied(p: _Part) -> np.ndarray:
    """In f32 likewise: relative bounds add up; not known where a product of some may leave the normal numbers."""
    if not _rounds(p.dtype) or p.dtype.kind is Kind.COMPLEX:
        return _any_inexact(p)
    sizes, init = np.abs(_wide(p.x)), np.abs(_wide(p.init))
    logs, first = np.log(np.where(sizes > 0, sizes, 1.0)), p.inits * np.log(np.where(init > 0, init, 1.0))
    most = p.total(np.maximum(logs, 0)) + np.maximum(first, 0)
    least = p.total(np.minimum(logs, 0)) + np.minimum(first, 0)
    relative = p.total(_relative(p.error, sizes)) + p.inits * _relative(p.init_error, init)
    size = np.abs(_wide(p.result)) + rounding(p.result, p.dtype)
    bound = size * np.expm1(relative + C * p.steps * U32)
    return p.rounded(np.where((most > np.log(F32_MAX)) | (least < np.log(F32_TINY)), np.inf, bound))


def _relative(error: np.ndarray, size: np.ndarray) -> np.ndarray:
    return np.where(error > 0, np.log1p(error / size), 0.0)


def _chosen(p: _Part) -> np.ndarray:
    """maximum, minimum: one of the elements."""
    if p.i.opcode == "reduce-window":
        return np.asarray(p.total(p.error) + p.init_error)
    return np.asarray(np.maximum(p.error.max(axis=p.i.ints("dimensions"), initial=0.0), p.init_error))


def _any_inexact(p: _Part) -> np.ndarray:
    doubt = (p.total(p.error) + p.init_error) > 0
    return np.where(doubt, 1.0 if p.dtype.kind is Kind.PRED else np.inf, 0.0)


_PARTS: dict[str, Callable[[_Part], np.ndarray]] = {
    "add": _added,
    "multiply": _multiplied,
    **dict.fromkeys(("maximum", "minimum"), _chosen),
    **dict.fromkeys(("and", "or", "xor"), _any_inexact),
}


def _line_steps(i: Instruction, arrays: Sequence[np.ndarray]) -> list[Errors]:
    """The elements of a `reduce`, step by step."""
    dims = i.ints("dimensions")
    kept = [d for d in range(arrays[0].ndim) if d not in dims]
    sizes = [arrays[0].shape[d] for d in kept]
    steps = prod(arrays[0].shape[d] for d in dims)
    lines = [x.transpose(*dims, *kept).reshape(steps, *sizes) for x in arrays]
    return [list(step) for step in zip(*lines, strict=True)]


def _window_steps(i: Instruction, arrays: Sequence[np.ndarray], pads: Sequence[np.ndarray]) -> list[Errors]:
    """The elements of a `reduce-window`, an offset of the window at a time."""
    seen = [window_elements(i, x, pad) for x, pad in zip(arrays, pads, strict=True)]
    return [list(step) for step in zip(*seen, strict=True)]


def _unknown(result: np.ndarray, errors: Errors) -> np.ndarray:
    """No bound where an operand is inexact: by element if the shapes allow it, else anywhere."""
    if all(e.shape in (result.shape, ()) for e in errors):
        doubt = np.maximum.reduce([np.zeros(result.shape), *(np.broadcast_to(e, result.shape) for e in errors)])
        return np.where(doubt > 0, np.inf, 0.0)
    return np.full(result.shape, np.inf if any(e.any() for e in errors) else 0.0)


def _folded(computation: Computation, steps: Sequence[Errors], step_errors: Sequence[Errors]) -> Errors:
    """Bounds of a reduction by any computation: its own rules, applied once a step.

    Args:
        computation: on scalars; it runs on arrays as it is.
        steps, step_errors: the initial values, then the elements of each step, and their bounds.

    Returns:
        A bound for each result.  Twice that of one order: the chip takes one, the reference another.
    """
    totals, bounds = list(steps[0]), list(step_errors[0])
    for elements, inexact in zip(steps[1:], step_errors[1:], strict=True):
        totals, bounds = _lifted(computation, [*totals, *elements], [*bounds, *inexact])
    return [2.0 * e for e in bounds]


def _lifted(computation: Computation, arguments: Errors, inexact: Errors) -> tuple[Errors, Errors]:
    """A computation on scalars, on arrays: values and bounds of its results."""
    shape = np.broadcast_shapes(*(x.shape for x in arguments))
    full = [[np.broadcast_to(x, shape) for x in given] for given in (arguments, inexact)]
    return _called(computation, *full)


def _scanned(i: Instruction, results: list[np.ndarray], operands: list[np.ndarray], errors: Errors) -> Errors:
    """Bounds of a `scan`: the rules of its computation, applied once a step."""
    (dim,), carries = i.ints("dimensions"), i.integer("num_carries")
    given, made = len(operands) - carries, len(results) - carries
    along = [[np.moveaxis(x, dim, 0) for x in side[:given]] for side in (operands, errors)]
    bounds = [np.zeros(r.shape) for r in results]
    rows = [np.moveaxis(e, dim, 0) for e in bounds[:made]]
    values, inexact = operands[given:], errors[given:]
    steps = range(len(along[0][0]) if given else len(rows[0]))
    for n in reversed(steps) if i.flag("is_reverse") else steps:
        arguments, uncertain = ([x[n] for x in side] for side in along)
        values, inexact = _called(i.computation(), [*arguments, *values], [*uncertain, *inexact])
        for row, e in zip(rows, inexact, strict=False):
            row[n] = e
        values, inexact = values[made:], inexact[made:]
    return [*bounds[:made], *inexact]


def _called(computation: Computation, arguments: Errors, inexact: Errors) -> tuple[Errors, Errors]:
    """A computation on values with bounds: values and bounds of its results."""
    values: dict[Instruction, Literal] = {}
    errors: dict[Instruction, list[np.ndarray]] = {}
    for i in computation.instructions:
        if i.opcode == "parameter":
            values[i], errors[i] = arguments[i.number or 0], [inexact[i.number or 0]]
        else:
            values[i] = evaluate_instruction(i, [values[o] for o in i.operands])
            errors[i] = _instruction(i, values, errors)
    result = computation.result
    return flatten(values[result]), errors[result]


def _contraction(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    a, b = (np.abs(x) for x in operands)
    if not _rounds(i.shape.dtype):
        return _unknown(result, errors)

    def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        pair = [v.astype(o.shape.dtype.stored) for v, o in zip((x, y), i.operands, strict=True)]
        return _wide(np.asarray(flatten(evaluate_instruction(i, list(pair), "highest"))[0]))

    bound = C * _contracted(i) * U32 * product(a, b)
    if errors[0].any() or errors[1].any():
        # An inexact operand may round to the neighbouring bf16.
        ea, eb = (np.where(e > 0, e + 2.0**-8 * _wide(x), 0.0) for e, x in zip(errors, (a, b), strict=True))
        bound = bound + product(ea, b) + product(a, eb) + product(ea, eb)
    return bound


def _contracted(i: Instruction) -> int:
    """K: how many products an element of the result sums."""
    if i.opcode == "dot":
        return prod(i.operands[0].dims[d] for d in i.ints("lhs_contracting_dims", ()))
    kernel, dims = i.operands[1], i.conv_dims
    return prod(kernel.dims[d] for d in (*dims.kernel_spatial, dims.kernel_input))


def _is_finite(i: Instruction, result: np.ndarray, operands: list[np.ndarray], errors: Errors) -> np.ndarray:
    """In doubt only where the interval reaches beyond the type's largest number."""
    largest = float(i.operands[0].shape.dtype.finfo.max)
    return np.where((errors[0] > 0) & ~(np.abs(_wide(operands[0])) + errors[0] < largest), 1.0, 0.0)


_MOVES = (
    "broadcast reshape transpose bitcast slice reverse concatenate pad dynamic-slice dynamic-update-slice gather copy "
    "opt-barrier"
).split()
_EXACT = frozenset(
    [
        *_MOVES,
        *"parameter constant iota negate abs maximum minimum clamp select compare and or xor not floor ceil".split(),
        *"round-nearest-afz round-nearest-even sign is-finite get-tuple-element bitcast-convert".split(),
        *"real imag complex".split(),
    ]
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES, _move),
    **dict.fromkeys(("add", "subtract"), _sum),
    "multiply": _multiply,
    "divide": _divide,
    "power": _power,
    **dict.fromkeys(("atan2", "remainder"), lambda i, r, x, e: _unknown(r, e)),
    **dict.fromkeys(("negate", "abs"), lambda i, r, x, e: e[0]),
    **dict.fromkeys(("maximum", "minimum", "clamp"), _largest),
    **dict.fromkeys(("and", "or", "xor", "not"), _logical),
    "select": _select,
    "is-finite": _is_finite,
    "compare": _compare,
    "convert": _convert,
    **dict.fromkeys(("sine", "cosine"), _periodic),
    **dict.fromkeys(
        "exponential exponential-minus-one log log-plus-one tanh logistic sqrt rsqrt cbrt tan erf".split(), _function
    ),
    **dict.fromkeys("floor ceil round-nearest-afz round-nearest-even sign".split(), _steps),
    "dot": _contraction,
    "convolution": _contraction,
}
_ROUNDINGS: dict[str, float] = {
    **dict.fromkeys("add subtract multiply divide sqrt convert remainder dot convolution".split(), 1.0),
    **dict.fromkeys(
        "exponential exponential-minus-one log log-plus-one tanh logistic rsqrt cbrt tan erf".split(), TRANSCENDENTAL
    ),
    **dict.fromkeys("sine cosine power atan2".split(), TRANSCENDENTAL),
}
