"""Values that do not fit are spilled, or refused with an error that names them and the place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.groups import slice_views
from systolith.isa.chip import load_chip
from systolith.isa.files import write_all
from systolith.isa.program import Role
from systolith.sim.simulate import simulate
from tests.compiler.driver.random_modules import random_module
from tests.compiler.fusion.test_batch_loops import arguments, mlp
from tests.compiler.machine import CHIPS, TINY, Array, check, compare, compiled, with_vmem
from tests.corpus.load import load

CHAIN = """HloModule t
ENTRY e {
  x = f32[32,52] parameter(0)
  w = f32[52,52] parameter(1)
  a = f32[32,52] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[32,52] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[32,52] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[32,52] add(a, b)
  ROOT e = f32[32,52] add(d, c)
}
"""


# Of `tiny`, with a sixteenth of its VMEM.
SMALL = with_vmem(TINY, 16 << 10)


def test_values_that_do_not_fit_are_spilled_to_hbm() -> None:
    rng = np.random.default_rng(0)
    args: list[Array] = [
        rng.standard_normal((32, 52)).astype(np.float32),
        rng.standard_normal((52, 52)).astype(np.float32) / np.float32(10),
    ]
    program = check(CHAIN, args, SMALL, "default", 3e-2).program
    assert any(b.role is Role.TEMP for b in program.buffers)
    assert program.vmem_high_water <= SMALL.vmem.bytes


def test_a_chip_with_more_vmem_spills_nothing() -> None:
    assert not any(b.role is Role.TEMP for b in compiled(CHAIN, "small").program.buffers)


def test_parameters_beyond_hbm_are_refused_with_sizes() -> None:
    with pytest.raises(CompileError, match=r"bytes of HBM \(parameters? \d+.*chip 'tiny' has"):
        compiled(load("resnet18_infer_224").text, "tiny")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("ROOT d = f32[40000,40000] add(a, a)", marks=pytest.mark.slow),
        "s = f32[1,40000] slice(a), slice={[3:4], [0:40000]}\n  ROOT d = f32[1,40000] add(s, s)",
    ],
)
def test_arrays_beyond_the_reach_of_offsets_are_refused_with_sizes(body: str) -> None:
    text = f"HloModule t\nENTRY e {{\n  a = f32[40000,40000] parameter(0)\n  {body}\n}}\n"
    with pytest.raises(CompileError, match=r"f32\[40000, 40000\] in HBM takes 6400000000 bytes.*split it"):
        compiled(text, "tpu_v3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ROOT d = s32[4,4] custom-call(a), custom_call_target="nobody"', "custom-call 'd'"),
    ],
)
def test_unsupported_operations_are_named(line: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        compiled(f"HloModule t\nENTRY e {{\n  a = s32[4,4] parameter(0)\n  {line}\n}}\n")
    assert "4:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_programs_are_deterministic() -> None:
    text = load("lstm_scan").text
    a, b = (compiled(text, "small").program for _ in range(2))
    assert a.code == b.code
    assert a.patterns == b.patterns
    assert a.kernels == b.kernels
    assert a == b


def test_groups_and_probes_name_each_other() -> None:
    result = compiled(load("lstm_scan").text, "small")
    program = result.program
    groups = {g.name for g in program.groups}
    assert {p.group for p in program.probes} == groups
    assert all(0 <= p.first <= p.last < len(program.code) for p in program.probes)
    assert max(g.executions for g in program.groups) == 20


def test_useful_macs_are_those_of_the_module() -> None:
    program = compiled(load("mlp_infer").text, "tpu_v3", "highest").program
    assert simulate(program, load_chip("tpu_v3"), mode="time").macs == 32 * (784 * 256 + 256 * 128 + 128 * 10)


def test_small_fifos_and_tokens_still_order_everything() -> None:
    chip = replace(SMALL, fifo=replace(SMALL.fifo, depth=1), token=replace(SMALL.token, max=4))
    rng = np.random.default_rng(0)
    args: list[Array] = [
        rng.standard_normal((32, 52)).astype(np.float32),
        rng.standard_normal((52, 52)).astype(np.float32) / np.float32(10),
    ]
    check(CHAIN, args, chip, "default", 3e-2)


def test_every_stage_is_dumped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    write_all(compiled(load("bf16_dot_f32").text).dumps(tmp_path))
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {
        *("canonical.hlo", "grouped.hlo", "program.s", "tile.txt", "plan.txt", "memory.txt", "explain.txt"),
    }
    assert "k tiles" in (tmp_path / "explain.txt").read_text()


def test_a_value_that_a_loop_does_not_change_is_stored_though_it_was_to_be_made_in_place() -> None:
    """Where VMEM is short the loop's result is to be made in the result buffer; the loop makes nothing."""
    text, args = random_module(4065)
    compare(text, args, CHIPS[16])


def test_a_product_that_another_reads_through_a_view_is_stored() -> None:
    compare(*random_module(2812), CHIPS[16])


SLOW = replace(TINY, hbm=replace(TINY.hbm, q=4))


def attention_behind_a_norm() -> str:
    """JAX's HLO of one layer's attention with a sum around it."""

    def layer(x: jax.Array, *given: jax.Array) -> jax.Array:
        wq, wk, wv, wo, scale, bias = given
        mean = x.mean(-1, keepdims=True)
        n = (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-3) * scale + bias
        q, k, v = ((n @ w).reshape(8, 33, 4, 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((33, 33), bool)), scores, -1e4), -1)
        return x + jnp.einsum("bhqk,bhkd->bhqd", weights, v).transpose(0, 2, 1, 3).reshape(8, 33, 16) @ wo

    shapes = [(8, 33, 16), *[(16, 16)] * 4, (16,), (16,)]
    lowered = jax.jit(layer).lower(*(jnp.ones(s, jnp.float32) for s in shapes))
    return str(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("make", "vmem", "chosen"),
    [
        pytest.param(lambda: mlp(4, 2, 32, 72), 3 << 10, "no loops", id="loops"),
        pytest.param(attention_behind_a_norm, 4 << 10, "no blocks", id="blocks", marks=pytest.mark.slow),
    ],
)
def test_what_takes_too_much_room_for_tiles_is_left_out(
    make: Callable[[], str], vmem: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_views, "SHARED", 0.6)  # copies of slices take the room that the loop's tiles need
    text = make()
    result = check(text, arguments(text), replace(SLOW, vmem=replace(TINY.vmem, bytes=vmem)))
    (said,) = (d for d in result.explain if d.chosen == chosen)
    assert "no tiles fit" in said.rejected[0].why


@pytest.mark.parametrize("end", ["n = f32[4,4] negate(s)\n ROOT r = f32[4,4] add(n, s)", "ROOT n = f32[4,4] add(s, s)"])
def test_tiles_of_one_element_that_do_not_fit_name_the_operation(end: str) -> None:
    many = "\n".join(f" p{k} = f32[4,4] parameter({k})" for k in range(8))
    sums = "\n".join(f" s{k} = f32[4,4] add({'p0' if k == 1 else f's{k - 1}'}, p{k})" for k in range(1, 8))
    text = f"HloModule m\nENTRY e {{\n{many}\n{sums}\n s = f32[4,4] add(s7, p0)\n {end}\n}}\n"
    with pytest.raises(CompileError, match=r"fusion '[nr]' \(f32\[4,4\].*more VMEM") as caught:
        compiled(text, with_vmem(TINY, 64))
    assert "\n" not in str(caught.value)
