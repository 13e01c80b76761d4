"""Random bits, bit for bit as XLA's, and the distributions of `rng`."""

from math import erf

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from tests.compiler.hlo.compare import Array, assert_matches_xla
from tests.examples import THOROUGH, with_slow

pytest.importorskip("jax")

STATES = [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 2), ("rng_default", 3)]


@pytest.mark.parametrize(
    ("algorithm", "words"),
    with_slow(STATES, {("rng_default", 3)}),
)
def test_bits_of_every_width(algorithm: str, words: int) -> None:
    """Also across a carry out of the counter's low word, for odd numbers of elements, and for scalars."""
    for dims in ("3,5", "4,3", "7", "") if THOROUGH else ("3,5", "4,3", ""):
        lines, names, shapes = [f"s = u64[{words}] parameter(0)"], [], []
        for name in ("u2", "u4", "u8", "u16", "u32", "u64"):
            lines.append(f"g{name} = (u64[{words}], {name}[{dims}]) rng-bit-generator(s), algorithm={algorithm}")
            for index, shape in enumerate((f"u64[{words}]", f"{name}[{dims}]")):
                lines.append(f"e{name}{index} = {shape} get-tuple-element(g{name}), index={index}")
                names.append(f"e{name}{index}")
                shapes.append(shape)
        lines.append(f"ROOT t = ({', '.join(shapes)}) tuple({', '.join(names)})")
        state = np.array([2**64 - 3, 2**64 - 2, 7][:words], np.uint64)
        assert_matches_xla("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}", state)


BITS = """HloModule m
ENTRY e {
  s = u64[WORDS] parameter(0)
  ROOT r = (u64[WORDS], TYPE[9]) rng-bit-generator(s), algorithm=rng_three_fry
}"""


@pytest.mark.parametrize("name", ["s8", "s32", "bf16", "f32", "f64", "f8e5m2"])
def test_other_types_have_the_bits_of_the_unsigned_one(name: str) -> None:
    width = ELEMENT_TYPES[name].bits
    text = BITS.replace("WORDS", "2").replace("rng_three_fry", "rng_philox")
    state = np.array([1, 2], np.uint64)
    ours, bits = (evaluate(parse_hlo(text.replace("TYPE", t)), state) for t in (name, f"u{width}"))
    np.testing.assert_array_equal(ours[0], bits[0])
    np.testing.assert_array_equal(ours[1].view(f"u{width // 8}"), bits[1])


def test_states_and_types_without_bits_are_refused() -> None:
    with pytest.raises(HloError, match="has no 'rng_three_fry' with a state of 3 uint64"):
        evaluate(parse_hlo(BITS.replace("WORDS", "3").replace("TYPE", "u32")), np.zeros(3, np.uint64))
    with pytest.raises(HloError, match="gives integers or the bits of floats, not c64"):
        evaluate(parse_hlo(BITS.replace("WORDS", "2").replace("TYPE", "c64")), np.zeros(2, np.uint64))


RNG = """HloModule m
ENTRY e {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  x = {t}[{n}] rng(a, b), distribution=rng_{d}
  y = {t}[{n}] rng(a, b), distribution=rng_{d}
  ROOT r = ({t}[{n}], {t}[{n}]) tuple(x, y)
}}"""


def draw(name: str, distribution: str, first: float, second: float, n: int = 20000) -> Array:
    """Two instructions' numbers, which have to differ, in f64."""
    stored = ELEMENT_TYPES[name].stored
    text = RNG.format(t=name, d=distribution, n=n)
    x, y = evaluate(parse_hlo(text), np.array(first).astype(stored), np.array(second).astype(stored))
    assert x.dtype == stored
    assert (x != y).any()
    assert abs(np.corrcoef(x.astype(np.float64), y.astype(np.float64))[0, 1]) < 0.05
    return np.concatenate([x, y]).astype(np.float64)


def distance(x: Array, cumulative: Array) -> float:
    """Kolmogorov and Smirnov's, of sorted numbers and the distribution's values there."""
    steps = np.arange(len(x) + 1) / len(x)
    return float(max(np.max(np.abs(steps[1:] - cumulative)), np.max(np.abs(steps[:-1] - cumulative))))


@pytest.mark.parametrize(("name", "low", "high"), [("f32", -2, 5), ("f64", 0, 1), ("bf16", 0, 1), ("f16", 1, 3)])
def test_uniform_floats(name: str, low: float, high: float) -> None:
    x = np.sort(draw(name, "uniform", low, high))
    assert low <= x[0] <= x[-1] < high
    coarse = {"bf16": 2**-8, "f16": 2**-11}.get(name, 0.0)
    assert distance(x, (x - low) / (high - low)) < 0.012 + coarse


@pytest.mark.parametrize(("name", "low", "high"), [("s32", -5, 7), ("u8", 0, 200), ("s4", -8, 7), ("s64", -(2**40), 9)])
def test_uniform_integers(name: str, low: int, high: int) -> None:
    x = draw(name, "uniform", low, high)
    assert low <= x.min() <= x.max() < high
    bins = np.histogram(x, bins=min(high - low, 10), range=(low, high))[0] if (high - low) % 10 == 0 else None
    assert abs(x.mean() - (low + high - 1) / 2) < 0.02 * (high - low)
    assert abs(x.std() - (high - low) / 12**0.5) < 0.02 * (high - low)
    assert bins is None or abs(bins - len(x) / len(bins)).max() < 5 * (len(x) / len(bins)) ** 0.5


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16"])
def test_normal_floats(name: str) -> None:
    x = np.sort(draw(name, "normal", 3, 2))
    cumulative = np.array([(1 + erf((v - 3) / 2 / 2**0.5)) / 2 for v in x])
    assert distance(x, cumulative) < 0.012 + {"bf16": 2**-7, "f16": 2**-10}.get(name, 0.0)


def test_an_instruction_goes_on_where_it_stopped_and_runs_repeat() -> None:
    text = """HloModule m
cond { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) a = f32[] constant(0) b = f32[] constant(1) r = f32[4] rng(a, b), distribution=rng_uniform
  old = f32[4] get-tuple-element(s), index=1 d = f32[4] subtract(r, old) ROOT t = (s32[], f32[4]) tuple(j, d) }
ENTRY e { i = s32[] constant(0) z = f32[] constant(0) x = f32[4] broadcast(z), dimensions={}
  t = (s32[], f32[4]) tuple(i, x)
  ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body }"""
    _, first = evaluate(parse_hlo(text))
    _, again = evaluate(parse_hlo(text))
    assert (first != 0).all()
    np.testing.assert_array_equal(first, again)


def test_there_is_no_normal_distribution_of_integers() -> None:
    with pytest.raises(HloError, match=r"rng 'x' \(s32\[8\]\): there is no rng_normal of s32"):
        draw("s32", "normal", 0, 1, 8)
