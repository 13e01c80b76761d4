"""HLO text to IR: the grammar, literals, and errors that name the place and the expected token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from systolith.compiler.hlo import HloError, parse_hlo, print_hlo, verify
from systolith.compiler.hlo.attributes import PadDim, Raw, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Module, ProgramShape
from tests.corpus.load import HERE, load
from tests.examples import examples

TEXT = """HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2]{0}}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT sum = f32[2]{0} reduce(x, zero), dimensions={1}, to_apply=add, metadata={op_name="jit(f)/sum" source_line=7}
}

"""


def entry(body: str, head: str = "") -> Module:
    """A module whose entry computation has these lines."""
    return parse_hlo(f"HloModule m\n{head}\nENTRY main {{\n{body}\n}}\n")


def literal(shape: str, text: str) -> np.ndarray:
    value = entry(f"ROOT c = {shape} constant({text})").entry.result.literal
    assert isinstance(value, np.ndarray)
    return value


def test_module() -> None:
    module = parse_hlo(TEXT, "sum.hlo")
    assert module.name == "m"
    assert [c.name for c in module.computations] == ["add", "main"]
    assert module.entry.name == "main"
    layout = module.attributes["entry_computation_layout"]
    assert isinstance(layout, ProgramShape)
    assert str(layout.result) == "f32[2]"
    root = module.entry.result
    assert (root.opcode, root.dims, root.line) == ("reduce", (2,), 12)
    assert [o.name for o in root.operands] == ["x", "zero"]
    assert root.ints("dimensions") == (1,)
    assert root.computation() is module.computations[0]
    assert root.metadata == {"op_name": "jit(f)/sum", "source_line": 7}
    verify(module)


def test_percent_signs_signatures_comments_and_repeated_operand_shapes() -> None:
    text = """HloModule m, is_scheduled=true

FileNames
1 "f.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

// a comment
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(f32[] %a, /*index=1*/f32[] %b)
}

ENTRY %main (x: f32[4]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[] reduce(f32[4]{0} %x, f32[] %zero), dimensions={0}, to_apply=%add
}, execution_thread="main"
"""
    module = parse_hlo(text)
    verify(module)
    assert module.style.percent
    assert module.style.signatures
    assert module.entry.attributes == {"execution_thread": "main"}
    assert 'FileNames\n1 "f.py"' in print_hlo(module)


def test_computations_may_stand_after_their_callers() -> None:
    head, tail = TEXT.split("add {")
    callee, caller = tail.split("ENTRY")
    module = parse_hlo(f"{head}ENTRY{caller}add {{{callee}")
    assert module.entry.result.computation().name == "add"
    assert [c.name for c in module.post_order()] == ["add", "main"]


def test_attributes() -> None:
    body = """x = f32[8,9]{0,1:T(8,128)S(1)} parameter(0)
        zero = f32[] constant(0)
        s = f32[3,4] slice(x), slice={[1:4], [0:8:2]}
        p = f32[6,9] pad(s, zero), padding=-1_4x2_0_1
        w = f32[3,4] reduce-window(p, zero), window={size=2x3 stride=2x2 pad=0_0x1_0 rhs_dilate=1x1}, to_apply=add
        q = f32[3,4] custom-call(w), custom_call_target="t\\"q", backend_config={"a":[1,"}"]}
        ROOT d = f32[3,3] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}, """
    body += "operand_precision={high,highest}"
    module = entry(body, "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }")
    verify(module)
    x, _, s, p, w, q, d = module.entry.instructions
    assert x.shape.layout is not None
    assert (x.shape.layout.minor_to_major, x.shape.layout.suffix) == ((0, 1), ":T(8,128)S(1)")
    assert s.slices == (SliceDim(1, 4), SliceDim(0, 8, 2))
    assert p.attributes["padding"] == (PadDim(-1, 4), PadDim(2, 0, 1))
    assert w.window.dims[1] == WindowDim(3, stride=2, low=1)
    assert q.word("custom_call_target") == 't"q'
    assert q.attributes["backend_config"] == Raw('{"a":[1,"}"]}')
    assert d.words("operand_precision") == ("high", "highest")
    assert print_hlo(parse_hlo(print_hlo(module))) == print_hlo(module)


def test_shapes() -> None:
    module = entry("ROOT t = ((f32[], s4[<=3,2]), token[], opaque[], c128[0]) parameter(0)")
    shape = module.entry.result.shape
    assert [str(s) for s in shape.leaves()] == ["f32[]", "s4[<=3,2]", "token[]", "opaque[]", "c128[0]"]
    assert shape.is_dynamic
    assert not shape.elements[3].is_dynamic


def test_huge_shapes_cost_nothing() -> None:
    module = entry("x = f32[999999999,999999999] parameter(0)\nROOT y = f32[999999999,999999999] add(x, x)")
    verify(module)
    assert module.entry.result.shape.size == 999999999**2


@pytest.mark.parametrize(
    ("shape", "text", "expected"),
    [
        ("f32[5]", "{nan, -inf, inf, -0, 0.3e+1}", [np.nan, -np.inf, np.inf, -0.0, 3.0]),
        ("f32[2,2]", "{ { 1, 2e-3 }, { /*i=1*/ 0.5, -4. } }", [[1, 2e-3], [0.5, -4]]),
        ("s64[2]", "{-9223372036854775808, 9223372036854775807}", [-(2**63), 2**63 - 1]),
        ("s64[2]", "{9223372036854775808, 5}", [-(2**63), 5]),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("pred[3]", "{true, 0, 1}", [True, False, True]),
        ("pred[]", "false", False),
        ("c64[2]", "{(1, -2), (nan, inf)}", [1 - 2j, complex(np.nan, np.inf)]),
        ("s4[2]", "{-8, 7}", [-8, 7]),
        ("f8e4m3fn[2]", "{448, -0.5}", [448, -0.5]),
        ("f32[0]", "{}", []),
        ("f32[2,0]", "{ {}, {} }", [[], []]),
        ("f32[0,3]", "{  }", np.zeros((0, 3))),
    ],
)
def test_literals(shape: str, text: str, expected: ArrayLike) -> None:
    value = literal(shape, text)
    np.testing.assert_array_equal(value, np.asarray(expected).astype(value.dtype))
    assert value.ndim == np.ndim(expected)


def test_sign_and_payload_of_nan_are_kept() -> None:
    value = literal("f32[3]", "{-nan, nan(0x400001), nan}")
    assert [hex(b) for b in value.view(np.uint32)] == ["0xffc00000", "0x7fc00001", "0x7fc00000"]
    assert "{-nan, nan(0x400001), nan}" in print_hlo(entry("ROOT c = f32[3] constant({-nan, nan(0x400001), nan})"))


def test_tuple_literals() -> None:
    module = entry("ROOT c = (f32[], (s32[2], pred[])) constant((1.5, ({1, 2}, true)))")
    value = module.entry.result.literal
    assert isinstance(value, tuple)
    assert "constant(( 1.5, ( {1, 2}, true ) ))" in print_hlo(module)
    verify(module)


BAD = [
    ("", "m.hlo:1:1: expected an HLO module, but the text is empty"),
    ("   \n", "m.hlo:1:1: expected an HLO module, but the text is empty"),
    ("hello", "m.hlo:1:1: expected 'HloModule' at the start of an HLO module, got 'hello'"),
    ("HloModule m\n", "m.hlo:1:12: expected a computation, but the text ends here"),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[2] add(x, x)\n}",
        "m.hlo:3:23: operand 'x' is not defined above in this computation",
    ),
    (
        "HloModule m\nENTRY e {\n  arg0 = f32[2] parameter(0)\n  ROOT a = f32[2] negate(arg)\n}",
        "m.hlo:4:26: operand 'arg' is not defined above in this computation; did you mean 'arg0'?",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f33[2] parameter(0)\n}",
        "m.hlo:3:12: unknown element type 'f33'; known: pred, s4, s8, s16, s32, s64, u4, u8, u16, u32, u64, f8e4m3fn, "
        "f8e5m2, f8e4m3fnuz, f8e5m2fnuz, bf16, f16, f32, f64, c64, c128, s1, s2, u1, u2, f4e2m1fn, f8e3m4, f8e4m3, "
        "f8e4m3b11fnuz, f8e8m0fnu",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[2,x] parameter(0)\n}",
        "m.hlo:3:18: expected a size such as 8, <=8 or ? in a shape, got 'x'",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[2]{1} parameter(0)\n}",
        "m.hlo:3:18: expected a layout that is a permutation of 0 to 0, got {1}",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a",
        "m.hlo:4:24: expected ',' or ')' in the operands of add, but the text ends here",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n",
        "m.hlo:3:26: expected '}' to end computation 'e', but the text ends here",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a)\n}",
        "m.hlo:4:19: add takes 2 operands, got 1",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] negate(f32[3] a)\n}",
        "m.hlo:4:33: operand 'a' is stated as f32[3], but it has shape f32[2]",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  a = f32[2] negate(a)\n}",
        "m.hlo:4:3: instruction 'a' is there already, on line 3",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[2] constant({1, 2, 3})\n}",
        "m.hlo:3:28: a literal of shape f32[2] has 2 elements, this one 3",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[2,2] constant({1, 2, 3, 4})\n}",
        "m.hlo:3:30: braces of the literal do not agree with shape f32[2,2]",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = u8[] constant(1), metadata={source_line=1",
        "m.hlo:3:53: expected key=value in metadata, but the text ends here",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = u8[] constant(256)\n}",
        "m.hlo:3:26: in a literal of shape u8[]: 256 does not fit u8 (0 to 255)",
    ),
    (
        "HloModule m\nENTRY e {\n  ROOT a = f32[] constant(1e39)\n}",
        "m.hlo:3:27: in a literal of shape f32[]: 1e39 does not fit f32",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] reverse(a), dimensions={zero}\n}",
        "m.hlo:4:43: expected an integer, got 'zero'",
    ),
    (
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] map(a), dimensions={0}, to_apply=f\n}",
        "m.hlo:4:52: computation 'f' is not defined",
    ),
    (
        "HloModule m\nENTRY e (a: f32[2]) -> f32[3] {\n  ROOT a = f32[2] parameter(0)\n}",
        "m.hlo:2:7: the signature of 'e' states result f32[3], its root has f32[2]",
    ),
    (
        "HloModule m\nENTRY e {\n  a = c64[2] parameter(0)\n  ROOT b = c64[2] fft(a), fft_type=DFT, fft_length={2}\n}",
        "m.hlo:4:36: expected one of FFT, IFFT, RFFT, IRFFT, got 'DFT'",
    ),
    (
        "HloModule m\nENTRY a { ROOT x = f32[] parameter(0) }\nENTRY b { ROOT x = f32[] parameter(0) }",
        "m.hlo:3:1: 'a' is marked ENTRY already; a module has exactly one",
    ),
    (
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT a = f32[2] negat(x)\n}",
        "m.hlo:4:19: XLA has no operation 'negat'; did you mean 'negate'?",
    ),
    (
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(x), dimension={0}\n}",
        "m.hlo:4:31: reverse has no attribute 'dimension'; did you mean 'dimensions'?",
    ),
    (
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT a = f32[2] reverse(x)\n}",
        "m.hlo:4:19: reverse has no attribute 'dimensions', which it needs",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_error_messages(text: str, message: str) -> None:
    with pytest.raises(HloError) as caught:
        parse_hlo(text, "m.hlo")
    assert str(caught.value) == message
    assert "\n" not in str(caught.value)


def test_detail_shows_the_line_and_a_caret() -> None:
    with pytest.raises(HloError) as caught:
        parse_hlo("HloModule m\nENTRY e {\n  ROOT a = f32[2] negate(x)\n}", "m.hlo")
    assert caught.value.detail.splitlines()[1:] == [
        "    ROOT a = f32[2] negate(x)",
        "                           ^",
    ]


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    for text in ("(" * 100_000, "HloModule m\nENTRY e {\n a = " + "(" * 100_000, "HloModule m, x=" + "{" * 100_000):
        with pytest.raises(HloError):
            parse_hlo(text)


SEEDS = [load(name).text for name in ("lstm_scan", "cond_switch", "complex_ops")] + [TEXT]
SEEDS.append((HERE / "cond_switch.opt.hlo").read_text())


@examples(50, 150)
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_text_gives_an_error_and_nothing_else(text: str, case: st.DataObject) -> None:
    at = case.draw(st.integers(0, len(text)))
    cut = case.draw(st.integers(0, 20))
    put = case.draw(st.sampled_from(["", *'{}()[],"%=é', "-1", "99999999999999999999", "nan", "/*"]))
    damaged = text[:at] + put + (text[at + cut :] if case.draw(st.booleans()) else "")
    problem: HloError | None = None
    try:
        module = parse_hlo(damaged)
        verify(module)
        assert print_hlo(parse_hlo(print_hlo(module))) == print_hlo(module)
    except HloError as raised:
        problem = raised
    assert "\n" not in str(problem)


def test_short_and_long_forms_of_asynchronous_calls_are_one_in_memory() -> None:
    shape = "((f32[8]), f32[4], u32[])"
    tail = f"u = {shape} #-update(s)\n ROOT d = f32[4] #-done(u)"
    x = "x = f32[8] parameter(0)\n"
    short = entry(f"{x} s = {shape} slice-start(x), slice={{[0:4]}}\n {tail.replace('#', 'slice')}")
    callee = "half { p = f32[8] parameter(0)\n ROOT r = f32[4] slice(p), slice={[0:4]} }"
    long = entry(f"{x} s = {shape} async-start(x), calls=half\n {tail.replace('#', 'async')}", callee)
    for module in (short, long):
        start, update, done = module.entry.instructions[1:]
        assert [i.opcode for i in (start, update, done)] == ["async-start", "async-update", "async-done"]
        assert start.computation("calls").result.slices == (SliceDim(0, 4),)
        assert start.computation("calls").parameters[0].dims == (8,)
        assert not update.called
        assert not done.called
    assert "slice-start(x), slice={[0:4]}" in print_hlo(short)
    assert "async_wrapped" not in print_hlo(short)
    assert "async-start(x), calls=half" in print_hlo(long)
    assert "slice-done(u)" in print_hlo(long, short.style)


def test_what_is_written_in_place_gets_a_name() -> None:
    module = parse_hlo('f32[8] add(f32[8] x, abs(f32[8])), metadata={op_name="a"}')
    assert [i.name for i in module.entry.instructions] == ["x", "_1", "abs.anon", "_"]
    assert [i.number for i in module.entry.parameters] == [0, 1]
    nested = "calls={ p = f32[8] parameter(0) ROOT q = abs(p) }"
    module = entry(f"x = f32[8] parameter(0)\n ROOT y = f32[8] fusion(x), kind=kLoop, {nested}")
    assert module.entry.result.computation("calls").name == "_"
    assert module.entry.result.computation("calls").result.dims == (8,)


def test_strings_are_held_without_escapes() -> None:
    root = entry(
        r"""ROOT x = f32[] parameter(0), metadata={op_name="\"\n\303\251\377"}, frontend_attributes={a="\t",b={c}}"""
    )
    attributes = root.entry.result.attributes
    assert attributes["metadata"] == {"op_name": '"\n\N{LATIN SMALL LETTER E WITH ACUTE}\udcff'}
    assert attributes["frontend_attributes"] == {"a": "\t", "b": Raw("{c}")}
    assert r'op_name="\"\n\303\251\377"' in print_hlo(root)
