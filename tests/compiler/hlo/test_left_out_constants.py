"""Constants whose values the text leaves out (`{...}`): kept, equal to none, refused where a value is needed."""

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo import HloError, evaluate, parse_hlo, print_hlo, verify
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.isa.chip import load_chip
from tests.compiler.hlo.test_parser_xla import options, xla_parse

TEXT = """HloModule m, entry_computation_layout={()->f32[4,8]{1,0}}

ENTRY %e () -> f32[4,8] {
  %a = f32[4,8]{1,0} constant({...})
  %b = f32[4,8]{1,0} constant({...})
  ROOT %c = f32[4,8]{1,0} add(%a, %b)
}
"""


def test_the_text_that_xla_prints_by_default_comes_back() -> None:
    filled = xla_parse(TEXT)
    defaults = options()
    defaults.print_large_constants = False
    assert filled.to_string(defaults).strip() == TEXT.strip()
    module = parse_hlo(TEXT, left_out=True)
    verify(module)
    assert print_hlo(module).strip() == TEXT.strip()


def test_they_are_refused_unless_asked_for() -> None:
    with pytest.raises(HloError, match=r"values are left out.*print the module with large constants") as problem:
        parse_hlo(TEXT)
    assert problem.value.place is not None
    assert problem.value.place.line == 4


@pytest.mark.parametrize("text", ["f32[12] constant({ ... })", "(f32[12], s32[3]) constant({...})"])
def test_forms(text: str) -> None:
    module = parse_hlo(text, left_out=True)
    verify(module)
    assert "constant({...})" in print_hlo(module)


@pytest.mark.parametrize("text", ["f32[] constant({...})", "f32[2,2] constant({{...}, {...}})"])
def test_what_xla_does_not_print(text: str) -> None:
    assert xla_parse(text) is None
    with pytest.raises(HloError):
        parse_hlo(text, left_out=True)


def test_no_two_are_equal() -> None:
    module = parse_hlo(TEXT, left_out=True)
    assert not MergeCommon().run(module)
    canonicalise(module)
    assert [i.opcode for i in module.entry.instructions] == ["constant", "constant", "add"]


def test_values_are_refused_by_name() -> None:
    refusal = r"constant 'a' \(f32\[4,8\]\): its values are left out of the text"
    with pytest.raises(HloError, match=refusal):
        evaluate(parse_hlo(TEXT, left_out=True))
    with pytest.raises(CompileError, match=refusal.replace(r"\]\)", r"\].*\)")):
        compile_module(parse_hlo(TEXT, left_out=True), load_chip("tiny"))
