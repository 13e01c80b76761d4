"""Random numbers: distributions, and generators of bits."""

import math

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.seeds.run import constant, results

COUNT = 20_000
# Bounds on means are six standard deviations: a test fails by chance once in half a billion.
SIGMAS = 6


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_normal_distribution(element: str) -> None:
    b = sl.XlaBuilder("normal")
    root = b.RngNormal(b.ConstantR0(3.0, element), b.ConstantR0(2.0, element), sl.make_shape(element, [COUNT]))
    (found,) = results(b, root, xla=False)
    values = found.astype(np.float64)
    assert abs(values.mean() - 3.0) < SIGMAS * 2.0 / math.sqrt(COUNT)
    assert abs(values.std() - 2.0) < SIGMAS * 2.0 / math.sqrt(2 * COUNT)
    for z in (-1.5, -0.5, 0.5, 1.5):  # the distribution function
        share = np.mean(values < 3.0 + 2.0 * z)
        expected = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        assert abs(share - expected) < SIGMAS * 0.5 / math.sqrt(COUNT) + 0.01 * (element == "bf16")


@pytest.mark.parametrize(("element", "low", "high"), [
    ("f32", -1.0, 3.0), ("f64", 0.0, 1.0), ("f16", 0.0, 2.0), ("bf16", 0.0, 2.0),
    ("s32", -3, 5), ("u32", 2, 10), ("s64", -3, 5), ("u64", 2, 10),
])  # fmt: skip
def test_uniform_distribution(element: str, low: float, high: float) -> None:
    """At least a, and less than b (the oldest seed's interval includes b)."""
    b = sl.XlaBuilder("uniform")
    root = b.RngUniform(b.ConstantR0(low, element), b.ConstantR0(high, element), sl.make_shape(element, [COUNT]))
    (found,) = results(b, root, xla=False)
    values = found.astype(np.float64)
    assert found.dtype == sl.make_shape(element).dtype.stored
    assert values.min() >= low
    assert values.max() < high
    whole = element[0] in "su"
    width = high - low
    assert abs(values.mean() - (low + high - whole) / 2) < SIGMAS * width / math.sqrt(12 * COUNT) + 0.01 * (
        element == "bf16"
    )
    counts = np.histogram(values, bins=4, range=(low, high))[0]
    assert np.abs(counts / COUNT - 0.25).max() < SIGMAS * 0.5 / math.sqrt(COUNT) + 0.01 * (element == "bf16")


def test_bernoulli_distribution() -> None:
    b = sl.XlaBuilder("bernoulli")
    (found,) = results(b, b.RngBernoulli(b.ConstantR0(0.25), sl.make_shape("u32", [COUNT])), xla=False)
    assert found.dtype == np.uint32
    assert set(found.tolist()) == {0, 1}
    assert abs(found.mean() - 0.25) < SIGMAS * 0.5 / math.sqrt(COUNT)


def test_parameters_are_scalars_of_the_results_type() -> None:
    for a, shape in (([0.0, 0.0], "f32[4]"), (0.0, "s32[4]")):
        b = sl.XlaBuilder("uniform")
        b.RngUniform(constant(b, a), constant(b, 1.0), sl.Shape.parse(shape))
        with pytest.raises(HloError):
            b.Build()


@pytest.mark.parametrize(("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 2)])
def test_bit_generators_are_functions_of_their_state(algorithm: str, words: int) -> None:
    """Threefry's state is u64[2], Philox's u64[3]; both and the new state are XLA's, bit by bit."""
    bits, states = [], []
    for seed in (1, 1, 2):
        b = sl.XlaBuilder("bits")
        state = constant(b, np.arange(seed, seed + words, dtype=np.uint64), "u64")
        root = b.RngBitGenerator(algorithm, state, sl.make_shape("u32", [1000]))
        after, data = results(b, root, xla=algorithm != "rng_default")
        assert after.shape == (words,)
        assert after.dtype == np.uint64
        assert data.dtype == np.uint32
        bits.append(data)
        states.append(after)
    np.testing.assert_array_equal(bits[0], bits[1])
    np.testing.assert_array_equal(states[0], states[1])
    assert np.mean(bits[0] == bits[2]) < 0.01
    ones = np.bitwise_count(bits[0]).sum() / (32 * 1000)
    assert abs(ones - 0.5) < SIGMAS * 0.5 / math.sqrt(32 * 1000)
