"""Any text at all: parser, verifier and printer end with a module or an `HloError`, soon, and with little memory.

Texts with a few tokens changed are in tests/fuzz/hlo_text.py.
"""

from collections.abc import Callable
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, parse_hlo, print_hlo, verify
from systolith.compiler.hlo.ir import Module
from tests.compiler.hlo.text_cases import texts
from tests.corpus.load import HERE
from tests.examples import examples
from tests.fuzz.hlo_text import SOUP

CASES = [text for text in texts() if text]
CORPUS = [path.read_text() for path in sorted(HERE.glob("*.hlo")) if path.stat().st_size < 6000]


def refusal(step: Callable[[], object]) -> HloError | None:
    """The error that a step raises, which is short; nothing but an `HloError` may be raised."""
    try:
        step()
    except HloError as problem:
        return problem
    return None


def survives(text: str) -> bool:
    """Whether a text is a module; that its errors are short; and that a module prints, parses and prints the same."""
    found: list[Module] = []
    problem = refusal(lambda: found.append(parse_hlo(text)))
    if found:
        again = print_hlo(found[0])
        assert print_hlo(parse_hlo(again)) == again
        problem = refusal(lambda: verify(found[0]))
    if problem is not None:
        assert "\n" not in str(problem)
        assert len(problem.detail) < 3000
    return bool(found)


@examples(50, 300)
@given(st.text(max_size=200), st.sampled_from(CASES), st.integers(0, 400))
def test_texts_in_texts(noise: str, text: str, at: int) -> None:
    survives(noise)
    survives(text[:at] + noise + text[at:])


@examples(100, 300)
@given(
    st.lists(st.sampled_from(SOUP), max_size=60), st.sampled_from(["", "HloModule m\n", "HloModule m\nENTRY e { x = "])
)
def test_soup(tokens: list[str], head: str) -> None:
    survives(head + " ".join(tokens))


def test_every_cut_of_a_text() -> None:
    text = CORPUS[0]
    for at in range(0, len(text), 7):
        survives(text[:at])


def body(line: str) -> str:
    return f"HloModule m\nENTRY e {{\n x = f32[4] parameter(0)\n{line}\n}}\n"


NINES = "9" * 300_000
HOSTILE = {
    "a huge shape": body("y = f32[999999999,999999999] add(x, x)"),
    "a literal of a huge shape": body("y = f32[999999999,999999999] constant({1})"),
    "a literal of a huge empty shape": body("y = f32[999999999,0] constant({})"),
    "huge device groups": body(
        "y = f32[4] all-to-all(x), replica_groups=[1000000000,1000000000]<=[1000000000000000000]"
    ),
    "a huge mesh": body("y = f32[4] all-to-all(x), replica_groups=mesh['a'=1000000000,'b'=1000000000] {'b'}"),
    "a huge sharding": body("y = f32[4] abs(x), sharding={devices=[1000000000,1000000000]<=[1000000000000000000]}"),
    "a long size": body(f"y = f32[{NINES}] parameter(1)"),
    "a long number": body(f"y = f32[4] parameter({NINES})"),
    "a long integer": body(f"y = s32[] constant({NINES})"),
    "a long float": body(f"y = f32[1] constant({{{NINES}.0}})"),
    "a huge exponent": body("y = f64[] constant(1e99999999999999999999)"),
    "round brackets": "(" * 300_000,
    "braces": "HloModule m, frontend_attributes=" + "{" * 300_000,
    "a deep shape": body("y = " + "(" * 300_000),
    "deep operands": body("y = f32[4] " + "abs(" * 100_000),
    "deep computations": "HloModule m\nENTRY e { x = f32[] call(), to_apply={ "
    + "y = f32[] call(), to_apply={ " * 50_000,
    "a deep literal": body("y = f32[2,2] constant(" + "{" * 300_000),
    "garbage": "garbage line here\n" * 300_000,
    "garbage in a module": "HloModule m\n" + "garbage line here\n" * 300_000,
    "commas": "HloModule m" + "," * 1_000_000,
    "NUL": "HloModule m\0\nENTRY e { x = f32[] parameter(0) }",
    "a surrogate": body('y = f32[4] abs(x), metadata={op_name="\ud800\\303"}'),
    "digits that are not ASCII": body("y = f32[٣] constant({٣, 1_0})"),
    "an open string": 'HloModule m, frontend_attributes={a="' + "\\" * 1_000_001,
    "an open comment": "HloModule m /*" + "*" * 1_000_000,
    "comments": "HloModule m " + "/**/" * 300_000,
    "slashes": "/" * 1_000_000,
    "a long line": body('y = f32[4] abs(x), metadata={op_name="' + "a" * 3_000_000 + '"}, bogus=1'),
    "a wide tuple": body("y = (" + "f32[]," * 30_000 + "f32[]) parameter(1)"),
    "a high rank": body(f"y = f32[{','.join(['1'] * 1000)}] constant({'{' * 1000}1{'}' * 1000})"),
    "a long layout": body(f"y = f32[1]{{{','.join(['0'] * 100_000)}}} parameter(1)"),
    "a wide window": body(f"y = f32[1] reduce-window(x, x), to_apply=e, window={{size={'x'.join(['1'] * 50_000)}}}"),
    "many labels": body(f"y = f32[1] convolution(x, x), dim_labels={'?' * 1_000_000}_io->bf"),
    "quotes": '"' * 1_000_000,
    "a long payload": body(f"y = f32[2] constant({{nan(0x{'f' * 1_000_000}), 1}})"),
    "closing braces": body("y = f32[2] constant({1,2" + "}" * 1_000_000),
    "many operands in place": body(f"y = tuple({','.join(['abs(x)'] * 3000)})"),
    "no such operand": "HloModule m\nENTRY e {\n"
    + "".join(f"x{i} = f32[] parameter({i})\n" for i in range(20_000))
    + "y = abs(x) }",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_end_soon(name: str) -> None:
    started = process_time()
    survives(HOSTILE[name])
    assert process_time() - started < 5


def test_the_excerpt_of_a_long_line_is_short() -> None:
    with pytest.raises(HloError) as caught:
        parse_hlo(HOSTILE["a long line"])
    window, caret = caught.value.excerpt.split("\n")
    assert len(window) < 130
    assert window[caret.index("^")] == "b"
