"""Spellings that XLA's parser takes, and mistakes that it refuses, beyond XLA's own output."""

import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo, print_hlo, verify
from systolith.compiler.hlo.shape import MAX_ELEMENTS, MAX_RANK, array
from systolith.isa.dtypes import F32
from tests.compiler.hlo.test_parser_xla import xla_parse

pytest.importorskip("jax")


def entry(body: str) -> str:
    return f"HloModule m\nENTRY e {{\n{body}\n}}"


def ours(text: str) -> str | None:
    try:
        verify(module := parse_hlo(text))
    except HloError:
        return None
    return print_hlo(module)


@pytest.mark.parametrize(
    "shape_and_value",
    ["f32[8,2048] constant(0)", "f32[2,2] constant(1.5)", "s4[3] constant(-7)", "pred[3] constant(true)",
     "f32[2]{0} constant(-inf)", "f8e3m4[1,2] constant(2)", "(f32[2], s32[]) constant((1, 2))"],
)  # fmt: skip
def test_one_value_for_an_array_is_its_first_element(shape_and_value: str) -> None:
    text = entry(f"ROOT c = {shape_and_value}")
    theirs = xla_parse(text)
    assert theirs is not None
    first, *_ = evaluate(parse_hlo(text))
    assert not first.reshape(-1)[1:].any()
    if "(" not in shape_and_value.split()[0] and first.size <= 10:
        assert parse_hlo(theirs.to_string()).entry.result.literal == pytest.approx(first)


@pytest.mark.parametrize("value", ["f32[2,0] constant(1)", "c64[2] constant((1,2))", "c64[2] constant(1)",
                                   "f32[2] constant()", "f32[2] constant({1})", "s32[2] constant(2.5)"])  # fmt: skip
def test_values_that_are_none_of_an_array(value: str) -> None:
    text = entry(f"ROOT c = {value}")
    assert xla_parse(text) is None
    assert ours(text) is None


DOT = "f32[2,2] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CAPITALS = {
    f"{DOT}, operand_precision={{HIGH,Highest}}": "operand_precision={high,highest}",
    f"{DOT}, algorithm=DOT_BF16_BF16_F32": "algorithm=dot_bf16_bf16_f32",
    "f32[2,2] exponential(a), result_accuracy={mode=HIGHEST}": "",
    "f32[2,2] exponential(a), result_accuracy={mode=Default}": "",
    "f32[2,2] rng(a, a), distribution=RNG_UNIFORM": "distribution=rng_uniform",
    'f32[2,2] custom-call(a), custom_call_target="t", schedule=schedule_latest': "schedule=SCHEDULE_LATEST",
    'f32[2,2] custom-call(a), custom_call_target="t", api_version=api_version_typed_ffi': "API_VERSION_TYPED_FFI",
}


@pytest.mark.parametrize("operation", CAPITALS)
def test_capitals_say_nothing_where_xla_does_not_look_at_them(operation: str) -> None:
    text = entry(f"a = f32[2,2] parameter(0)\nROOT r = {operation}")
    theirs = xla_parse(text)
    assert theirs is not None
    assert CAPITALS[operation] in theirs.to_string()
    module = parse_hlo(text)
    assert CAPITALS[operation] in print_hlo(module)


@pytest.mark.parametrize(
    "operation",
    [f"{DOT}, operand_precision={{HIGHER,HIGH}}", "f32[2,2] exponential(a), result_accuracy={mode=HIGH}",
     "pred[2,2] compare(a, a), direction=lt", "f32[2,2] fusion(a), kind=kloop, calls=f",
     'f32[2,2] custom-call(a), custom_call_target="t", padding_type=padding_valid'],
)  # fmt: skip
def test_words_that_are_none_and_capitals_that_count(operation: str) -> None:
    text = entry(f"a = f32[2,2] parameter(0)\nROOT r = {operation}")
    assert xla_parse(text) is None
    assert ours(text) is None


@pytest.mark.parametrize(
    ("constraints", "good"),
    [("f32[2]{0}", True), ("f32[2]", True), ("", False), ("f32[3]{0}", False), ("s32[2]{0}", False),
     ("f32[2]{0}, f32[2]{0}", False)],
)  # fmt: skip
def test_operand_layout_constraints_are_of_the_operands(constraints: str, good: bool) -> None:
    call = f'custom-call(a), custom_call_target="t", operand_layout_constraints={{{constraints}}}'
    text = entry(f"a = f32[2] parameter(0)\nROOT r = f32[2] {call}")
    assert (xla_parse(text) is not None) == good
    assert (ours(text) is not None) == good


@pytest.mark.parametrize(
    ("start", "done", "good"),
    [("foo", "foo", True), ("foo", None, True), (None, "main", True), ("foo", "bar", False), (None, "bar", False)],
)
@pytest.mark.parametrize("short", [False, True])
def test_both_ends_of_an_asynchronous_call_are_in_one_thread(
    start: str | None, done: str | None, good: bool, short: bool
) -> None:
    first, last = (f', async_execution_thread="{t}"' if t else "" for t in (start, done))
    opcode, calls = ("negate", "") if short else ("async", ", calls=c")
    text = f"""HloModule m
c {{
  p = f32[2] parameter(0)
  ROOT n = f32[2] negate(p)
}}
ENTRY e {{
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) {opcode}-start(x){first}{calls}
  ROOT d = f32[2] {opcode}-done(s){last}
}}"""
    assert (xla_parse(text) is not None) == good
    assert (ours(text) is not None) == good


def test_an_infeed_without_data_and_token_is_refused() -> None:
    with pytest.raises(HloError, match=r"the result is \(data, token\), got \(\)"):
        verify(parse_hlo(entry("t = token[] after-all()\nROOT i = () infeed(t)")))


def test_limits_of_shapes() -> None:
    ones = ",".join(["1"] * MAX_RANK)
    assert ours(entry(f"ROOT x = f32[{ones}] parameter(0)")) is not None
    for dims in (f"{ones},1", f"{ones},1,<=2", ",".join(["0"] * 10_000)):
        with pytest.raises(HloError, match=r"m:3:10: an array has at most 64 dimensions, this one"):
            parse_hlo(entry(f"ROOT x = f32[{dims}] constant({{...}})"), "m")
    with pytest.raises(HloError, match=r"one value stands for at most 4194304 elements; use a broadcast"):
        parse_hlo(entry("ROOT x = f32[9999999999] constant(0)"))
    many = f"({','.join(['f32[]'] * (MAX_ELEMENTS + 1))})"
    with pytest.raises(HloError, match=r"m:3:.*: a tuple has at most 65536 elements"):
        parse_hlo(entry(f"ROOT x = {many} parameter(0)"), "m")
    module = parse_hlo(entry("ROOT x = f32[1] parameter(0)"))
    module.entry.result.shape = array(F32, (1,) * (MAX_RANK + 1))
    with pytest.raises(HloError, match="an array has at most 64 dimensions, this one 65"):
        verify(module)
