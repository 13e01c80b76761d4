"""Dot, DotGeneral, convolutions, and operations on matrices: Cholesky, triangular solve, FFT."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.examples import examples
from tests.seeds.run import Array, check, constant, results


def _numbers(*sizes: int) -> Array:
    return (np.arange(np.prod(sizes, dtype=int)) % 7 - 3).reshape(sizes).astype(np.float32)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        pytest.param((), (), (), id="scalars"),
        pytest.param((4,), (4,), (), id="vectors"),
        pytest.param((3, 4), (4,), (3,), id="matrix-vector"),
        pytest.param((3, 4), (4, 5), (3, 5), id="matrices"),
        pytest.param((2, 3, 4), (5, 4, 6), (2, 3, 5, 6), id="arrays"),
    ],
)
def test_dot_by_rank(left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]) -> None:
    """The oldest seed's table, whose last row contracts the last dimension with the one before the last, as numpy."""
    x, y = _numbers(*left), _numbers(*right)
    b = sl.XlaBuilder("dot")
    (found,) = results(b, b.Dot(constant(b, x), constant(b, y)))
    assert found.shape == result
    np.testing.assert_array_equal(found, np.dot(x, y))


@pytest.mark.parametrize(("left", "right"), [((4,), (5,)), ((3, 4), (3, 4)), ((3, 4), (3,))])
def test_dot_needs_equal_contracted_dimensions(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    b = sl.XlaBuilder("dot")
    b.Dot(constant(b, _numbers(*left)), constant(b, _numbers(*right)))
    with pytest.raises(HloError):
        b.Build()


def test_dot_general_with_contracting_dimensions() -> None:
    numbers = sl.DotDimensionNumbers()
    numbers.add_lhs_contracting_dimensions(1)
    numbers.add_rhs_contracting_dimensions(1)
    b = sl.XlaBuilder("dot_general")
    lhs, rhs = constant(b, [[1, 2, 3], [4, 5, 6]]), constant(b, [[1, 1, 1], [2, 2, 2]])
    check(b, b.DotGeneral(lhs, rhs, numbers), [[6, 12], [15, 30]])


def test_dot_general_with_batch_dimensions() -> None:
    numbers = sl.DotDimensionNumbers()
    numbers.add_lhs_contracting_dimensions(2)
    numbers.add_rhs_contracting_dimensions(1)
    numbers.add_lhs_batch_dimensions(0)
    numbers.add_rhs_batch_dimensions(0)
    lhs = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    b = sl.XlaBuilder("dot_general")
    check(b, b.DotGeneral(constant(b, lhs), constant(b, [[[1, 0], [0, 1]]] * 2), numbers), lhs)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_dot_general_as_batch_matmul(batch: tuple[int, ...]) -> None:
    x, y = _numbers(*batch, 4, 5), _numbers(*batch, 5, 6)
    rank = len(batch)
    b = sl.XlaBuilder("dot_general")
    numbers = sl.DotDimensionNumbers([rank + 1], [rank], list(range(rank)), list(range(rank)))
    (found,) = results(b, b.DotGeneral(constant(b, x), constant(b, y), numbers))
    assert found.shape == (*batch, 4, 6)
    np.testing.assert_array_equal(found, x @ y)


@given(st.data())
@examples(10, 20)
def test_dot_general_has_batch_then_lhs_then_rhs_dimensions(data: st.DataObject) -> None:
    """Batch and contracting dimensions at any place; batch, then the free dimensions of lhs, then of rhs."""
    sizes = {name: data.draw(st.integers(1, 3)) for name in "abcdefgh"}
    shared = data.draw(st.permutations("ab" + "cd"))
    batch = shared[: data.draw(st.integers(0, 2))]
    contracted = shared[2 : data.draw(st.integers(2, 4))]
    lhs = "".join(data.draw(st.permutations([*batch, *contracted, *data.draw(st.sampled_from(["", "e", "ef"]))])))
    rhs = "".join(data.draw(st.permutations([*batch, *contracted, *data.draw(st.sampled_from(["", "g", "gh"]))])))
    rest = [n for n in lhs + rhs if n not in batch and n not in contracted]
    x, y = _numbers(*(sizes[n] for n in lhs)), _numbers(*(sizes[n] for n in rhs))
    b = sl.XlaBuilder("dot_general")
    numbers = sl.DotDimensionNumbers(
        [lhs.index(n) for n in contracted],
        [rhs.index(n) for n in contracted],
        [lhs.index(n) for n in batch],
        [rhs.index(n) for n in batch],
    )
    found = b.DotGeneral(constant(b, x), constant(b, y), numbers)
    check(b, found, np.einsum(f"{lhs},{rhs}->{''.join([*batch, *rest])}", x, y))


def _convolution(
    x: Array, kernel: Array, strides: tuple[int, int], low: tuple[int, int], out: tuple[int, ...]
) -> Array:
    """The loop of the seeds' pseudo-code; input b z y x, kernel oz iz y x."""
    result = np.zeros(out, np.float64)
    for place in np.ndindex(*out):
        n, oz, oy, ox = place
        for iz, ky, kx in product(*map(range, kernel.shape[1:])):
            iy = oy * strides[0] + ky - low[0]
            ix = ox * strides[1] + kx - low[1]
            if 0 <= iy < x.shape[2] and 0 <= ix < x.shape[3]:
                result[place] += float(x[n, iz, iy, ix]) * float(kernel[oz, iz, ky, kx])
    return result


def _placements(size: int, window: int, stride: int) -> int:
    return max((size - window) // stride + 1, 0) if size >= window else 0


@given(
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.tuples(st.integers(-1, 2), st.integers(-1, 3))] * 2),
)
@examples(7, 15)
def test_convolution_with_padding_and_strides(strides: Any, padding: Any) -> None:
    x, kernel = _numbers(2, 3, 5, 6), _numbers(4, 3, 2, 3)
    b = sl.XlaBuilder("conv")
    found = b.ConvWithGeneralPadding(constant(b, x), constant(b, kernel), strides, padding)
    sizes = [_placements(x.shape[2 + d] + sum(padding[d]), kernel.shape[2 + d], strides[d]) for d in range(2)]
    low = (padding[0][0], padding[1][0])
    expected = _convolution_of_padded(x, kernel, strides, padding, (2, 4, *sizes))
    if min(low) >= 0 and padding[0][1] >= 0 and padding[1][1] >= 0:
        np.testing.assert_array_equal(expected, _convolution(x, kernel, strides, low, (2, 4, *sizes)))
    check(b, found, expected)


def _convolution_of_padded(x: Array, kernel: Array, strides: Any, padding: Any, out: tuple[int, ...]) -> Array:
    """The same on an input into which the zeros are inserted, or from which elements are removed, beforehand."""
    wide = np.pad(x, [(0, 0), (0, 0), *((max(lo, 0), max(hi, 0)) for lo, hi in padding)])
    cut = [slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(padding, wide.shape[2:], strict=True)]
    return _convolution(wide[:, :, cut[0], cut[1]], kernel, strides, (0, 0), out)


def test_convolution_stride_of_3() -> None:
    """Windows lie only where the first spatial index is divisible by 3."""
    x, kernel = _numbers(1, 1, 8, 4), _numbers(1, 1, 2, 2)
    b = sl.XlaBuilder("conv")
    operands = constant(b, x), constant(b, kernel)
    strided, dense = results(
        b,
        b.Tuple([b.Conv(*operands, strides, sl.Padding.VALID) for strides in ([3, 1], [1, 1])]),
    )
    np.testing.assert_array_equal(strided, dense[:, :, ::3])


def test_convolution_padding_of_2_and_3() -> None:
    x, kernel = _numbers(1, 2, 3, 4), _numbers(2, 2, 2, 2)
    b = sl.XlaBuilder("conv")
    padded = constant(b, np.pad(x, [(0, 0), (0, 0), (0, 0), (2, 3)]))
    one, other = results(
        b,
        b.Tuple(
            [
                b.ConvWithGeneralPadding(constant(b, x), constant(b, kernel), [1, 1], [(0, 0), (2, 3)]),
                b.ConvWithGeneralPadding(padded, constant(b, kernel), [1, 1], [(0, 0), (0, 0)]),
            ]
        ),
    )
    assert one.shape == (1, 2, 2, 8)
    np.testing.assert_array_equal(one, other)


def test_convolution_with_five_outputs_is_five_convolutions() -> None:
    x, kernel = _numbers(1, 2, 4, 4), _numbers(5, 2, 3, 3)
    b = sl.XlaBuilder("conv")
    parts = [constant(b, x)]
    parts = [b.Conv(parts[0], constant(b, k), [1, 1], sl.Padding.VALID) for k in (kernel, *kernel[:, None])]
    together, *apart = results(b, b.Tuple(parts))
    assert together.shape == (1, 5, 2, 2)
    np.testing.assert_array_equal(together, np.concatenate(apart, axis=1))


@pytest.mark.parametrize("window", [(1, 1), (2, 3), (3, 4)])
def test_same_padding_keeps_the_shape_and_valid_does_not_pad(window: tuple[int, int]) -> None:
    x, kernel = _numbers(1, 1, 5, 6), _numbers(1, 1, *window)
    b = sl.XlaBuilder("conv")
    operands = constant(b, x), constant(b, kernel)
    same, valid = results(b, b.Tuple([b.Conv(*operands, [1, 1], p) for p in (sl.Padding.SAME, sl.Padding.VALID)]))
    assert same.shape == x.shape
    assert valid.shape == (1, 1, 6 - window[0], 7 - window[1])
    low = [(w - 1) // 2 for w in window]
    inside = same[:, :, low[0] : low[0] + valid.shape[2], low[1] : low[1] + valid.shape[3]]
    np.testing.assert_array_equal(inside, valid)


def _spread(x: Array, factors: tuple[int, int]) -> Array:
    """D - 1 holes between the entries of the two spatial dimensions, filled with zeros."""
    sizes = [(n - 1) * f + 1 for n, f in zip(x.shape[2:], factors, strict=True)]
    wide = np.zeros((*x.shape[:2], *sizes), x.dtype)
    wide[:, :, :: factors[0], :: factors[1]] = x
    return wide


@pytest.mark.parametrize(("lhs", "rhs"), [((2, 1), (1, 1)), ((1, 1), (2, 3)), ((3, 2), (2, 2))])
def test_dilation_places_holes(lhs: tuple[int, int], rhs: tuple[int, int]) -> None:
    x, kernel = _numbers(1, 2, 4, 5), _numbers(3, 2, 2, 2)
    b = sl.XlaBuilder("conv")
    numbers = b.CreateDefaultConvDimensionNumbers()
    dilated = b.ConvGeneralDilated(constant(b, x), constant(b, kernel), [1, 1], [(1, 1), (1, 1)], lhs, rhs, numbers)
    holes = b.ConvWithGeneralPadding(
        constant(b, _spread(x, lhs)), constant(b, _spread(kernel, rhs)), [1, 1], [(1, 1), (1, 1)]
    )
    one, other = results(b, b.Tuple([dilated, holes]))
    np.testing.assert_array_equal(one, other)


def test_feature_groups_are_separate_convolutions() -> None:
    x, kernel = _numbers(2, 6, 4, 4), _numbers(4, 3, 2, 2)
    b = sl.XlaBuilder("conv")
    grouped = b.ConvWithGeneralPadding(
        constant(b, x), constant(b, kernel), [1, 1], [(0, 0), (0, 0)], feature_group_count=2
    )
    parts = [
        b.Conv(constant(b, x[:, 3 * g : 3 * g + 3]), constant(b, kernel[2 * g : 2 * g + 2]), [1, 1], sl.Padding.VALID)
        for g in range(2)
    ]
    one, other = results(b, b.Tuple([grouped, b.ConcatInDim(parts, 1)]))
    np.testing.assert_array_equal(one, other)


def test_depthwise_convolution_reshapes_the_filter() -> None:
    """Filter [height, width, channels, multiplier] becomes [height, width, 1, channels * multiplier]."""
    x, kernel = _numbers(1, 4, 4, 3), _numbers(2, 2, 3, 2)
    expected = np.zeros((1, 3, 3, 6))
    for y, z, c, m in product(range(3), range(3), range(3), range(2)):
        expected[0, y, z, 2 * c + m] = np.sum(x[0, y : y + 2, z : z + 2, c] * kernel[:, :, c, m])
    b = sl.XlaBuilder("depthwise")
    numbers = sl.ConvolutionDimensionNumbers(0, 3, [1, 2], 2, 3, [0, 1], 0, 3, [1, 2])
    check(
        b,
        b.ConvGeneral(
            constant(b, x),
            b.Reshape(constant(b, kernel), [2, 2, 1, 6]),
            [1, 1],
            [(0, 0), (0, 0)],
            numbers,
            feature_group_count=3,
        ),
        expected,
    )


def test_batch_groups_pair_with_output_features() -> None:
    x, kernel = _numbers(4, 3, 4, 4), _numbers(6, 3, 2, 2)
    b = sl.XlaBuilder("conv")
    grouped = b.ConvWithGeneralPadding(
        constant(b, x), constant(b, kernel), [1, 1], [(0, 0), (0, 0)], batch_group_count=2
    )
    parts = [
        b.Conv(constant(b, x[2 * g : 2 * g + 2]), constant(b, kernel[3 * g : 3 * g + 3]), [1, 1], sl.Padding.VALID)
        for g in range(2)
    ]
    one, other = results(b, b.Tuple([grouped, b.ConcatInDim(parts, 1)]))
    assert one.shape == (2, 6, 3, 3)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("element", ["f32", "f64", "c64"])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_factors(element: str, lower: bool) -> None:
    root = _numbers(2, 3, 3) + 1j * _numbers(2, 3, 3).swapaxes(1, 2) * (element == "c64")
    a: Array = root @ root.conj().swapaxes(1, 2) + 9 * np.eye(3)
    a = a if element == "c64" else np.real(a)
    triangle, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    ignored = triangle(a) + 1000 * other(np.ones((3, 3)), 1 if lower else -1)
    b = sl.XlaBuilder("cholesky")
    (found,) = results(b, b.Cholesky(constant(b, ignored, element), lower), xla=False)
    factor = triangle(found)
    product_ = factor @ factor.conj().swapaxes(1, 2) if lower else factor.conj().swapaxes(1, 2) @ factor
    np.testing.assert_allclose(product_, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left_side: bool, lower: bool, unit: bool, transpose: str) -> None:
    triangle = np.tril if lower else np.triu
    a = (_numbers(2, 3, 3) + 1j * _numbers(2, 3, 3).swapaxes(1, 2) + 5 * np.eye(3)).astype(np.complex64)
    c = (_numbers(2, 3, 4) if left_side else _numbers(2, 4, 3)).astype(np.complex64)
    b = sl.XlaBuilder("triangular_solve")
    root = b.TriangularSolve(constant(b, a, "c64"), constant(b, c, "c64"), left_side, lower, unit, transpose)
    (x,) = results(b, root, xla=False)
    read = triangle(a)
    if unit:
        read = triangle(a, -1 if lower else 1) + np.eye(3)
    applied = {"NO_TRANSPOSE": read, "TRANSPOSE": read.swapaxes(1, 2), "ADJOINT": read.conj().swapaxes(1, 2)}[transpose]
    np.testing.assert_allclose(applied @ x if left_side else x @ applied, c, rtol=1e-4, atol=1e-4)


FFT = {
    "FFT": lambda x, n: np.fft.fftn(x, axes=range(-n, 0)),
    "IFFT": lambda x, n: np.fft.ifftn(x, axes=range(-n, 0)),
    "RFFT": lambda x, n: np.fft.rfftn(x, axes=range(-n, 0)),
}


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("length", [[6], [7], [3, 6], [2, 3, 5]])
def test_fft_kinds_and_axes(kind: str, length: list[int]) -> None:
    signal = _numbers(2, *length)
    given_ = {"RFFT": signal, "IRFFT": np.fft.rfftn(signal, axes=range(-len(length), 0))}.get(
        kind, signal + 1j * np.flip(signal)
    )
    b = sl.XlaBuilder("fft")
    operand = constant(b, given_, "f32" if kind == "RFFT" else "c64")
    (found,) = results(b, b.Fft(operand, kind, length), tolerance=1e-5)
    expected = signal if kind == "IRFFT" else FFT[kind](given_, len(length))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_rfft_of_16_and_17_have_one_shape() -> None:
    b = sl.XlaBuilder("fft")
    shapes = [b.GetShape(b.Fft(constant(b, np.zeros(n)), "RFFT", [n])).dims for n in (16, 17)]
    assert shapes == [(9,), (9,)]
    spectrum = constant(b, np.zeros(9), "c64")
    assert [b.GetShape(b.Fft(spectrum, "IRFFT", [n])).dims for n in (16, 17)] == [(16,), (17,)]


def test_fft_of_two_axes_is_a_cascade() -> None:
    """Real to complex on the innermost axis first, then complex to complex on the other."""
    signal = _numbers(4, 6)
    b = sl.XlaBuilder("fft")
    inner = b.Fft(constant(b, signal), "RFFT", [6])
    outer = b.Transpose(b.Fft(b.Transpose(inner, [1, 0]), "FFT", [4]), [1, 0])
    both, cascade = results(b, b.Tuple([b.Fft(constant(b, signal), "RFFT", [4, 6]), outer]), tolerance=1e-5)
    np.testing.assert_allclose(both, cascade, rtol=1e-5, atol=1e-4)
