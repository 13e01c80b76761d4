"""Cost analysis: operations and bytes of a module, counted by the rules and under the keys of XLA's `HloCostAnalysis`.

Source: `xla/service/hlo_cost_analysis.cc`, with the options of XLA's CPU client (tuples are tables of 8-byte pointers).
Costs are `float` there, so sums here round to f32 and run in XLA's order: large totals agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from systolith.compiler.hlo.attributes import ConvDims, WindowDim
from systolith.compiler.hlo.cost.keys import (
    BYTES,
    FLOPS,
    SECONDS,
    TRANSCENDENTALS,
    Properties,
    leaves,
    operand_key,
    output_key,
    shape_bytes,
    utilization_key,
)
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.rules.shapes_control import branches
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.hlo.visiting import post_order

TRANSCENDENTAL = frozenset(
    """atan2 cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power rsqrt sine sqrt tan tanh
    acos acosh asin asinh atanh cosh sinh""".split()
)
"""Elementwise opcodes that count as transcendentals; the others count as operations."""

_FMA = 2


class HloCostAnalysis:
    """Costs of every instruction of a module, and of the whole.

    Args:
        module: a verified module.
        trip_counts: multiply the cost of loops that state their trip count by it; XLA counts every body once.
    """

    def __init__(self, module: Module, trip_counts: bool = False) -> None:
        self.trip_counts = trip_counts
        self._of: dict[Instruction, Properties] = {}
        self._sums: dict[Computation, Properties] = {}
        self._users: dict[Computation, dict[Instruction, list[Instruction]]] = {}
        self._reads: dict[Instruction, int] = {}
        with np.errstate(all="ignore"):
            for computation in module.post_order():
                self._sums[computation] = self._sum(computation)
        self.total = self._plain(self._sums[module.entry])

    def of(self, instruction: Instruction) -> dict[str, float]:
        """The costs of one instruction, its callees included."""
        return self._plain(self._of[instruction])

    def computation(self, computation: Computation) -> dict[str, float]:
        """The costs of running a computation once."""
        return self._plain(self._sums[computation])

    @staticmethod
    def _plain(properties: Properties) -> dict[str, float]:
        return {key: float(value) for key, value in properties.items() if value != 0}

    def _sum(self, computation: Computation) -> Properties:
        total: Properties = {}
        for i in post_order(computation):
            self._of[i] = cost = self._cost(i)
            _add(total, cost)
        return total

    def _cost(self, i: Instruction) -> Properties:
        size = sum(map(shape_bytes, i.shape.leaves()))
        cost: Properties = {output_key(): np.float32(size)}
        accessed = np.float32(size)
        for k, operand in enumerate(i.operands):
            size = shape_bytes(operand.shape)
            accessed += np.float32(size)
            cost[operand_key(k)] = np.float32(size)
            cost[utilization_key(k)] = np.float32(1)
        cost[BYTES] = accessed
        handler = HANDLERS.get(i.opcode)
        other = handler(self, i, cost) if handler else None
        return cost if other is None else other

    def called(self, computation: Computation) -> Properties:
        """A copy of the costs of a callee."""
        return dict(self._sums[computation])

    def users(self, computation: Computation) -> dict[Instruction, list[Instruction]]:
        """Users of a fused computation's instructions, found once."""
        if computation not in self._users:
            self._users[computation] = computation.users()
        return self._users[computation]

    def bytes_read(self, fused: Computation, i: Instruction) -> int:
        """Bytes that a fusion reads of a parameter, or of an element of one."""
        if i not in self._reads:
            self._reads[i] = _bytes_read(self, fused, i)
        return self._reads[i]


Handler: TypeAlias = "Callable[[HloCostAnalysis, Instruction, Properties], Properties | None]"
"""Changes the default costs (every operand read, the result written), or returns others."""


def _add(total: Properties, cost: Properties) -> None:
    for key, value in cost.items():
        if value != 0:
            total[key] = total.get(key, np.float32(0)) + value


def _set(cost: Properties, accessed: float, output: float, *operands: float) -> None:
    cost[BYTES], cost[output_key()] = np.float32(accessed), np.float32(output)
    for k, value in enumerate(operands):
        cost[operand_key(k)] = np.float32(value)


def _first(shape: Shape) -> Shape:
    return shape.elements[0] if shape.is_tuple else shape


def _share(cost: Properties, part: int, whole: int) -> None:
    cost[utilization_key(0)] = np.float32(np.float64(part) / np.float64(whole))


def _times(analysis: HloCostAnalysis, cost: Properties, callee: Computation, count: int) -> None:
    """Operations of `count` runs of a computation on scalars, whose bytes stay in registers."""
    for key, value in analysis.called(callee).items():
        if not key.startswith((BYTES, "utilization")) and value != 0:
            cost[key] = cost.get(key, np.float32(0)) + value * np.float32(count)


def _elementwise(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    cost[TRANSCENDENTALS if i.opcode in TRANSCENDENTAL else FLOPS] = np.float32(i.shape.size)


def _untouched(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    _set(cost, 0, 0, *(0 for _ in i.operands))


def _tuple(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size = shape_bytes(i.shape)
    _set(cost, size, size, *(0 for _ in i.operands))


def _transpose(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    """Bytes in the same places cost nothing."""
    order = i.ints("dimensions")
    if i.operands[0].shape.minor_to_major == tuple(order[d] for d in i.shape.minor_to_major):
        _untouched(analysis, i, cost)


def _slice(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size = shape_bytes(i.shape)
    _set(cost, 2 * size, size, size)
    _share(cost, i.shape.size, i.operands[0].shape.size)


def _dynamic_slice(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size = shape_bytes(i.shape)
    start = shape_bytes(i.operands[1].shape) if len(i.operands) > 1 else 0
    _set(cost, 2 * size + start, size, size, *([start] if len(i.operands) > 1 else []))
    _share(cost, i.shape.size, i.operands[0].shape.size)


def _dynamic_update_slice(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size = shape_bytes(i.operands[1].shape)
    start = shape_bytes(i.operands[2].shape) if len(i.operands) > 2 else 0
    _set(cost, 2 * size + start, size, 0, size, *([start] if len(i.operands) > 2 else []))
    _share(cost, i.shape.size - i.operands[1].shape.size, i.shape.size)


def _gather(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size, indices = shape_bytes(i.shape), shape_bytes(i.operands[1].shape)
    _set(cost, 2 * size + indices, size, size, indices)
    _share(cost, i.shape.size, i.operands[0].shape.size)


def _scatter(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    count = len(i.operands) // 2
    sizes = [shape_bytes(o.shape) for o in i.operands[count + 1 :]]
    indices = shape_bytes(i.operands[count].shape)
    _set(cost, 3 * sum(sizes) + indices, sum(sizes), *sizes, indices, *sizes)
    _times(analysis, cost, i.computation(), i.operands[count + 1].shape.size)


def _dot(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    width = prod(i.operands[0].dims[d] for d in i.ints("lhs_contracting_dims", ()))
    cost[FLOPS] = np.float32(_FMA * i.shape.size * width)


def _ragged_dot(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    """As of a dot whose result lacks as many leading dimensions as there are group dimensions."""
    width = prod(i.operands[0].dims[d] for d in i.ints("lhs_contracting_dims", ()))
    cost[FLOPS] = np.float32(_FMA * prod(i.dims[len(i.ints("rhs_group_dims", ())) :]) * width)


def _convolution(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    lhs, labels = i.operands[0], i.conv_dims
    places = prod(valid_positions(*dims) for dims in _spatial(i, labels))
    features = lhs.dims[labels.input_feature] // i.integer("feature_group_count", 1) * i.dims[labels.output_feature]
    batch = lhs.dims[labels.input_batch] // i.integer("batch_group_count", 1)
    cost[FLOPS] = np.float32(_FMA * features * batch * places)


def _spatial(i: Instruction, labels: ConvDims) -> Iterator[tuple[WindowDim, int, int, int]]:
    """Per spatial dimension: the window, and the sizes of input, kernel and output."""
    for k, window in enumerate(i.window.dims):
        yield (
            window,
            i.operands[0].dims[labels.input_spatial[k]],
            i.operands[1].dims[labels.kernel_spatial[k]],
            i.dims[labels.output_spatial[k]],
        )


def valid_positions(window: WindowDim, base: int, kernel: int, output: int) -> int:
    """Pairs of a kernel element and a position whose product is of an element of the base, not of padding or holes.

    Kernel element k at position p is over place p * stride + k * window_dilation - low, which has an element of it
    if it is base_dilation times 0 to base - 1.  Of one k, such positions are a period apart.
    """
    offsets = np.arange(kernel, dtype=np.int64) * window.window_dilation - window.low
    common = gcd(window.stride, window.base_dilation)
    offsets = offsets[offsets % common == 0] // common
    stride, period = window.stride // common, window.base_dilation // common
    first = -offsets * pow(stride, -1, period) % period
    start = (first * stride + offsets) // period  # in elements of the base, at the first position
    low = np.maximum(0, -(start // stride))
    high = np.minimum((output - 1 - first) // period, (base - 1 - start) // stride)
    return int(np.maximum(high - low + 1, 0).sum())


def _fft(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    stages = prod(n.bit_length() - 1 for n in i.ints("fft_length"))
    cost[FLOPS] = np.float32(_FMA * 4 * stages * _first(i.operands[0].shape).size)


def _triangular_solve(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    """Half of the matrix is read; XLA writes the right side's bytes under operand 0."""
    size, a, b = (shape_bytes(s) for s in (i.shape, i.operands[0].shape, i.operands[1].shape))
    _set(cost, size + a / 2 + b, size, b)
    cost[FLOPS] = np.float32(_FMA * i.operands[0].dims[-1] * i.operands[1].shape.size)


def _cholesky(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    size = shape_bytes(i.operands[0].shape)
    _set(cost, size, size / 2, size / 2)
    cost[FLOPS] = np.float32(i.operands[0].dims[-1] * i.operands[0].shape.size // 3)


def _sort(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    count = i.operands[0].shape.size
    cost[FLOPS] = np.float32(count * ((count - 1).bit_length() if count else -1))


def _random(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    cost[TRANSCENDENTALS] = np.float32(sum(leaf.size for leaf in i.shape.arrays))


def _all_reduce(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    """As between two devices: an addition for each element of the result."""
    arrays = i.shape.arrays
    written = sum(map(shape_bytes, arrays))
    cost[FLOPS] = np.float32(sum(a.size for a in arrays))
    _set(cost, written + sum(shape_bytes(o.shape) for o in i.operands), written)


def _infeed(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    sizes = {index: shape_bytes(leaf) for index, leaf in leaves(i.shape)}
    cost |= {output_key(index): np.float32(size) for index, size in sizes.items()}
    cost[output_key()] = cost[BYTES] = np.float32(sum(sizes.values()))


def _outfeed(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    cost[BYTES] = np.float32(0)
    for k, operand in enumerate(i.operands):
        sizes = {index: shape_bytes(leaf) for index, leaf in leaves(operand.shape)}
        cost |= {operand_key(k, index): np.float32(size) for index, size in sizes.items()}
        cost[operand_key(k)] = np.float32(sum(sizes.values()))
        cost[BYTES] += cost[operand_key(k)]


def _custom_call(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    """Unknown: -1 of everything."""
    _set(cost, -1, -1, *(-1 for _ in i.operands))
    cost[SECONDS] = cost[FLOPS] = np.float32(-1)


def _map(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    _times(analysis, cost, i.computation(), i.shape.size)


def _reduce(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    _times(analysis, cost, i.computation(), i.operands[0].shape.size - _first(i.shape).size)


def _reduce_window(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    outputs, window = _first(i.shape).size, i.window.dims
    wide = [k for k, d in enumerate(window) if d.size != 1]
    count = (prod(d.size for d in window) - 1) * outputs
    if len(wide) == 1 and sum(d.low != 0 or d.high != 0 for d in window) == 1 and i.shape.is_array:
        d, n = window[wide[0]], i.dims[wide[0]]
        # A sum over a whole dimension, repeated along it: counted as a reduction and copies.
        if d.low == d.high == n - 1 != 0 and d.size == 2 * d.low + 1:
            count = outputs // n + n - 1
    _times(analysis, cost, i.computation(), count)


def _select_and_scatter(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> None:
    sources = i.operands[1].shape.size
    _times(analysis, cost, i.computation("select"), sources * (prod(d.size for d in i.window.dims) - 1))
    _times(analysis, cost, i.computation("scatter"), sources)


def _call(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> Properties:
    return analysis.called(i.called[0])


def _while(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> Properties:
    """A run of the body and of the condition, or as many as the loop states."""
    total = analysis.called(i.computation("body"))
    _add(total, analysis.called(i.computation("condition")))
    runs = trip_count(i) if analysis.trip_counts else None
    return total if runs is None else {key: value * np.float32(runs) for key, value in total.items()}


def _conditional(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> Properties:
    """The dearest branch, for each key."""
    order = branches(i) if "branch_computations" in i.attributes else reversed(branches(i))
    total, *others = (analysis.called(branch) for branch in order)
    for other in others:
        for key, value in other.items():
            if value != 0:
                total[key] = max(total.get(key, np.float32(0)), value)
    return total


def _fusion(analysis: HloCostAnalysis, i: Instruction, cost: Properties) -> Properties | None:
    """Operations of the fused computation; bytes of the operands and results that it uses, and of its constants."""
    fused = i.computation("calls")
    if i.attributes.get("kind") == "kCustom":
        for inner in fused.instructions:
            if inner.opcode in ("gather", "scatter"):
                return HANDLERS[inner.opcode](analysis, inner, cost)
    total = analysis.called(fused)
    written = _fusion_outputs(i.shape, fused.result, total)
    constants = [c for c in fused.instructions if c.opcode == "constant" and c.shape.is_array and c.shape.size > 1]
    accessed = np.float32(written)
    for constant in constants:
        accessed += np.float32(shape_bytes(constant.shape))
    for k, parameter in enumerate(fused.parameters):
        read = _parameter_reads(analysis, fused, parameter, k, total)
        accessed += np.float32(read)
        total[operand_key(k)], total[utilization_key(k)] = np.float32(read), np.float32(1)
    total[BYTES] = accessed
    return total


def _fusion_outputs(shape: Shape, root: Instruction, total: Properties) -> int:
    """Bytes written, under a key each; a slice updated in place writes only the update."""
    written = 0
    for index, leaf in leaves(shape):
        if not leaf.is_array:
            continue
        made = root.operands[index[0]] if len(index) == 1 and root.opcode == "tuple" else root
        size = shape_bytes(made.operands[1].shape if made.opcode == "dynamic-update-slice" else leaf)
        total[output_key(index)] = np.float32(size)
        written += size
    if shape.is_tuple:
        total[output_key()] = np.float32(written)
    return written


def _parameter_reads(a: HloCostAnalysis, fused: Computation, parameter: Instruction, k: int, total: Properties) -> int:
    if not parameter.shape.is_tuple:
        return a.bytes_read(fused, parameter)
    read = 0
    for index, _ in leaves(parameter.shape):
        element = parameter
        for number in index:
            users = a.users(fused)[element]
            same = (u for u in users if u.opcode == "get-tuple-element" and u.integer("index") == number)
            element = next(same, element)
        size = a.bytes_read(fused, element)
        total[operand_key(k, index)] = np.float32(size)
        read += size
    return read


def _bytes_read(a: HloCostAnalysis, fused: Computation, i: Instruction) -> int:
    """Slices, broadcasts and reshapes read for themselves; all others share one read of the whole."""
    size, whole, shared = 0, shape_bytes(i.shape), False
    for user in a.users(fused)[i]:
        if user.opcode == "fusion":
            size += sum(_nested_reads(a, fused, user, k) for k, o in enumerate(user.operands) if o is i)
        elif user.opcode == "slice" or (user.opcode == "dynamic-slice" and user.operands[0] is i):
            size += shape_bytes(user.shape)
        elif user.opcode in ("broadcast", "reshape"):
            size += whole
        elif user.opcode == "dynamic-update-slice" and user.operands[0] is i:
            continue  # updated in place
        elif not shared:
            shared, size = True, size + whole
    return size


def _nested_reads(a: HloCostAnalysis, fused: Computation, fusion: Instruction, number: int) -> int:
    """Bytes that a fusion in a fusion reads of its operand `number`."""
    inner = fusion.computation("calls")
    parameter, root = inner.parameters[number], inner.result
    simple = not root.operands or root.operands[0] is parameter
    size, whole, shared = 0, shape_bytes(fusion.shape), False
    for user in a.users(fused)[fusion]:
        sliced = user.opcode if simple else ""
        if sliced == "slice" or (sliced == "dynamic-slice" and user.operands[0] is fusion):
            size += shape_bytes(user.shape)
        elif sliced == "dynamic-update-slice" and user.operands[0] is fusion:
            continue
        elif not shared:
            shared = True
            size += whole if sliced in ("dynamic-slice", "dynamic-update-slice") else a.bytes_read(inner, parameter)
    return size


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((ELEMENTWISE | {"bitcast-convert"}) - {"copy"}, _elementwise),
    **dict.fromkeys(("parameter", "constant", "get-tuple-element", "domain", "bitcast"), _untouched),
    **dict.fromkeys(("after-all", "add-dependency"), _untouched),
    **dict.fromkeys(("rng", "rng-bit-generator"), _random),
    **dict.fromkeys(("all-reduce", "all-reduce-start"), _all_reduce),
    **dict.fromkeys(("call", "async-start"), _call),
    "tuple": _tuple,
    "transpose": _transpose,
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys(("dot", "scaled-dot"), _dot),
    "ragged-dot": _ragged_dot,
    "convolution": _convolution,
    "fft": _fft,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
    "sort": _sort,
    "infeed": _infeed,
    "outfeed": _outfeed,
    "custom-call": _custom_call,
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "while": _while,
    "conditional": _conditional,
    "fusion": _fusion,
}
"""Opcode to how it departs from reading every operand and writing the result."""
