"""Backward passes of products in blocks of rows: the gradients of an operand, of weights and of a bias in one pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.dim_rules import summed_dims
from systolith.compiler.ops.group import Group, read_groups
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.tiling import blocking, product_blocking
from systolith.compiler.tiling.product_blocking import BlockProducts, _order, _turned
from systolith.hw.lockstep import Lockstep
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import TINY, Array, compare, with_vmem
from tests.examples import examples
from tests.hw.bound import bound

Dims = tuple[int, ...]

HEAD = """HloModule backward
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
"""


def shown(dims: Dims) -> str:
    return f"f32[{','.join(map(str, dims))}]"


def dense(rows: Dims, ins: int, outs: int, sums: bool = True) -> str:
    """Rows of `ins` features to `outs`; more than one dimension of rows: a `dot` that sums along several."""
    n = len(rows)
    over = ",".join(map(str, range(n)))
    back = f"dot(d, w), lhs_contracting_dims={{{n}}}, rhs_contracting_dims={{1}}"
    weights = f"dot(a, d), lhs_contracting_dims={{{over}}}, rhs_contracting_dims={{{over}}}"
    return _text(rows, ins, outs, (ins, outs), back, weights, sums)


def convolved(batch: int, size: int, ins: int, outs: int, window: int, sums: bool = True) -> str:
    """A convolution of [batch, size, size, ins], whose window is of one element or more."""
    pad = f" pad={window // 2}_{window // 2}x{window // 2}_{window // 2}" if window > 1 else ""
    back = f"convolution(d, w), window={{size={window}x{window}{pad}}}, dim_labels=b01f_01oi->b01f"
    weights = f"convolution(a, d), window={{size={size}x{size}{pad}}}, dim_labels=f01b_i01o->01bf"
    return _text((batch, size, size), ins, outs, (window, window, ins, outs), back, weights, sums)


def _text(rows: Dims, ins: int, outs: int, kernel: Dims, back: str, weights: str, sums: bool) -> str:
    """The gradient of a product's rectified operand `x`, of its weights `w`, and two sums along the rows."""
    inside, outside, n = shown((*rows, ins)), shown((*rows, outs)), len(rows)
    over = ",".join(map(str, range(n)))
    along = f"""
  s = f32[{ins}] reduce(r, zero), dimensions={{{over}}}, to_apply=sum
  rx = {inside} multiply(r, x)
  t = f32[{ins}] reduce(rx, zero), dimensions={{{over}}}, to_apply=sum"""
    results = f"f32[{ins}], f32[{ins}]" if sums else ""
    return f"""{HEAD}
ENTRY e {{
  g = {outside} parameter(0)
  z = {outside} parameter(1)
  x = {inside} parameter(2)
  w = {shown(kernel)} parameter(3)
  c = f32[{outs}] parameter(4)
  zero = f32[] constant(0)
  cb = {outside} broadcast(c), dimensions={{{n}}}
  zc = {outside} multiply(z, cb)
  d = {outside} subtract(g, zc)
  zeros = {inside} broadcast(zero), dimensions={{}}
  a = {inside} maximum(x, zeros)
  made = {inside} {back}
  mask = {inside.replace("f32", "pred")} compare(x, zeros), direction=GT
  r = {inside} select(mask, made, zeros)
  dw = {shown(kernel)} {weights}{along if sums else ""}
  ROOT all = ({inside}, {shown(kernel)}{", " if sums else ""}{results}) tuple(r, dw{", s, t" if sums else ""})
}}
"""


def arguments(text: str, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(p.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters]


def regions(made: Compiled) -> list[str]:
    """What was decided about regions around products."""
    return [d.chosen for d in made.explain if d.kind == "region"]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions are taken wherever they fit."""
    monkeypatch.setattr(product_blocking, "WORTH", 1000.0)
    monkeypatch.setattr(blocking, "LARGE", 1 << 30)


@pytest.mark.parametrize(
    "text",
    [
        dense((8, 784), 128, 256),
        convolved(8, 28, 128, 512, 1),
        pytest.param(dense((6272,), 64, 256), marks=pytest.mark.slow),
        pytest.param(dense((25088,), 64, 256), marks=pytest.mark.slow),
        pytest.param(dense((25088,), 256, 64), marks=pytest.mark.slow),
        pytest.param(dense((8, 3136), 128, 256), marks=pytest.mark.slow),
        pytest.param(convolved(8, 56, 64, 256, 1), marks=pytest.mark.slow),
        pytest.param(convolved(8, 56, 256, 64, 1), marks=pytest.mark.slow),
    ],
)
def test_operands_are_read_once(text: str) -> None:
    """HBM moves each operand and each result once, and hardly waits; one after another they take twice as long."""
    chip = load_chip("tpu_v3")
    made = compile_module(parse_hlo(text), chip)
    assert len(regions(made)) == 1
    result = simulate(made.program, chip, mode="time")
    entry = parse_hlo(text).entry
    bytes_ = sum(i.shape.bytes for i in (*entry.parameters, *entry.result.operands))
    assert sum(result.to_json()["hbm_bytes"].values()) <= bytes_ * 1.01
    assert result.cycles is not None
    assert result.cycles <= 1.1 * transfer_cycles(bytes_, chip)


@examples(3, 60)
@given(
    st.sampled_from([(40,), (7, 9), (130,)]),
    st.integers(2, 20),  # products of vectors are sums
    st.integers(2, 20),
    st.booleans(),
    st.integers(0, 2**32),
)
@pytest.mark.usefixtures("always")
def test_dense_layers_have_the_evaluators_values(rows: Dims, ins: int, outs: int, sums: bool, seed: int) -> None:
    text = dense(rows, ins, outs, sums)
    assert regions(compare(text, arguments(text, seed), TINY))


@examples(3, 60)
@given(
    st.sampled_from([(1, 4), (3, 5), (4, 6), (6, 9)]),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.integers(0, 2**32),
)
@pytest.mark.usefixtures("always")
def test_convolutions_have_the_evaluators_values(
    sizes: tuple[int, int], ins: int, outs: int, window: int, sums: bool, seed: int
) -> None:
    text = convolved(*sizes, ins, outs, window, sums)
    made = compare(text, arguments(text, seed), TINY)
    assert bool(regions(made)) == (window == 1 or sizes[0] > 1)


@pytest.mark.parametrize(
    ("text", "kib"),
    [
        pytest.param(dense((64,), 256, 512), 16 << 10, id="the rows stay in VMEM"),
        pytest.param(dense((1024,), 512, 512), 1 << 10, id="the weights and their sum do not"),
        pytest.param(dense((4096,), 2048, 2048), 16 << 10, id="large weights do not", marks=pytest.mark.slow),
    ],
)
def test_others_run_one_after_another(text: str, kib: int) -> None:
    chip = load_chip("tpu_v3")
    assert not regions(compile_module(parse_hlo(text), with_vmem(chip, kib << 10)))


def test_the_pass_makes_one_group_of_blocks() -> None:
    module = parse_hlo(dense((25088,), 64, 256))
    outcome = run_pass(module, BlockProducts(load_chip("tpu_v3")))
    assert outcome.changed
    (group,) = [i for i in module.entry.instructions if isinstance(i, Group)]
    assert group.tiling is not None
    assert len(group.tiling.accumulated) == 3


@given(
    st.sampled_from(["dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}", ""]),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([("default", "highest"), ("highest", "default"), ("default", "default")]),
    st.integers(0, 2**32),
)
def test_turned_products_are_transposed(
    of: str, rows: int, columns: int, inner: int, precision: tuple[str, str], seed: int
) -> None:
    words = ", operand_precision={" + ",".join(precision) + "}"
    x: Dims
    y: Dims
    out: Dims
    if not of:
        x, y, out = (inner, 2, 2, rows), (inner, 2, 2, columns), (1, 1, rows, columns)
        of = "convolution(x, y), window={size=2x2}, dim_labels=f01b_i01o->01bf"
    else:
        x, y, out = (inner, rows), (inner, columns), (rows, columns)
    text = f"""HloModule m
ENTRY e {{
  x = {shown(x)} parameter(0)
  y = {shown(y)} parameter(1)
  ROOT p = {shown(out)} {of}{words}
}}
"""
    module = parse_hlo(text)
    args = arguments(text, seed)
    (wanted,) = evaluate(parse_hlo(text), *args)
    product = module.entry.result
    turned = _turned(product)
    assert turned is not None
    module.entry.instructions[-1] = module.entry.root = turned
    (got,) = evaluate(module, *args)
    np.testing.assert_allclose(got.transpose(_order(product)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("of", "along"),
    [
        ("reduce(x, z), dimensions={1,2}, to_apply=sum", {1: {0: 1}, 2: {0: 2}}),
        ("dot(x, y), lhs_contracting_dims={0,2}, rhs_contracting_dims={2,1}", {0: {0: 0, 1: 2}, 2: {0: 2, 1: 1}}),
        ("convolution(x, y), window={size=4}, dim_labels=f0b_i0o->0bf", {0: {0: 0, 1: 0}, 1: {0: 1, 1: 1}}),
        ("convolution(x, y), window={size=4 pad=1_1}, dim_labels=f0b_i0o->0bf", {0: {0: 0, 1: 0}}),
        ("convolution(x, y), window={size=4 rhs_reversal=1}, dim_labels=f0b_i0o->0bf", {0: {0: 0, 1: 0}}),
        ("convolution(x, y), window={size=4}, dim_labels=f0b_i0o->0bf, batch_group_count=2", {}),
    ],
)
def test_dimensions_that_are_summed(of: str, along: dict[int, dict[int, int]]) -> None:
    shapes = ((3, 4, 6), (3, 4, 6)) if "conv" in of else ((3, 4, 6), (5, 6, 3))
    result = {"r": "f32[3]", "d": "f32[4,5]", "c": "f32[1,6,6]"}[of[0]]
    result = "f32[3,6,6]" if "pad" in of else "f32[1,3,6]" if "group" in of else result
    text = f"""{HEAD}
ENTRY e {{
  x = {shown(shapes[0])} parameter(0)
  y = {shown(shapes[1])} parameter(1)
  z = f32[] constant(0)
  ROOT r = {result} {of}
}}
"""
    i = parse_hlo(text).entry.result
    found = {d: {i.operands.index(o): e for o, e in summed_dims(i, d)} for d in range(3)}
    assert {d: pairs for d, pairs in found.items() if pairs} == along


TILING = '{"tiling":{"dims":[0],"accumulated":[0]}}'

GROUPED = f"""
group {{
  x = f32[6,4] parameter(0)
  y = f32[6,5] parameter(1)
  so_far = f32[4,5] parameter(2)
  part = f32[4,5] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT r = f32[4,5] add(so_far, part)
}}
ENTRY e {{
  x = f32[6,4] parameter(0)
  y = f32[6,5] parameter(1)
  so_far = f32[4,5] parameter(2)
  ROOT r = f32[4,5] fusion(x, y, so_far), kind=kCustom, calls=group, backend_config={TILING}
}}
"""


def test_sums_of_products_are_read_from_grouped_text() -> None:
    module = read_groups(parse_hlo(HEAD + GROUPED))
    assert isinstance(module.entry.result, Group)


@pytest.mark.parametrize(
    ("old", "new"), [("add(so_far, part)", "multiply(so_far, part)"), ('"dims":[0]', '"dims":[1]')]
)
def test_what_is_no_sum_is_refused(old: str, new: str) -> None:
    with pytest.raises(CompileError, match="backend_config"):
        read_groups(parse_hlo(HEAD + GROUPED.replace(old, new)))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("text", [dense((40,), 12, 20), convolved(2, 4, 5, 9, 3)])
def test_lockstep(text: str) -> None:
    """Sums that go on from block to block: 0 bits and 0 cycles apart from the RTL."""
    chip = load_chip("tiny")
    made = compile_module(parse_hlo(text), chip, Options())
    assert regions(made)
    with Lockstep(chip) as both:
        result = both.run(bound(made.program, [a.reshape(-1).view(np.uint8) for a in arguments(text, 3)]))
    assert result.ok, result.difference


@pytest.mark.usefixtures("always")
def test_what_waits_for_a_sum_is_not_in_its_blocks() -> None:
    """The gradient of weights may need a sum along the rows first."""
    text = f"""{HEAD}
ENTRY e {{
  x = f32[40,8] parameter(0)
  w = f32[8,8] parameter(1)
  zero = f32[] constant(0)
  y = f32[40,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  s = f32[8] reduce(y, zero), dimensions={{0}}, to_apply=sum
  sb = f32[40,8] broadcast(s), dimensions={{1}}
  d = f32[40,8] multiply(y, sb)
  dw = f32[8,8] dot(x, d), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT all = (f32[40,8], f32[8], f32[8,8]) tuple(y, s, dw)
}}
"""
    (chosen,) = regions(compare(text, arguments(text), TINY))
    assert chosen == "in blocks along dimension 0, with s"
