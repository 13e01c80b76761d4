"""The reference evaluator: the corpus against XLA's stored results, precision, and the interface."""

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, evaluate_computation, parse_hlo, verify
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.values.convert import from_file, round_bf16, to_file
from systolith.compiler.hlo.values.custom_calls import register
from tests.compiler.hlo.compare import assert_close
from tests.corpus.load import INDEX, load

# Several devices: `test_evaluator_devices_xla.py`.
WITHOUT = {"shardmap_psum_allgather_a2a_ppermute"}
# The same network on small images takes a twentieth of the time.
LARGE = {"resnet18_infer_224", "resnet50_infer_224"}
STORED = [n for n, entry in INDEX.items() if entry["expected"] == "stored" and n not in WITHOUT]
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in STORED]
BF16_RESULTS = {"gpt2_block_bf16": 2e-2, "mlp_infer_bf16": 2e-2}


def run(name: str, text: str) -> None:
    case = load(name)
    module = parse_hlo(text, name)
    verify(module)
    actual = evaluate(module, *case.args, precision="highest")
    leaves = list(module.entry.result.shape.leaves())
    assert len(actual) == len(case.expected)
    for number, (a, b, leaf) in enumerate(zip(actual, case.expected, leaves, strict=True)):
        assert_close(a, from_file(b, leaf), BF16_RESULTS.get(name, 1e-5), f"{name}, result {number}")


@pytest.mark.parametrize("name", NAMES)
def test_corpus(name: str) -> None:
    run(name, load(name).text)


@pytest.mark.parametrize("name", NAMES)
def test_optimized_corpus(name: str) -> None:
    run(name, load(name).optimized_text)


DOT = """HloModule m
ENTRY main {{
  a = f32[16,64] parameter(0)
  b = f32[64,16] parameter(1)
  ROOT c = f32[16,16] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{more}
}}
"""


def test_precision_is_what_the_dot_asks_for_unless_overridden() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, 64), (64, 16)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b)

    def error(more: str, precision: str | None = None) -> float:
        (result,) = evaluate(parse_hlo(DOT.format(more=more)), a, b, precision=precision)
        return float(np.max(np.abs(result - exact) / bound))

    assert 2**-12 < error("") < 2**-8
    assert error("", "highest") < 2**-23
    assert 2**-24 < error(", operand_precision={high,high}") < 2**-16
    assert error(", operand_precision={default,highest}") < 2**-23
    assert error(", operand_precision={highest,highest}", "default") == error("")
    assert error(", algorithm=dot_bf16_bf16_f32_x3") == error("", "high")
    with pytest.raises(HloError, match=r"expected one of dot_any_f8.*, got 'dot_x'"):
        error(", algorithm=dot_x")
    rounded = round_bf16(a).astype(np.float64) @ round_bf16(b)
    (default,) = evaluate(parse_hlo(DOT.format(more="")), a, b)
    np.testing.assert_array_equal(default, rounded.astype(np.float32))


@pytest.mark.parametrize("precision", ["default", "high", "highest"])
def test_infinities_go_through_every_precision(precision: str) -> None:
    a, b = np.ones((16, 64), np.float32), np.ones((64, 16), np.float32)
    a[0, 0], a[1, 0], b[0, 1] = np.inf, np.nan, -1
    (result,) = evaluate(parse_hlo(DOT.format(more="")), a, b, precision=precision)
    assert result[0, 0] == np.inf
    assert result[0, 1] == -np.inf
    assert np.isnan(result[1]).all()


def test_s8_dot_is_exact_and_s32_wraps() -> None:
    text = (
        DOT.format(more="")
        .replace("f32[16,64]", "{t}[16,64]")
        .replace("f32[64,16]", "{t}[64,16]")
        .replace("f32", "s32")
    )
    rng = np.random.default_rng(1)
    for dtype, low, high in (("s8", -128, 127), ("s32", -(2**31), 2**31 - 1)):
        a, b = (rng.integers(low, high, s, endpoint=True, dtype=np.int64) for s in ((16, 64), (64, 16)))
        stored = np.dtype(f"int{dtype[1:]}")
        (result,) = evaluate(parse_hlo(text.replace("{t}", dtype)), a.astype(stored), b.astype(stored))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(result, (a @ b).astype(np.int32))


def test_observe_sees_every_instruction_of_the_entry() -> None:
    case = load("lstm_scan")
    module = parse_hlo(case.text)
    seen: dict[str, Literal] = {}

    def observe(instruction: Instruction, value: Literal) -> None:
        seen[instruction.name] = value

    results = evaluate(module, *case.args, observe=observe)
    assert list(seen) == [i.name for i in module.entry.instructions]
    root = seen[module.entry.result.name]
    assert isinstance(root, tuple)
    np.testing.assert_array_equal(root[0], results[0])


def test_one_computation() -> None:
    module = parse_hlo("""HloModule m
double { x = f32[3] parameter(0) ROOT y = f32[3] add(x, x) }
ENTRY main { x = f32[3] parameter(0) ROOT y = f32[3] call(x), to_apply=double }
""")
    value = evaluate_computation(module.computation("double"), [np.array([1, 2, 3], np.float32)])
    np.testing.assert_array_equal(np.asarray(value), [2, 4, 6])


def test_arguments_are_checked() -> None:
    module = parse_hlo(DOT.format(more=""), "dot.hlo")
    a, b = np.zeros((16, 64), np.float32), np.zeros((64, 16), np.float32)
    for arguments, message in (
        ((a,), "'m' takes 2 arrays, got 1"),
        ((b, a), r"argument 0 of 'm': expected f32\[16,64\], got an array of sizes \[64, 16\]"),
        ((a.astype(np.float64), b), r"argument 0 of 'm': expected f32\[16,64\], got an array of float64"),
    ):
        with pytest.raises(HloError, match=message):
            evaluate(module, *arguments)
    with pytest.raises(HloError, match="unknown precision 'low'; known: default, high, highest"):
        evaluate(module, a, b, precision="low")


def test_what_cannot_be_evaluated_names_the_instruction() -> None:
    text = (
        'HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] custom-call(x), custom_call_target="t"\n}'
    )
    with pytest.raises(HloError, match=r"m.hlo:4:3: custom-call 'y' \(f32\[2\]\): no custom-call target 't' is"):
        evaluate(parse_hlo(text, "m.hlo"), np.zeros(2, np.float32))


def test_too_large_an_array_is_an_error_not_a_crash() -> None:
    text = """HloModule m
ENTRY e {
  z = f32[] constant(0)
  b = f32[999999999,999999] broadcast(z), dimensions={}
  ROOT y = f32[999999999,999999] exponential(b)
}"""
    with pytest.raises(HloError, match="exponential 'y'"):
        evaluate(parse_hlo(text))


def test_bf16_rounds_after_every_operation() -> None:
    text = """HloModule m
ENTRY e {
  a = bf16[] constant(256)
  b = bf16[] constant(1)
  c = bf16[] add(a, b)
  d = bf16[] subtract(c, a)
  ROOT t = (bf16[], bf16[]) tuple(c, d)
}"""
    c, d = evaluate(parse_hlo(text))
    assert (float(c), float(d)) == (256, 0)


def test_files_hold_bf16_as_bits() -> None:
    text = "HloModule m\nENTRY e { x = bf16[2] parameter(0) ROOT y = bf16[2] negate(x) }"
    (result,) = evaluate(parse_hlo(text), np.array([0x3F80, 0xC000], np.uint16))
    np.testing.assert_array_equal(to_file(result), np.array([0xBF80, 0x4000], np.uint16))


def test_custom_calls_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.compiler.hlo.values.custom_calls.CUSTOM_CALLS", {})
    register("twice", lambda i, operands: np.asarray(operands[0]) * 2)
    text = 'HloModule m\nENTRY e { x = s32[2] parameter(0) ROOT y = s32[2] custom-call(x), custom_call_target="twice" }'
    (result,) = evaluate(parse_hlo(text), np.array([1, 2], np.int32))
    np.testing.assert_array_equal(result, [2, 4])
    with pytest.raises(HloError, match="'twice' is registered already"):
        register("twice", lambda i, operands: operands[0])


def test_an_error_inside_a_callee_names_the_inner_instruction_once() -> None:
    text = """HloModule m
inner { a = f32[2] parameter(0) ROOT b = f32[2] custom-call(a), custom_call_target="t" }
ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] call(x), to_apply=inner }
"""
    with pytest.raises(HloError) as caught:
        evaluate_computation(parse_hlo(text).entry, [np.zeros(2, np.float32)])
    assert str(caught.value).startswith("<string>:2:1: custom-call 'b' (f32[2]): no custom-call target 't'")
