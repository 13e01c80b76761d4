"""The table of shape rules: whole, within the limits that it states, and careful with sizes."""

import importlib
import re
from typing import Any

import pytest

from systolith.compiler.hlo import HloError, parse_hlo, verify
from systolith.compiler.hlo.opcodes import KNOWN
from systolith.compiler.hlo.rules.shapes import INFER, READS_SHAPE, infer, rule_of

# XLA's names in C++ that are not those of its text.
SPELLED = {
    "Clz": "count-leading-zeros",
    "Cos": "cosine",
    "Exp": "exponential",
    "Expm1": "exponential-minus-one",
    "Log1p": "log-plus-one",
    "OptimizationBarrier": "opt-barrier",
    "PopulationCount": "popcnt",
    "Sin": "sine",
    "TopK": "topk",
}


def test_every_opcode_has_a_rule() -> None:
    assert set(INFER) == KNOWN
    assert READS_SHAPE.keys() <= KNOWN


def test_every_opcode_of_xla_is_known() -> None:
    hlo: Any = importlib.import_module("jaxlib._hlo")
    names = [name[1:] for name in dir(hlo.HloOpcode) if re.match("k[A-Z]", name)]
    assert len(names) > 100
    assert {SPELLED.get(n) or re.sub(r"(?<!^)([A-Z])", r"-\1", n).lower() for n in names} <= KNOWN


def test_an_unknown_opcode_has_no_rule() -> None:
    with pytest.raises(HloError, match="XLA has no operation 'transpoze'; did you mean 'transpose'"):
        rule_of("transpoze")


BIG = "HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {shape} negate(x)\n}}\n"


@pytest.mark.parametrize("shape", ["f32[999999999,999999999]", "s8[9223372036854775807]", "f32[0,1000000000000]"])
def test_absurd_sizes_are_only_numbers(shape: str) -> None:
    verify(parse_hlo(BIG.format(shape=shape)))


@pytest.mark.parametrize(
    "shape",
    [
        "f32[999999999,9999999999]",
        "f64[999999999,2999999999]",
        "s16[9223372036854775807]",
        "f32[0,999999999,9999999999]",
    ],
)
def test_sizes_that_overflow_are_refused(shape: str) -> None:
    with pytest.raises(HloError, match=r"has more than 2\*\*63 - 1 bytes"):
        verify(parse_hlo(BIG.format(shape=shape)))


UNBOUNDED_TEXT = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[?,3] parameter(0)
  y = f32[2,3] parameter(1)
  z = f32[] parameter(2)
  w = f32[3,4] parameter(3)
  ROOT r = SHAPE LINE
}
"""


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("negate(x)", "f32[?,3]"),
        ("add(x, y)", "f32[2,3]"),
        ("transpose(x), dimensions={1,0}", "f32[3,?]"),
        ("dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[?,4]"),
        ("reduce(x, z), dimensions={1}, to_apply=add", "f32[?]"),
        ("reduce(x, z), dimensions={0}, to_apply=add", "f32[3]"),
        ("concatenate(x, y), dimensions={0}", "f32[?,3]"),
        ("concatenate(x, y), dimensions={1}", "f32[2,6]"),
        ("pad(x, z), padding=1_1x1_1", "f32[?,5]"),
        ("slice(x), slice={[0:2], [0:1]}", "f32[2,1]"),
        ("reduce-window(x, z), window={size=2x2}, to_apply=add", "f32[?,2]"),
        ("set-dimension-size(y, s), dimensions={0}", "f32[<=2,3]"),
    ],
)
def test_sizes_without_a_bound(line: str, shape: str) -> None:
    text = UNBOUNDED_TEXT.replace("SHAPE", shape).replace("LINE", line)
    module = parse_hlo(text.replace("  ROOT", "  s = s32[] constant(1)\n  ROOT"))
    verify(module)
    assert str(infer(module.entry.result)) == shape


def test_mixed_precision() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = bf16[4] parameter(1)
  d = f32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = f32[4] add(x, y)
}
"""
    module = parse_hlo(text)
    verify(module)
    with pytest.raises(HloError, match="floats have one precision, got f32 and bf16; convert one of them"):
        verify(module, mixed_precision=False)


def test_calls_of_a_large_computation_are_linear() -> None:
    """Ten thousand calls of a computation of ten thousand instructions: its parameters are looked up once."""
    body = "\n".join(["  p = f32[] parameter(0)", *(f"  n{k} = f32[] negate(p)" for k in range(10_000))])
    calls = "\n".join(f"  c{k} = f32[] call(x), to_apply=f" for k in range(10_000))
    verify(parse_hlo(f"HloModule m\nf {{\n{body}\n}}\nENTRY e {{\n  x = f32[] parameter(0)\n{calls}\n}}\n"))
