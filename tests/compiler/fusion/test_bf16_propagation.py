"""bf16 propagation: the same products, half of the transfers."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.groups import bf16_propagation
from systolith.compiler.groups.bf16_propagation import PropagateBf16, RoundResiduals
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import BF16
from systolith.isa.program import Program
from systolith.sim.simulate import simulate
from tests.compiler.machine import TINY, Array, run, with_vmem
from tests.examples import examples
from tests.runtime.command import systolith

SUM = """
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
"""


def backward(rows: int, k: int, n: int, more: str = "", results: str = "dw, dx", precision: str = "") -> str:
    """The gradients of weights and of their operand, of d = g v * h."""
    shapes = {"dw": f"f32[{n},{k}]", "dx": f"f32[{rows},{k}]", "d": f"f32[{rows},{n}]", "db": f"f32[{n}]"}
    says = f", operand_precision={{{precision},{precision}}}" if precision else ""
    return f"""HloModule m
{SUM}
ENTRY e {{
 g = f32[{rows},{k}] parameter(0)
 v = f32[{k},{n}] parameter(1)
 h = f32[{rows},{n}] parameter(2)
 x = f32[{rows},{k}] parameter(3)
 w = f32[{n},{k}] parameter(4)
 zero = f32[] constant(0)
 p = f32[{rows},{n}] dot(g, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 d = f32[{rows},{n}] multiply(p, h)
 t = f32[{n},{rows}] transpose(d), dimensions={{1,0}}
 dw = f32[{n},{k}] dot(t, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{says}
 dx = f32[{rows},{k}] dot(d, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{says}
{more}
 ROOT r = ({", ".join(shapes[r] for r in results.split(", "))}) tuple({results})
}}
"""


BIAS = " db = f32[N] reduce(d, zero), dimensions={0}, to_apply=add"


def propagated(text: str, chip: Chip = TINY, precision: str | None = None) -> tuple[Module, list[str]]:
    """The module, and what is bf16 in it."""
    made = canonicalise(parse_hlo(text))
    run_pass(made, PropagateBf16(chip, precision))
    return made, [i.name for i in made.entry.instructions if i.shape.is_array and i.shape.dtype is BF16]


def arguments(rows: int, k: int, n: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(d).astype(np.float32) for d in ((rows, k), (k, n), (rows, n), (rows, k), (n, k))]


def test_what_only_products_read_is_rounded_where_it_is_made() -> None:
    _, found = propagated(backward(64, 8, 64))
    assert found == ["d.bf16", "t"]


def test_what_else_is_read_stays_as_it_is_beside_a_rounded_copy_for_several_products() -> None:
    made, found = propagated(backward(64, 8, 64, BIAS.replace("N", "64"), "dw, dx, db"))
    assert found == ["d.bf16", "t"]
    assert next(i for i in made.entry.instructions if i.opcode == "reduce").operands[0].name == "d"
    _, one = propagated(backward(64, 8, 64, results="dw, d").replace("dot(d, w)", "dot(h, w)"))
    assert one == []


def test_what_rounds_a_value_itself_reads_the_rounded_one() -> None:
    """Nothing is left of a conversion to bf16 beside a product in one pass."""
    text = """HloModule m
ENTRY e {
 a = f32[64,64] parameter(0)
 u = f32[64,64] parameter(1)
 v = bf16[64,64] parameter(2)
 x = f32[64,64] exponential(a)
 t = f32[64,64] transpose(x), dimensions={1,0}
 h = bf16[64,64] convert(t)
 p = f32[64,64] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 q = f32[64,64] dot(x, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = (f32[64,64], f32[64,64]) tuple(p, q)
}
"""
    made, found = propagated(text)
    assert "x.bf16" in found
    assert [i.name for i in made.entry.instructions if i.opcode == "convert"] == ["x.bf16"]
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((64, 64)).astype(d) for d in (np.float32, np.float32, ml_dtypes.bfloat16)]
    for a, b in zip(evaluate(made, *args), evaluate(parse_hlo(text), *args), strict=True):
        assert np.array_equal(a, b)


def heads(gradient: bool) -> str:
    """Scores of two heads of one array, which another product made, maybe with the gradient of both."""
    parts = "\n".join(
        f""" {x}s = f32[32,16] slice(p), slice={{[0:32], [{at}:{at + 16}]}}
 {x}r = f32[32,2,8] reshape({x}s)
 {x} = f32[2,32,8] transpose({x}r), dimensions={{1,0,2}}"""
        for x, at in (("q", 0), ("k", 16))
    )
    back = """
 dq = f32[2,32,8] dot(g, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
 dk = f32[2,32,8] dot(g, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
 ROOT r = (f32[2,32,32], f32[2,32,8], f32[2,32,8]) tuple(s, dq, dk)"""
    return f"""HloModule m
ENTRY e {{
 x = f32[32,32] parameter(0)
 w = f32[32,32] parameter(1)
 g = f32[2,32,32] parameter(2)
 p = f32[32,32] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{parts}
 s = f32[2,32,32] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
  rhs_contracting_dims={{2}}
{back if gradient else " ROOT r = (f32[2,32,32]) tuple(s)"}
}}
"""


def test_heads_of_attention() -> None:
    """One product reads each part in inference, the gradient of the other part, too, in training."""
    chip = with_vmem(TINY, 64 << 10)
    assert propagated(heads(gradient=False), chip)[1] == []
    _, found = propagated(heads(gradient=True), chip)
    assert found[0] == "p.bf16"
    assert {"q", "k"} <= set(found)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(d).astype(np.float32) for d in ((32, 32), (32, 32), (2, 32, 32))]
    now = run(compile_module(parse_hlo(heads(gradient=True)), chip).program, chip, args)
    before = run(without(heads(gradient=True), chip), chip, args)
    assert all(np.allclose(a, b, rtol=1e-6, atol=1e-5) for a, b in zip(now, before, strict=True))


@pytest.mark.parametrize("between", [6, 7, 8])
def test_residuals_wait_for_eight_products(between: int) -> None:
    """Those of a backward pass are rounded before loops over layers and over the batch are made, all others after."""
    lines = "".join(
        f" g{n} = f32[64,64] dot(g{n - 1}, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        for n in range(1, between + 1)
    )
    text = f"""HloModule m
ENTRY e {{
 a = f32[64,64] parameter(0)
 u = f32[64,64] parameter(1)
 x = f32[64,64] exponential(a)
 g0 = f32[64,64] dot(x, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{lines} t = f32[64,64] transpose(x), dimensions={{1,0}}
 r = f32[64,64] reverse(t), dimensions={{0}}
 ROOT dw = f32[64,64] dot(r, g{between}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    made = parse_hlo(text)
    run_pass(made, RoundResiduals(TINY))
    found = [i.name for i in made.entry.instructions if i.shape.dtype is BF16]
    assert found == (["x.bf16", "t", "r"] if between >= 7 else [])


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_products_that_take_more_than_a_rounded_operand(precision: str) -> None:
    assert propagated(backward(64, 8, 64, precision=precision))[1] == []
    assert propagated(backward(64, 8, 64), precision=precision)[1] == []
    assert propagated(backward(64, 8, 64, precision=precision), precision="default")[1] != []


def test_small_values_and_parameters_stay() -> None:
    assert propagated(backward(4, 4, 4))[1] == []
    text = """HloModule m
ENTRY e { x = f32[64,64] parameter(0)
 y = f32[64,64] parameter(1)
 ROOT r = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
    assert propagated(text)[1] == []


def test_a_long_way_to_the_products() -> None:
    """Thousands of operations that move a value are no deeper for the compiler than one."""
    count = 3000
    lines = "".join(f" r{n} = f32[64,64] reverse(r{n - 1}), dimensions={{{n % 2}}}\n" for n in range(1, count))
    text = backward(64, 8, 64).replace(" t = ", f" r0 = f32[64,64] reverse(d), dimensions={{0}}\n{lines} t = ")
    made = parse_hlo(text.replace("transpose(d)", f"transpose(r{count - 1})"))
    run_pass(made, PropagateBf16(TINY))
    assert sum(i.shape.is_array and i.shape.dtype is BF16 for i in made.entry.instructions) == count + 2


def without(text: str, chip: Chip) -> Program:
    """The program without the pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PropagateBf16, "run", lambda self, module: False)
        return compile_module(parse_hlo(text), chip).program


@examples(3, 60)
@given(
    st.tuples(st.sampled_from((16, 40, 100, 130)), st.sampled_from((3, 8, 20)), st.sampled_from((17, 40, 72))),
    st.booleans(),
    st.sampled_from((TINY, load_chip("small"))),
)
def test_the_same_products(sizes: tuple[int, int, int], bias: bool, chip: Chip) -> None:
    """Special values included: infinities, NaN, denormals, what rounds to an infinity."""
    n = sizes[2]
    text = backward(*sizes, BIAS.replace("N", str(n)) if bias else "", "dw, dx, db" if bias else "dw, dx")
    args = arguments(*sizes)
    odd = np.array([np.inf, -np.inf, np.nan, 1e-40, 3.4e38, -0.0, 1e-45], np.float32)
    args[2].reshape(-1)[: odd.size] = odd
    before = run(without(text, chip), chip, args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bf16_propagation, "LARGE", 1 << 20)
        now = run(compile_module(parse_hlo(text), chip).program, chip, args)
    for a, b in zip(now, before, strict=True):  # tiles of other sizes are summed in another order
        finite = np.isfinite(b)
        assert np.array_equal(a[~finite], b[~finite], equal_nan=True)
        assert np.abs(a[finite] - b[finite]).max(initial=0) <= 1e-6 * np.abs(b[finite]).max(initial=0)


def test_less_is_moved() -> None:
    """d, of 256 KiB, is written once and read twice; so it is for the bias, whose sum is made on the way."""
    chip = load_chip("small")
    chip = with_vmem(chip, 512 << 10)
    for text in (backward(256, 32, 256), backward(256, 32, 256, BIAS.replace("N", "256"), "dw, dx, db")):
        runs = [
            simulate(p, chip, mode="time") for p in (compile_module(parse_hlo(text), chip).program, without(text, chip))
        ]
        now, before = (sum(r.hbm_bytes.values()) for r in runs)
        assert before - now >= 256 * 256 * 2 * 3
        cycles = [r.cycles or 0 for r in runs]
        assert 0 < cycles[0] < cycles[1]


def test_convolutions() -> None:
    """What one convolution reads, then the gradient of its weights."""
    text = """HloModule m
ENTRY e {
 a = f32[4,8,8,16] parameter(0)
 u = f32[1,1,16,16] parameter(1)
 w = f32[3,3,16,8] parameter(2)
 g = f32[4,8,8,8] parameter(3)
 zero = f32[] constant(0)
 zeros = f32[4,8,8,16] broadcast(zero), dimensions={}
 p = f32[4,8,8,16] convolution(a, u), window={size=1x1}, dim_labels=b01f_01io->b01f
 x = f32[4,8,8,16] maximum(p, zeros)
 y = f32[4,8,8,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
 dw = f32[3,3,16,8] convolution(x, g), window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf
 ROOT r = (f32[4,8,8,8], f32[3,3,16,8]) tuple(y, dw)
}
"""
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal(d).astype(np.float32) for d in ((4, 8, 8, 16), (1, 1, 16, 16), (3, 3, 16, 8), (4, 8, 8, 8))
    ]
    assert propagated(text)[1] == ["x.bf16"]
    now = run(compile_module(parse_hlo(text), TINY).program, TINY, args)
    before = run(without(text, TINY), TINY, args)
    assert all(np.array_equal(a, b) for a, b in zip(now, before, strict=True))


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The decision is explained, and groups are checked against the evaluator."""
    path = tmp_path / "m.hlo"
    path.write_text(backward(64, 8, 64, BIAS.replace("N", "64"), "dw, dx, db"))
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile", "--json")
    assert ran.code == 0, ran.err
    explained = json.loads(systolith(capsys, "explain", path, "--chip", "tiny", "--json").out)
    (made,) = (d for d in explained["decisions"] if d["kind"] == "bf16")
    assert made["chosen"] == "d as bf16 for t, dx"
