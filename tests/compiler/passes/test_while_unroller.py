"""Short loops of elementwise operations written out: which ones, and with which values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.simplify.while_unroller import UnrollShortLoops
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import S32
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import check, compiled, counting
from tests.compiler.vpu.movement import show

BODIES = {
    "rotate": "(s32[], {t}, {t}) tuple(n, b, a)",
    "add": "(s32[], {t}, {t}) tuple(n, s, a)",
    "counted": "(s32[], {t}, {t}) tuple(n, c, s)",
}


def text(dims: tuple[int, ...], count: int, body: str, dtype: str = "u32", more: str = "") -> str:
    """A loop that counts to a number, over two arrays."""
    t = f"{dtype}[{show(dims)}]"
    state = f"(s32[], {t}, {t})"
    return f"""HloModule m
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = {t} get-tuple-element(p), index=1
  b = {t} get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  k = {dtype}[] convert(n)
  w = {t} broadcast(k), dimensions={{}}
  c = {t} add(b, w)
  s = {t} add(a, c){more}
  ROOT r = {BODIES[body].format(t=t)}
}}
{counting("cond", state, count)}
ENTRY e {{
  x = {t} parameter(0)
  y = {t} parameter(1)
  z = s32[] constant(0)
  s = {state} tuple(z, x, y)
  ROOT w = {state} while(s), condition=cond, body=body
}}
"""


@given(st.integers(0, 9), st.sampled_from(sorted(BODIES)), st.lists(st.integers(1, 9), max_size=3).map(tuple))
@settings(deadline=None)
def test_values_are_those_of_the_loop(count: int, body: str, dims: tuple[int, ...]) -> None:
    module = parse_hlo(text(dims, count, body))
    x, y = (np.random.default_rng(n).integers(0, 1 << 32, dims, np.uint32) for n in range(2))
    wanted = evaluate(module, x, y)
    assert UnrollShortLoops(least=1).run(module)
    verify(module)
    assert not any(i.opcode == "while" for i in module.entry.instructions)
    for a, b in zip(evaluate(module, x, y), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("dims", "count", "dtype", "more"),
    [
        ((32, 31), 5, "u32", ""),  # few elements
        ((32, 32), 65, "u32", ""),  # many operations: a loop's code stays small
        ((32, 32), 5, "u64", ""),  # each operation is many
        ((32, 32), 5, "u32", "\n  q = u32[32,32] transpose(s), dimensions={1,0}"),
    ],
)
def test_other_loops_stay(dims: tuple[int, ...], count: int, dtype: str, more: str) -> None:
    assert not UnrollShortLoops().run(parse_hlo(text(dims, count, "add", dtype, more)))
    assert UnrollShortLoops().run(parse_hlo(text((32, 32), 5, "add")))


def test_a_loop_whose_condition_has_an_effect_stays() -> None:
    module = parse_hlo(text((32, 32), 5, "add"))
    condition = next(c for c in module.computations if c.name == "cond")
    call = Instruction("told", "custom-call", array(S32), [], {"custom_call_target": "told"})
    call.attributes["custom_call_has_side_effect"] = True
    condition.instructions.insert(0, call)
    assert not UnrollShortLoops().run(module)


def test_random_bits_of_jax_are_one_kernel() -> None:
    """As many as `rng-bit-generator` takes; a loop stored and loaded what each iteration made."""
    key = np.array([3, 5], np.uint32)
    made = hlo(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (512, 512)), [key])
    chip = load_chip("tpu_v3")
    module = canonicalise(parse_hlo(made))
    assert not any(i.opcode == "while" for i in module.instructions())
    result = compiled(made, chip)
    cycles = simulate(result.program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles <= 80 * 512 * 512 / (chip.vpu.lanes * chip.vpu.sublanes)


def test_random_bits_of_jax_on_the_chip() -> None:
    key = np.array([3, 5], np.uint32)
    made = hlo(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (40, 32), jnp.uint32), [key])
    check(made, [key], "small", most=0)
    assert (evaluate(parse_hlo(made), key)[0] == run_xla(made, key)[0]).all()
