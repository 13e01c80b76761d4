"""64-bit integers that a module takes and gives, on chips that have none: every operation, against XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.examples import one_in

Array = npt.NDArray[Any]

REDUCERS = "".join(
    scalar_computation(op, t, f"{op}.{t}")
    for op in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
    for t in ("s64", "u64")
)
LOOP = """test {
 s = (s64[], T[4,6]) parameter(0)
 i = s64[] get-tuple-element(s), index=0
 n = s64[] constant(3)
 ROOT p = pred[] compare(i, n), direction=LT
}
once {
 s = (s64[], T[4,6]) parameter(0)
 i = s64[] get-tuple-element(s), index=0
 x = T[4,6] get-tuple-element(s), index=1
 one = s64[] constant(1)
 j = s64[] add(i, one)
 y = T[4,6] multiply(x, x)
 ROOT t = (s64[], T[4,6]) tuple(j, y)
}
"""
BODIES = {
    "handed on": "u = (T[4,6], s64[5]) tuple(y, i)\n ROOT t = (T[4,6], (T[4,6], s64[5])) tuple(x, u)",
    "add": "ROOT r = T[4,6] add(x, y)",
    "divide": "ROOT r = T[4,6] divide(x, y)",
    "high half": "ROOT r = T[4,6] mulhi(x, y)",
    "power": "ROOT r = T[4,6] power(x, y)",
    "remainder": "ROOT r = T[4,6] remainder(x, y)",
    "sum of rows": "z = T[] constant(7)\n ROOT r = T[4] reduce(x, z), dimensions={1}, to_apply=add.T",
    "product of columns": "z = T[] constant(1)\n ROOT r = T[6] reduce(x, z), dimensions={0}, to_apply=multiply.T",
    "least of all": "z = T[] constant(9)\n ROOT r = T[] reduce(x, z), dimensions={0,1}, to_apply=minimum.T",
    "bits": "z = T[] constant(0)\n ROOT r = T[4] reduce(x, z), dimensions={1}, to_apply=xor.T",
    "running sum": (
        "z = T[] constant(0)\n ROOT r = T[4,6] reduce-window(x, z), window={size=1x6 pad=0_0x5_0}, to_apply=add.T"
    ),
    "pooled": "z = T[] constant(3)\n ROOT r = T[3,5] reduce-window(x, z), window={size=2x2}, to_apply=maximum.T",
    "rows taken": (
        "ROOT r = T[5,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,6}"
    ),
    "rows put": (
        "v = T[5] convert(i)\n u = T[5,6] broadcast(v), dimensions={0}\n"
        " ROOT r = T[4,6] scatter(x, i, u), update_window_dims={1},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add.T"
    ),
    "window": (
        "a = s64[1] slice(i), slice={[0:1]}\n b = s64[] reshape(a)\n"
        " ROOT r = T[2,3] dynamic-slice(x, b, b), dynamic_slice_sizes={2,3}"
    ),
    "product": "ROOT r = T[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "loop": (
        "z = s64[] constant(0)\n s = (s64[], T[4,6]) tuple(z, x)\n"
        " w = (s64[], T[4,6]) while(s), condition=test, body=once\n ROOT r = T[4,6] get-tuple-element(w), index=1"
    ),
    "loop as it is": (
        "z = s64[] constant(0)\n s = (s64[], T[4,6]) tuple(z, x)\n"
        " ROOT w = (s64[], T[4,6]) while(s), condition=test, body=once"
    ),
    "pad": "z = T[] constant(5)\n ROOT r = T[6,7] pad(x, z), padding=1_1x-1_2",
    "of floats": "f = f32[4,6] parameter(3)\n ROOT r = T[4,6] convert(f)",
    "to floats": "ROOT r = f32[4,6] convert(x)",
}


def module(body: str, t: str) -> str:
    """A body between its parameters, of one type."""
    given = f" x = {t}[4,6] parameter(0)\n y = {t}[4,6] parameter(1)\n i = s64[5] parameter(2)\n"
    text = f"{LOOP}ENTRY e {{\n{given} {body}\n}}\n"
    return f"HloModule m\n{REDUCERS}{text}".replace("T[", f"{t}[").replace(".T", f".{t}")


def arguments(text: str, seed: int = 0) -> list[Array]:
    """Large and small numbers; indices of which some are outside."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for p in parse_hlo(text).entry.parameters:
        if p.name == "i":
            found.append(np.array([3, 0, 2**40, 3, -1]))
        elif p.shape.dtype.is_float:
            found.append((rng.standard_normal(p.dims) * 2.0 ** rng.integers(0, 70, p.dims)).astype(np.float32))
        else:
            shift = rng.integers(0, 64, p.dims, np.uint64)
            found.append((rng.integers(0, 2**64 - 1, p.dims, np.uint64) >> shift).view(p.shape.dtype.stored))
    return found


@pytest.mark.parametrize(("name", "t"), one_in(2, dict.fromkeys(BODIES, ("s64", "u64"))))
def test_as_xla_computes_it(name: str, t: str) -> None:
    text = module(BODIES[name], t)
    given = arguments(text)
    got = run(compiled(text).program, load_chip("tiny"), given)
    # The way into XLA here has no mulhi.
    wanted = evaluate(parse_hlo(text), *given) if "mulhi" in text else run_xla(text, *given)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("t", ["s64", "u64"])
def test_quotients_by_constants_of_16_bits_take_no_loop(t: str) -> None:
    divisors = [1, 2, 3, 10, 1000, 0x8000, 0xFFFF] + [-1, -7, -0xFFFF] * (t == "s64")
    lines = [
        f"c{k} = {t}[] constant({d})\n b{k} = {t}[40] broadcast(c{k}), dimensions={{}}" for k, d in enumerate(divisors)
    ]
    lines += [f"{op}{k} = {t}[40] {op}(x, b{k})" for k in range(len(divisors)) for op in ("divide", "remainder")]
    made = ", ".join(f"{op}{k}" for k in range(len(divisors)) for op in ("divide", "remainder"))
    shapes = ", ".join([f"{t}[40]"] * 2 * len(divisors))
    lines += [f"ROOT t = ({shapes}) tuple({made})"]
    text = f"HloModule m\nENTRY e {{\n x = {t}[40] parameter(0)\n " + "\n ".join(lines) + "\n}\n"
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2**64 - 1, 40, np.uint64) >> rng.integers(0, 64, 40, np.uint64)).view(
        f"{t[0].replace('s', 'i')}8"
    )
    x[:4] = np.array([0, 2**63, 2**64 - 1, 2**63 - 1], np.uint64).view(x.dtype)
    assert not any(i.opcode == "while" for i in canonicalise(parse_hlo(text)).instructions())
    for got, want in zip(run(compiled(text).program, load_chip("tiny"), [x]), run_xla(text, x), strict=True):
        np.testing.assert_array_equal(got, want)
