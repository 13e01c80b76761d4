"""Random operations for the tests of shape rules: operands, attributes, computations; many have a mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

Draw = st.DrawFn


@dataclass(frozen=True)
class Operation:
    """An operation as text, without its result's shape.

    Attributes:
        operands: their shapes, as text.
        opcode: XLA's name.
        attributes: `, key=value` ...
        computations: the texts of those that it calls.
    """

    operands: tuple[str, ...]
    opcode: str
    attributes: str = ""
    computations: str = ""

    def module(self, declared: str = "") -> str:
        """A module whose root is the operation, with or without a declared shape."""
        lines = [f"  x{k} = {shape} parameter({k})" for k, shape in enumerate(self.operands)]
        names = ", ".join(f"x{k}" for k in range(len(self.operands)))
        root = f"  ROOT r = {declared} {self.opcode}({names}){self.attributes}"
        return "\n".join(["HloModule m", "", self.computations, "ENTRY e {", *lines, root, "}", ""])


def ints(values: object) -> str:
    """A list as in `dimensions={1,2}`."""
    return "{" + ",".join(map(str, values)) + "}"  # type: ignore[call-overload]


TYPES = ("f32", "f32", "f32", "bf16", "f64", "s32", "u8", "pred", "c64")


def _shape(element: str, dims: list[int], flags: list[bool] | None = None) -> str:
    flags = flags or [False] * len(dims)
    return f"{element}[{','.join(f'<={n}' if f else str(n) for n, f in zip(dims, flags, strict=True))}]"


def _dims(draw: Draw, fewest: int = 0, most: int = 3) -> list[int]:
    return draw(st.lists(st.integers(0, 4), min_size=fewest, max_size=most))


def _flags(draw: Draw, rank: int) -> list[bool]:
    return draw(st.one_of(st.just([False] * rank), st.lists(st.booleans(), min_size=rank, max_size=rank)))


def _bent(draw: Draw, dims: list[int]) -> list[int]:
    """The sizes, or some with a mistake."""
    wrong = list(dims)
    if wrong and draw(st.integers(0, 7)) == 0:
        wrong[draw(st.integers(0, len(wrong) - 1))] += draw(st.sampled_from((-1, 1, 2)))
    if draw(st.integers(0, 15)) == 0:
        wrong.append(2)
    return [max(n, 0) for n in wrong]


def _type(draw: Draw, usual: str = "") -> str:
    return usual if usual and draw(st.integers(0, 7)) else draw(st.sampled_from(TYPES))


def _array(draw: Draw, element: str, dims: list[int]) -> str:
    """An array's shape, with sizes and type as wanted or now and then not; some dimensions are `<=N` or `?`."""
    sizes = _bent(draw, dims)
    shape = _shape(_type(draw, element), sizes, _flags(draw, len(sizes)))
    if sizes == dims and sizes and sizes[-1] > 2 and "<" not in shape and draw(st.integers(0, 11)) == 0:
        return shape.replace(str(sizes[-1]) + "]", "?]")
    return shape


def _numbers(draw: Draw, rank: int, count: int | None = None) -> list[int]:
    """Dimension numbers, mostly unique and within the rank."""
    order = draw(st.permutations(range(rank)))
    chosen = list(order[: draw(st.integers(0, rank)) if count is None else count])
    if draw(st.integers(0, 9)) == 0:
        chosen.append(draw(st.integers(0, rank + 1)))
    return chosen


def scalars(name: str, parameters: list[str], results: list[str]) -> str:
    """A computation of scalars: each result is a parameter of that type, or a constant."""
    lines = [f"  p{k} = {t} parameter({k})" for k, t in enumerate(parameters)]
    for k, t in enumerate(results):
        value = "false" if t.startswith("pred") else "(0, 0)" if t.startswith("c") else "0"
        lines.append(f"  q{k} = {t} constant({value})")
    if len(results) == 1:
        lines[-1] = lines[-1].replace("  q0", "  ROOT q0")
    else:
        lines.append(f"  ROOT t = ({', '.join(results)}) tuple({', '.join(f'q{k}' for k in range(len(results)))})")
    return "\n".join([f"{name} {{", *lines, "}"])


@st.composite
def unary(draw: Draw) -> Operation:
    opcode = draw(st.sampled_from("abs negate exponential cbrt erf not popcnt sign is-finite real floor".split()))
    return Operation((_array(draw, "", _dims(draw)),), opcode)


@st.composite
def binary(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw)
    opcode = draw(st.sampled_from("add maximum subtract divide atan2 and power complex".split()))
    return Operation((_array(draw, element, dims), _array(draw, element, dims)), opcode)


@st.composite
def compare(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw)
    return Operation((_array(draw, element, dims), _array(draw, element, dims)), "compare", ", direction=LT")


@st.composite
def ternary(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw, 1)
    outer = draw(st.sampled_from((dims, [])))
    value = _array(draw, element, dims)
    if draw(st.booleans()):
        return Operation((_array(draw, "pred", outer), value, _array(draw, element, dims)), "select")
    return Operation((_array(draw, element, outer), value, _array(draw, element, outer)), "clamp")


@st.composite
def transpose(draw: Draw) -> Operation:
    dims = _dims(draw)
    order = _numbers(draw, len(dims), len(dims))
    return Operation((_array(draw, "", dims),), "transpose", f", dimensions={ints(order)}")


@st.composite
def concatenate(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw, 1)
    dim = draw(st.integers(0, len(dims) - 1))
    operands = []
    for _ in range(draw(st.integers(1, 3))):
        dims[dim] = draw(st.integers(0, 4))
        operands.append(_array(draw, element, dims))
    return Operation(tuple(operands), "concatenate", f", dimensions={ints([dim])}")


@st.composite
def pad(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw, 1)
    low = st.integers(-3, 3)
    padding = "x".join(f"{draw(low)}_{draw(low)}_{draw(st.integers(0, 2))}" for _ in _bent(draw, dims))
    return Operation((_array(draw, element, dims), _array(draw, element, [])), "pad", f", padding={padding}")


@st.composite
def reverse(draw: Draw) -> Operation:
    dims = _dims(draw)
    return Operation((_array(draw, "", dims),), "reverse", f", dimensions={ints(_numbers(draw, len(dims)))}")


@st.composite
def dimension_size(draw: Draw) -> Operation:
    dims = _dims(draw)
    attributes = f", dimensions={ints([draw(st.integers(0, max(len(dims), 1)))])}"
    shape = _array(draw, "", dims)
    if draw(st.booleans()):
        return Operation((shape,), "get-dimension-size", attributes)
    return Operation((shape, _array(draw, "s32", [])), "set-dimension-size", attributes)


@st.composite
def gather(draw: Draw) -> Operation:
    dims, outer = _dims(draw, 1), _dims(draw, 0, 2)
    rank = len(dims)
    dropped = sorted(_numbers(draw, rank))
    batching = [d for d in dropped if d < rank and draw(st.integers(0, 3)) == 0][: len(outer)]
    collapsed = [d for d in dropped if d not in batching]
    sizes = [1 if d in dropped else draw(st.integers(0, n)) for d, n in enumerate(dims)]
    starts = _numbers(draw, rank)
    for k, d in enumerate(batching):
        outer[k] = dims[d]
    vector = draw(st.integers(0, len(outer)))
    places = [k if k < vector else k + 1 for k in range(len(batching))]
    indices = [*outer[:vector], len(starts), *outer[vector:]]
    window = rank - len(set(dropped))
    offset = sorted(_numbers(draw, len(outer) + window, window))
    attributes = (
        f", offset_dims={ints(offset)}, collapsed_slice_dims={ints(collapsed)}, start_index_map={ints(starts)}"
        f", operand_batching_dims={ints(batching)}, start_indices_batching_dims={ints(places)}"
        f", index_vector_dim={vector}, slice_sizes={ints(_bent(draw, sizes))}"
    )
    return Operation((_array(draw, "", dims), _array(draw, "s32", indices)), "gather", attributes)


@st.composite
def scatter(draw: Draw) -> Operation:
    dims, outer = _dims(draw, 1), _dims(draw, 0, 2)
    rank = len(dims)
    dropped = sorted(_numbers(draw, rank))
    batching = [d for d in dropped if d < rank and draw(st.integers(0, 3)) == 0][: len(outer)]
    for k, d in enumerate(batching):
        outer[k] = dims[d]
    kept = [n for d, n in enumerate(dims) if d not in dropped]
    window = sorted(_numbers(draw, len(outer) + len(kept), len(kept)))
    inside, outside = iter(kept), iter(outer)
    updates = [next(inside, 1) if d in window else next(outside, 1) for d in range(len(outer) + len(kept))]
    starts = _numbers(draw, rank)
    count = draw(st.integers(1, 2))
    types = [_type(draw, "f32") for _ in range(count)]
    attributes = (
        f", update_window_dims={ints(window)}, inserted_window_dims={ints(d for d in dropped if d not in batching)}"
        f", scatter_dims_to_operand_dims={ints(starts)}, input_batching_dims={ints(batching)}"
        f", scatter_indices_batching_dims={ints(range(len(batching)))}, index_vector_dim={len(outer)}, to_apply=f"
    )
    operands = [*(_array(draw, t, dims) for t in types), _array(draw, "s32", [*outer, len(starts)])]
    operands += [_array(draw, t, updates) for t in types]
    scalar = [f"{t}[]" for t in types]
    return Operation(tuple(operands), "scatter", attributes, scalars("f", scalar * 2, scalar))


@st.composite
def dot(draw: Draw) -> Operation:
    element = _type(draw)
    batch, contract = _dims(draw, 0, 2), _dims(draw, 0, 2)
    sides = []
    for _ in range(2):
        own = _dims(draw, 0, 2)
        order = draw(st.permutations(range(len(batch) + len(contract) + len(own))))
        sizes = [0] * len(order)
        for place, n in zip(order, [*batch, *contract, *own], strict=True):
            sizes[place] = n
        sides.append((_array(draw, element, sizes), order[: len(batch)], order[len(batch) :][: len(contract)]))
    (left, lb, lc), (right, rb, rc) = sides
    attributes = (
        f", lhs_batch_dims={ints(lb)}, rhs_batch_dims={ints(_bent(draw, rb))}"
        f", lhs_contracting_dims={ints(lc)}, rhs_contracting_dims={ints(_bent(draw, rc))}"
    )
    return Operation((left, right), "dot", attributes)


@st.composite
def ragged_dot(draw: Draw) -> Operation:
    b, m, k, n, g = (draw(st.integers(1, 4)) for _ in range(5))
    ragged = draw(st.integers(0, 2))
    grouped = ragged == 1
    rhs = [g, b, k, n] if grouped else [b, k, n]
    sizes = [[g], [g] if ragged == 0 else [b, g]][draw(st.integers(0, 1))]
    one = int(grouped)
    attributes = (
        f", lhs_batch_dims={{0}}, rhs_batch_dims={{{one}}}, lhs_contracting_dims={{2}}"
        f", rhs_contracting_dims={{{one + 1}}}, lhs_ragged_dims={ints(_bent(draw, [ragged]))}"
        f", rhs_group_dims={ints(_bent(draw, [0]) if grouped else _bent(draw, []))}"
    )
    return Operation((_array(draw, "f32", [b, m, k]), _array(draw, "f32", rhs), _array(draw, "s32", sizes)),
                     "ragged-dot", attributes)  # fmt: skip


def _window(draw: Draw, sizes: list[int]) -> str:
    count = len(sizes)

    def field(key: str, low: int, high: int) -> str:
        return f" {key}=" + "x".join(str(draw(st.integers(low, high))) for _ in range(count))

    if not count:
        return "{}"
    pads = " pad=" + "x".join(f"{draw(st.integers(-2, 2))}_{draw(st.integers(-2, 2))}" for _ in range(count))
    size = "size=" + "x".join(map(str, sizes))
    return "{" + size + field("stride", 1, 2) + pads + field("lhs_dilate", 1, 2) + field("rhs_dilate", 1, 2) + "}"


@st.composite
def convolution(draw: Draw) -> Operation:
    spatial = draw(st.integers(0, 2))
    groups, batch_groups = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2))))
    features, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 2)) * groups * batch_groups
    kernel = [draw(st.sampled_from((1, 2, 3, 1, 2, 3, 0))) for _ in range(spatial)]
    batch = draw(st.integers(1, 2)) * batch_groups
    lhs = [batch, *(draw(st.integers(0, 5)) for _ in range(spatial)), features * groups]
    digits = "".join(map(str, range(spatial)))
    attributes = (
        f", window={_window(draw, _bent(draw, kernel))}, dim_labels=b{digits}f_{digits}io->b{digits}f"
        f", feature_group_count={groups}, batch_group_count={batch_groups}"
    )
    operands = (_array(draw, "f32", lhs), _array(draw, "f32", [*kernel, features, outputs]))
    return Operation(operands, "convolution", attributes)


@st.composite
def reduce(draw: Draw) -> Operation:
    count, dims = draw(st.integers(1, 2)), _dims(draw)
    types = [_type(draw, "f32") for _ in range(count)]
    operands = [*(_array(draw, t, dims) for t in types), *(_array(draw, t, []) for t in types)]
    inner = [f"{_type(draw, t)}[]" for t in types]
    attributes = f", dimensions={ints(_numbers(draw, len(dims)))}, to_apply=f"
    return Operation(tuple(operands), "reduce", attributes, scalars("f", inner * 2, inner))


@st.composite
def reduce_window(draw: Draw) -> Operation:
    """Of one array: XLA's parser infers no variadic one."""
    element, dims = _type(draw, "f32"), _dims(draw, 1)
    inner = f"{_type(draw, element)}[]"
    window = _window(draw, _bent(draw, [draw(st.integers(1, 3)) for _ in dims]))
    operands = (_array(draw, element, dims), _array(draw, element, []))
    return Operation(operands, "reduce-window", f", window={window}, to_apply=f", scalars("f", [inner] * 2, [inner]))


@st.composite
def select_and_scatter(draw: Draw) -> Operation:
    n, size, stride = draw(st.integers(2, 6)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    operands = (_array(draw, "f32", [n]), _array(draw, "f32", [(n - size) // stride + 1]), _array(draw, "f32", []))
    attributes = f", window={{size={size} stride={stride}}}, select=g, scatter=f"
    calls = scalars("f", ["f32[]"] * 2, [f"{_type(draw, 'f32')}[]"])
    return Operation(operands, "select-and-scatter", attributes, calls + "\n" + scalars("g", ["f32[]"] * 2, ["pred[]"]))


@st.composite
def map_(draw: Draw) -> Operation:
    element, dims = _type(draw), _dims(draw)
    operands = tuple(_array(draw, element, dims) for _ in range(draw(st.integers(1, 2))))
    rank = max(o.count(",") + ("[]" not in o) for o in operands)
    attributes = f", dimensions={ints(range(rank))}, to_apply=f"
    return Operation(operands, "map", attributes, scalars("f", [f"{element}[]"] * len(operands), [f"{_type(draw)}[]"]))


@st.composite
def sort(draw: Draw) -> Operation:
    dims = _dims(draw, 1)
    types = [_type(draw, "f32") for _ in range(draw(st.integers(1, 3)))]
    inner = [f"{t}[]" for t in types for _ in range(2)]
    attributes = f", dimensions={ints([draw(st.integers(0, len(dims) - 1))])}, to_apply=f"
    operands = tuple(_shape(t, _bent(draw, dims)) for t in types)
    return Operation(operands, "sort", attributes, scalars("f", inner, ["pred[]"]))


@st.composite
def topk(draw: Draw) -> Operation:
    k = draw(st.integers(0, 4))
    return Operation((_array(draw, "f32", _dims(draw, 1)),), "topk", f", k={k}, largest=true")


@st.composite
def fft(draw: Draw) -> Operation:
    kind = draw(st.sampled_from("FFT IFFT RFFT IRFFT".split()))
    dims = _dims(draw, 1)
    lengths = dims[len(dims) - draw(st.integers(1, len(dims))) :]
    if kind == "IRFFT":
        dims = [*dims[:-1], lengths[-1] // 2 + 1]
    element = "f32" if kind == "RFFT" else "c64"
    return Operation(
        (_array(draw, element, dims),), "fft", f", fft_type={kind}, fft_length={ints(_bent(draw, lengths))}"
    )


@st.composite
def linalg(draw: Draw) -> Operation:
    batch, n, m = _dims(draw, 0, 1), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    a = _array(draw, "f32", [*batch, n, n])
    if draw(st.booleans()):
        return Operation((a,), "cholesky")
    left = draw(st.booleans())
    b = _array(draw, "f32", [*batch, *((n, m) if left else (m, n))])
    attributes = f", left_side={str(left).lower()}, transpose_a=NO_TRANSPOSE"
    return Operation((a, b), "triangular-solve", attributes)


@st.composite
def batch_norm(draw: Draw) -> Operation:
    dims = _dims(draw, 1)
    at = draw(st.integers(0, len(dims) - 1))
    opcode, vectors = draw(st.sampled_from((("training", 2), ("inference", 4), ("grad", 3))))
    sizes = [_bent(draw, [dims[at]])[:1] for _ in range(vectors)]
    operands = [_array(draw, "f32", dims), *(_shape(_type(draw, "f32"), size) for size in sizes)]
    if opcode == "grad":
        operands.append(_array(draw, "f32", dims))
    return Operation(tuple(operands), f"batch-norm-{opcode}", f", epsilon=0.1, feature_index={at}")


@st.composite
def control(draw: Draw) -> Operation:
    state = _shape("f32", _dims(draw))
    other = _shape("f32", _dims(draw)) if draw(st.integers(0, 3)) == 0 else state
    given = _shape("f32", _dims(draw)) if draw(st.integers(0, 5)) == 0 else state
    same = f"f {{\n p0 = {state} parameter(0)\n ROOT r = {state} negate(p0)\n}}\n"
    second = f"g {{\n p0 = {other} parameter(0)\n ROOT r = {other} negate(p0)\n}}\n"
    test = f"c {{\n p0 = {state} parameter(0)\n ROOT r = {_type(draw, 'pred')}[] parameter(1)\n}}\n"
    good = f"c {{\n p0 = {state} parameter(0)\n ROOT r = pred[] constant(true)\n}}\n"
    match draw(st.sampled_from(("while", "conditional", "branches", "call"))):
        case "while":
            condition = test if draw(st.integers(0, 5)) == 0 else good
            return Operation((given,), "while", ", condition=c, body=g", same + second + condition)
        case "conditional":
            attributes = ", true_computation=f, false_computation=g"
            return Operation((f"{_type(draw, 'pred')}[]", given, other), "conditional", attributes, same + second)
        case "branches":
            attributes = ", branch_computations={f, g, f}"
            operands = (f"{_type(draw, 's32')}[]", given, other, state)
            return Operation(operands, "conditional", attributes, same + second)
        case _:
            return Operation((given,), "call", ", to_apply=f", same)


@st.composite
def scan(draw: Draw) -> Operation:
    """Right ones: XLA's parser does not look at the computation's parameters."""
    n, dims = draw(st.integers(1, 4)), _dims(draw, 0, 2)
    at = draw(st.integers(0, len(dims)))
    inputs, carries, outputs = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    part, whole = _shape("f32", dims), _shape("f32", [*dims[:at], n, *dims[at:]])
    results = [part] * (outputs + carries)
    lines = [f"  p{k} = {part} parameter({k})" for k in range(inputs + carries)]
    lines.append(f"  ROOT t = ({', '.join(results)}) tuple({', '.join(['p0'] * len(results))})")
    attributes = f", dimensions={{{at}}}, num_carries={carries}, to_apply=f"
    operands = (whole,) * inputs + (part,) * carries
    return Operation(operands, "scan", attributes, "\n".join(["f {", *lines, "}"]))


OPERATIONS: dict[str, Callable[[], st.SearchStrategy[Operation]]] = {
    "unary": unary,
    "binary": binary,
    "compare": compare,
    "ternary": ternary,
    "transpose": transpose,
    "concatenate": concatenate,
    "pad": pad,
    "reverse": reverse,
    "dimension size": dimension_size,
    "gather": gather,
    "scatter": scatter,
    "dot": dot,
    "ragged-dot": ragged_dot,
    "convolution": convolution,
    "reduce": reduce,
    "reduce-window": reduce_window,
    "select-and-scatter": select_and_scatter,
    "map": map_,
    "sort": sort,
    "topk": topk,
    "fft": fft,
    "linalg": linalg,
    "batch-norm": batch_norm,
    "control": control,
    "scan": scan,
}
"""Random operations of each sort whose shape XLA's parser infers."""
