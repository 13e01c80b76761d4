"""Products whose groups sum over their rows, too: gradients of biases, the mean of a batch norm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.hw.lockstep import lockstep
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from tests.compiler.fusion.joined_products import check_command, groups, joins
from tests.compiler.machine import TINY, Array, compare, memory
from tests.examples import examples, one_in

COMPUTATIONS = """
add { a = T[] parameter(0)
 b = T[] parameter(1)
 ROOT r = T[] add(a, b) }
max { a = T[] parameter(0)
 b = T[] parameter(1)
 ROOT r = T[] maximum(a, b) }
"""

TAILS = {
    "the sum": ("", "s"),
    "both": ("", "d, s"),
    "a sum from a start": (" s.one = T[N] broadcast(one), dimensions={}\n s.more = T[N] add(s, s.one)", "d, s.more"),
    "two sums": (" sq = T[DIMS] multiply(d, d)\n s2 = T[N] reduce(sq, zero), dimensions={OVER}, to_apply=add", "s, s2"),
    "another one": (" s2 = T[N] reduce(d, low), dimensions={OVER}, to_apply=max", "d, s, s2"),
}
"""What follows the sum, and the results."""


def gradient(rows: int, k: int, n: int, tail: str = "both", t: str = "f32", over: str = "0") -> str:
    """D = x w * h, of [rows, n], and its sum over the rows."""
    more, results = TAILS[tail]
    product = f" p = T[{rows},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    operands = f"{rows},{k}", f"{k},{n}"
    return module(product, operands, f"{rows},{n}", over, str(n if over == "0" else rows), more, results, t)


def module(
    product: str, operands: tuple[str, str], dims: str, over: str, left: str, more: str, results: str, t: str
) -> str:
    shapes = {"d": f"{t}[{dims}]"}
    result = ", ".join(shapes.get(r, f"{t}[{left}]") for r in results.split(", "))
    text = f"""HloModule m
{COMPUTATIONS}
ENTRY e {{
 x = T[{operands[0]}] parameter(0)
 w = T[{operands[1]}] parameter(1)
 h = T[{dims}] parameter(2)
 zero = T[] constant(0)
 one = T[] constant(1)
 low = T[] constant(-100)
{product}
 d = T[{dims}] multiply(p, h)
 s = T[{left}] reduce(d, zero), dimensions={{{over}}}, to_apply=add
{more}
 ROOT t = ({result}) tuple({results})
}}
"""
    return text.replace("DIMS", dims).replace("OVER", over).replace("T[N]", f"T[{left}]").replace("T[", f"{t}[")


def arguments(*shapes: tuple[int, ...], t: str = "f32") -> list[Array]:
    rng, stored = np.random.default_rng(0), DTYPES[t].stored
    return [rng.standard_normal(dims).astype(np.float32).astype(stored) for dims in shapes]


def grouped(text: str) -> Module:
    """The module in groups."""
    return run_passes(canonicalise(parse_hlo(text)), [Fuse(), FuseOutputs(load_chip("tpu_v3"))])


def test_the_gradient_of_a_bias_is_summed_as_tiles_come() -> None:
    made = grouped(gradient(4096, 256, 512))
    assert groups(made) == [("kOutput", 2)]
    read = read_groups(parse_hlo(print_hlo(made)))
    assert print_hlo(read) == print_hlo(made)
    assert groups(read) == groups(made)


GROUP = """HloModule m
sum {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }}
g {{
 x = f32[16,8] parameter(0)
 w = f32[8,24] parameter(1)
 z = f32[] constant(0)
 d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 r = f32[16,24] {result}
 v = f32[16,24] {value}
 s = f32[24] reduce(v, z), dimensions={{0}}, to_apply=sum
 ROOT t = (f32[16,24], f32[24]) tuple(r, s)
}}
ENTRY e {{
 x = f32[16,8] parameter(0)
 w = f32[8,24] parameter(1)
 ROOT f = (f32[16,24], f32[24]) fusion(x, w), kind=kOutput, calls=g
}}
"""


@pytest.mark.parametrize(
    ("result", "value", "odd"),
    [
        ("negate(d)", "abs(d)", ""),
        ("negate(d)", "reverse(d), dimensions={0}", "'v'"),
        ("reverse(d), dimensions={0}", "abs(d)", "'r'"),
    ],
)
def test_groups_that_are_read(result: str, value: str, odd: str) -> None:
    """Results, and what is summed, have each element of the product where they are; the sum may be of the product."""
    text = GROUP.format(result=result, value=value)
    if odd:
        with pytest.raises(CompileError, match=f"{odd} reads 'd' elsewhere than at its own index"):
            read_groups(parse_hlo(text))
        return
    for each in (text, text.replace("reduce(v, z)", "reduce(d, z)").replace(" v = f32[16,24] abs(d)\n", "")):
        assert groups(read_groups(parse_hlo(each))) == [("kOutput", 2)]


def test_a_sum_over_columns_stays_apart() -> None:
    """Lanes of the accumulators hold them."""
    assert groups(grouped(gradient(4096, 256, 512, over="1"))) == [("kOutput", 1), ("kInput", 1)]


@pytest.mark.usefixtures("products_join")
@pytest.mark.parametrize(
    ("tail", "sizes"), one_in(3, dict.fromkeys(TAILS, ((40, 24, 56), (66, 8, 76), (3, 64, 64), (130, 8, 300))))
)
def test_results_are_those_of_the_evaluator(sizes: tuple[int, int, int], tail: str) -> None:
    rows, k, n = sizes
    made = compare(gradient(*sizes, tail), arguments((rows, k), (k, n), (rows, n)), TINY)
    assert joins(made)


@pytest.mark.usefixtures("products_join")
@given(
    st.tuples(*[st.sampled_from((2, 3, 8, 17, 40, 64, 200))] * 3),
    st.sampled_from(("f32", "bf16")),
    st.sampled_from(tuple(TAILS)),
    st.sampled_from((TINY, load_chip("small"))),
)
@examples(3, 60)
def test_any_sizes(sizes: tuple[int, int, int], t: str, tail: str, chip: Chip) -> None:
    rows, k, n = sizes
    assert joins(compare(gradient(*sizes, tail, t), arguments((rows, k), (k, n), (rows, n), t=t), chip))


@pytest.mark.usefixtures("products_join")
@given(
    st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9), st.sampled_from((2, 8, 20)), st.integers(2, 40)),
    st.sampled_from((1, 2)),
    st.sampled_from(tuple(TAILS)),
    st.sampled_from((TINY, load_chip("small"))),
)
@examples(3, 60)
def test_convolutions(sizes: tuple[int, int, int, int, int], stride: int, tail: str, chip: Chip) -> None:
    """Batch norm reads the mean of each channel, over batch and space."""
    b, y, x, c, n = sizes
    oy, ox = -(-y // stride), -(-x // stride)
    pad = [((o - 1) * stride + 3 - i) for o, i in ((oy, y), (ox, x))]
    pads = "x".join(f"{p // 2}_{p - p // 2}" for p in pad)
    dims = f"{b},{oy},{ox},{n}"
    product = (
        f" p = T[{dims}] convolution(x, w), "
        f"window={{size=3x3 stride={stride}x{stride} pad={pads}}}, dim_labels=b01f_01io->b01f"
    )
    more, results = TAILS[tail]
    text = module(product, (f"{b},{y},{x},{c}", f"3,3,{c},{n}"), dims, "0,1,2", str(n), more, results, "f32")
    made = compare(text, arguments((b, y, x, c), (3, 3, c, n), (b, oy, ox, n)), chip)
    assert joins(made) or not all(m > 1 for m in (n, b * oy * ox))


@pytest.mark.usefixtures("products_join")
def test_products_of_a_batch() -> None:
    """The batch is summed, too."""
    product = (
        " p = T[3,20,40] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    text = module(product, ("3,20,16", "3,16,40"), "3,20,40", "0,1", "40", "", "d, s", "f32")
    assert joins(compare(text, arguments((3, 20, 16), (3, 16, 40), (3, 20, 40)), TINY))


@pytest.mark.usefixtures("products_join")
@pytest.mark.parametrize("tail", ["both", "another one"])
def test_simulator_and_rtl_agree(tail: str) -> None:
    rows, k, n = 17, 8, 9
    made = compile_module(parse_hlo(gradient(rows, k, n, tail)), TINY)
    assert joins(made)
    result = lockstep(made.program, TINY, memory(made.program, arguments((rows, k), (k, n), (rows, n))))
    assert result.ok, result.difference


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The group is checked against the evaluator, reported, predicted and explained."""
    path = tmp_path / "m.hlo"
    path.write_text(gradient(512, 16, 64))
    check_command(capsys, path)
