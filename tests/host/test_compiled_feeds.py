"""Infeed and outfeed of compiled modules, compared with the evaluator; the training step of the corpus, with XLA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.driver import compile_tile
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Literal
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import ELEMENT_TYPES, dtype
from systolith.runtime.arrays import Array, random_array
from tests.corpus.load import Case
from tests.examples import examples
from tests.host.modules import ECHO, check, ran

TINY = load_chip("tiny")


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny")


def arrays(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return tuple(rng.standard_normal(s).astype(np.float32) for s in shapes)


def test_parts_of_tuples_come_and_go_in_order(client: sl.Client) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    results, out = ran(client, ECHO, [(x, np.array([1, -2, 3], np.int32))])
    assert results == []
    assert [a.dtype for a in out] == [np.int32, np.float32]
    assert (out[0] == [1, -2, 3]).all()
    assert (out[1] == -x).all()


def test_the_training_step_of_the_corpus_is_what_xla_computes(client: sl.Client, corpus: Callable[[str], Case]) -> None:
    """XLA's CPU backend has no infeed in JAX: the same steps as a scan over all items."""
    jax = pytest.importorskip("jax")
    xs, ys, (w,) = arrays(*[(8, 16)] * 8), arrays(*[(8, 4)] * 8), arrays((16, 4))
    (got,), out = ran(client, corpus("infeed_outfeed_from_stablehlo").text, list(zip(xs, ys, strict=True)), w)

    def step(w: Array, item: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = item
        error = jax.numpy.dot(x, w, precision="highest") - y
        return w - 0.01 * jax.numpy.dot(x.T, error, precision="highest"), error

    want, errors = jax.lax.scan(step, w, (np.stack(xs), np.stack(ys)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out, errors, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type(client: sl.Client, name: str) -> None:
    text = f"""HloModule echo
    ENTRY main {{
     k = token[] after-all()
     i = ({name}[3,5], token[]) infeed(k)
     x = {name}[3,5] get-tuple-element(i), index=0
     t = token[] get-tuple-element(i), index=1
     o = token[] outfeed(x, t), outfeed_shape={name}[3,5]
     ROOT r = {name}[5,3] transpose(x), dimensions={{1,0}}
    }}"""
    x = random_array(np.random.default_rng(1), dtype(name), (3, 5))
    (turned,), (same,) = ran(client, text, [x])
    assert same.dtype == x.dtype
    assert same.tobytes() == x.tobytes()
    assert turned.tobytes() == np.ascontiguousarray(x.T).tobytes()


@pytest.mark.parametrize("name", ["c64", "c128", "s64", "f64"])
def test_sums_of_wide_types_in_loops(client: sl.Client, name: str) -> None:
    text = f"""HloModule wide
    body {{
     p = (s32[], {name}[2,3], token[]) parameter(0)
     n = s32[] get-tuple-element(p), index=0
     x = {name}[2,3] get-tuple-element(p), index=1
     k = token[] get-tuple-element(p), index=2
     i = (({name}[2,3], {name}[]), token[]) infeed(k)
     d = ({name}[2,3], {name}[]) get-tuple-element(i), index=0
     a = {name}[2,3] get-tuple-element(d), index=0
     s = {name}[] get-tuple-element(d), index=1
     b = {name}[2,3] broadcast(s), dimensions={{}}
     t = token[] get-tuple-element(i), index=1
     y = {name}[2,3] add(x, a)
     z = {name}[2,3] subtract(y, b)
     v = ({name}[]) tuple(s)
     o = ({name}[2,3], ({name}[])) tuple(z, v)
     u = token[] outfeed(o, t), outfeed_shape=({name}[2,3], ({name}[]))
     one = s32[] constant(1)
     m = s32[] add(n, one)
     ROOT r = (s32[], {name}[2,3], token[]) tuple(m, z, u)
    }}
    more {{
     p = (s32[], {name}[2,3], token[]) parameter(0)
     n = s32[] get-tuple-element(p), index=0
     three = s32[] constant(3)
     ROOT c = pred[] compare(n, three), direction=LT
    }}
    ENTRY main {{
     x = {name}[2,3] parameter(0)
     k = token[] after-all()
     zero = s32[] constant(0)
     s = (s32[], {name}[2,3], token[]) tuple(zero, x, k)
     w = (s32[], {name}[2,3], token[]) while(s), condition=more, body=body
     ROOT y = {name}[2,3] get-tuple-element(w), index=1
    }}"""
    rng, stored = np.random.default_rng(3), dtype(name).stored
    items: list[Literal] = [tuple(rng.integers(-9, 9, s).astype(stored) for s in ((2, 3), ())) for _ in range(3)]
    check(client, text, items, rng.integers(-9, 9, (2, 3)).astype(stored))


LARGE = """HloModule large
ENTRY main {
 k = token[] after-all()
 i = (f32[300,400], token[]) infeed(k)
 x = f32[300,400] get-tuple-element(i), index=0
 t = token[] get-tuple-element(i), index=1
 n = f32[300,400] negate(x)
 o = token[] outfeed(n, t), outfeed_shape=f32[300,400]
 ROOT s = f32[300,400] add(x, n)
}
"""


def test_arrays_larger_than_vmem_go_in_pieces(client: sl.Client) -> None:
    (x,) = arrays((300, 400))
    assert x.nbytes > TINY.vmem.bytes
    (zero,), (out,) = ran(client, LARGE, [x])
    assert not zero.any()
    assert (out == -x).all()


def test_an_array_that_nothing_uses_is_taken(client: sl.Client) -> None:
    text = """HloModule unused
    ENTRY main {
     k = token[] after-all()
     i = ((f32[8], f32[0,3], f32[2]), token[]) infeed(k)
     t = token[] get-tuple-element(i), index=1
     j = (f32[2], token[]) infeed(t)
     ROOT x = f32[2] get-tuple-element(j), index=0
    }"""
    a, b, c = arrays((8,), (2,), (2,))
    (x,), _ = ran(client, text, [(a, b), c])
    assert (x == c).all()


def test_infeeds_of_one_operand_are_not_merged(client: sl.Client) -> None:
    text = """HloModule twice
    ENTRY main {
     k = token[] after-all()
     i = (f32[4], token[]) infeed(k), infeed_config="same"
     j = (f32[4], token[]) infeed(k), infeed_config="same"
     x = f32[4] get-tuple-element(i), index=0
     y = f32[4] get-tuple-element(j), index=0
     ROOT d = f32[4] subtract(x, y)
    }"""
    a, b = arrays((4,), (4,))[0], np.ones(4, np.float32)
    check(client, text, [a, b])


def test_stages_read_back_to_the_same_binary() -> None:
    compiled = sl.Client(chip="tiny").compile(LARGE).compiled
    assert compiled is not None
    binary = to_bytes(compiled.program)
    assert to_bytes(compile_tile(parse_tile_ir(compiled.stages["tile.txt"]), TINY).program) == binary
    assert to_bytes(assemble(disassemble(compiled.program), TINY)) == binary
    assert from_bytes(binary) == compiled.program


def test_too_much_for_hbm_is_refused_in_the_order_of_the_text() -> None:
    with pytest.raises(CompileError, match=r"bytes of HBM .*; infeeds and outfeeds keep its order; most take"):
        sl.Client(chip=sl.chip("tiny", {"hbm.bytes": 2**16, "vmem.bytes": 2**14})).compile(LARGE.replace("300", "30"))


def test_a_chip_without_queues_is_refused() -> None:
    chip: Chip = replace(TINY, host=replace(TINY.host, queues=0))
    with pytest.raises(CompileError, match=r"infeed 'i' .*chip 'tiny' has no host queues"):
        sl.Client(chip=chip).compile(ECHO)


@dataclass
class Writer:
    """Writes a random module: sums of what comes in, put out again, in loops and branches.

    Attributes:
        choose: a number below a bound.
        items: the infeed's values, as far as they depend on the text alone.
        computations: finished ones.
    """

    choose: Callable[[int], int]
    threaded: bool
    computations: list[str] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def statements(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        lines: list[str] = []
        for _ in range(1 + self.choose(3)):
            made, x, token = self.statement(x, token, depth)
            lines += made
        return lines, x, token

    def statement(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        kinds = [self.infeed, self.infeed, self.outfeed, self.compute, *[self.loop, self.branch][: 2 * (depth < 2)]]
        return kinds[self.choose(len(kinds))](x, token, depth)

    def token(self, token: str) -> tuple[list[str], str]:
        if self.threaded:
            return [], token
        name = self.name()
        return [f"{name} = token[] after-all()"], name

    def infeed(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        before, token = self.token(token)
        i, d, y, s, b, t, h = (self.name() for _ in range(7))
        lines = [
            *before,
            f"{i} = ((f32[3,5], f32[]), token[]) infeed({token})",
            f"{d} = (f32[3,5], f32[]) get-tuple-element({i}), index=0",
            f"{y} = f32[3,5] get-tuple-element({d}), index=0",
            f"{s} = f32[] get-tuple-element({d}), index=1",
            f"{b} = f32[3,5] broadcast({s}), dimensions={{}}",
            f"{t} = token[] get-tuple-element({i}), index=1",
            f"{h} = f32[3,5] multiply({x}, {b})",
        ]
        z = self.name()
        return [*lines, f"{z} = f32[3,5] add({h}, {y})"], z, t

    def outfeed(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        before, token = self.token(token)
        t = self.name()
        return [*before, f"{t} = token[] outfeed({x}, {token}), outfeed_shape=f32[3,5]"], x, t

    def compute(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        r, n, z = (self.name() for _ in range(3))
        return (
            [
                f"{r} = f32[3,5] reverse({x}), dimensions={{1}}",
                f"{n} = f32[3,5] negate({r})",
                f"{z} = f32[3,5] maximum({x}, {n})",
            ],
            z,
            token,
        )

    def loop(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        """Those of eight turns and more overlap, if there is nothing but operations in them."""
        shape = "(s32[], f32[3,5], token[])"
        turns = (0, 1, 2, 3) if depth else (0, 2, 3, 8, 9)
        p, c, y, t, one, more, root, limit, q, n, less = (self.name() for _ in range(11))
        lines, made, after = self.statements(y, t, depth + 1)
        body, condition = self.name(), self.name()
        self.computations += [
            f"{body} {{\n {p} = {shape} parameter(0)\n {c} = s32[] get-tuple-element({p}), index=0\n"
            f" {y} = f32[3,5] get-tuple-element({p}), index=1\n {t} = token[] get-tuple-element({p}), index=2\n "
            + "\n ".join(lines)
            + f"\n {one} = s32[] constant(1)\n {more} = s32[] add({c}, {one})\n"
            f" ROOT {root} = {shape} tuple({more}, {made}, {after})\n}}\n",
            f"{condition} {{\n {q} = {shape} parameter(0)\n {n} = s32[] get-tuple-element({q}), index=0\n"
            f" {limit} = s32[] constant({turns[self.choose(len(turns))]})\n"
            f" ROOT {less} = pred[] compare({n}, {limit}), direction=LT\n}}\n",
        ]
        zero, start, w, z, u = (self.name() for _ in range(5))
        return (
            [
                f"{zero} = s32[] constant(0)",
                f"{start} = {shape} tuple({zero}, {x}, {token})",
                f"{w} = {shape} while({start}), condition={condition}, body={body}",
                f"{z} = f32[3,5] get-tuple-element({w}), index=1",
                f"{u} = token[] get-tuple-element({w}), index=2",
            ],
            z,
            u,
        )

    def branch(self, x: str, token: str, depth: int) -> tuple[list[str], str, str]:
        """By the sign of an element, which only the run knows."""
        shape = "(f32[3,5], token[])"
        names = []
        for _ in range(2):
            p, y, t, root, name = (self.name() for _ in range(5))
            lines, made, after = self.statements(y, t, depth + 1)
            self.computations.append(
                f"{name} {{\n {p} = {shape} parameter(0)\n {y} = f32[3,5] get-tuple-element({p}), index=0\n"
                f" {t} = token[] get-tuple-element({p}), index=1\n "
                + "\n ".join(lines)
                + f"\n ROOT {root} = {shape} tuple({made}, {after})\n}}\n"
            )
            names.append(name)
        cut, one, zero, sign, given, c, z, u = (self.name() for _ in range(8))
        return (
            [
                f"{cut} = f32[1,1] slice({x}), slice={{[0:1], [0:1]}}",
                f"{one} = f32[] reshape({cut})",
                f"{zero} = f32[] constant(0)",
                f"{sign} = pred[] compare({one}, {zero}), direction=GE",
                f"{given} = {shape} tuple({x}, {token})",
                f"{c} = {shape} conditional({sign}, {given}, {given}), true_computation={names[0]},"
                f" false_computation={names[1]}",
                f"{z} = f32[3,5] get-tuple-element({c}), index=0",
                f"{u} = token[] get-tuple-element({c}), index=1",
            ],
            z,
            u,
        )

    def module(self) -> str:
        lines, x, _ = self.statements("x", "k", 0)
        start = " x = f32[3,5] parameter(0)\n k = token[] after-all()\n "
        entry = f"ENTRY main {{\n{start}" + "\n ".join(lines) + f"\n ROOT result = f32[3,5] negate({x})\n}}\n"
        return "HloModule random\n" + "".join(self.computations) + entry


@examples(6, 12)
@given(st.data())
def test_order_is_kept_in_random_loops_and_branches(client: sl.Client, data: st.DataObject) -> None:
    text = Writer(lambda n: data.draw(st.integers(0, n - 1)), data.draw(st.booleans())).module()
    rng = np.random.default_rng(7)
    halves = [np.asarray(s, np.float32) for s in rng.choice([0.5, -0.5, -1, 0.25], 400)]
    items: list[Literal] = [(rng.integers(-64, 64, (3, 5)).astype(np.float32), s) for s in halves]
    check(client, text, items, rng.integers(-64, 64, (3, 5)).astype(np.float32))
