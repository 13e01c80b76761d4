"""Refusals name file, line and column of their subject, from whichever part of the compiler they come."""

from __future__ import annotations

import re

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import PRESETS, Chip, load_chip, parse_chip
from tests.corpus.load import load

WIDE = parse_chip(
    (PRESETS / "tiny.toml").read_text().replace("wide = { value = false", "wide = { value = true"), "wide"
)
TINY = load_chip("tiny")
# Refused modules, on which chip: `@` is the line that is to blame.
REFUSED = {
    "an opcode": (
        TINY,
        " t = token[] after-all()\n@ s = (f32[8], u32[], token[]) send(x, t), channel_id=1\n"
        " ROOT r = token[] send-done(s), channel_id=1",
    ),
    "a custom call": (TINY, '@ ROOT r = f32[8] custom-call(x), custom_call_target="nobody"'),
    "64-bit arithmetic": (
        WIDE,
        " s = u64[2] constant({1, 2})\n@ z = (u64[2], pred[8]) rng-bit-generator(s), algorithm=rng_three_fry\n"
        " p = pred[8] get-tuple-element(z), index=1\n ROOT r = f32[8] convert(p)",
    ),
    "a conversion of bits": (
        TINY,
        " y = s8[8] convert(x)\n@ b = pred[8,8] bitcast-convert(y)\n ROOT r = f32[8,8] convert(b)",
    ),
}


def refusal(chip: Chip, body: str) -> tuple[str, int]:
    """The message, and the line to blame."""
    text = f"HloModule m\nENTRY e {{\n x = f32[8] parameter(0)\n{body}\n}}\n"
    line = text[: text.index("@")].count("\n") + 1
    with pytest.raises(CompileError) as caught:
        compile_module(parse_hlo(text.replace("@", " "), "folder/m.hlo"), chip)
    return str(caught.value), line


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_file_line_and_column(what: str) -> None:
    chip, body = REFUSED[what]
    message, line = refusal(chip, body)
    assert re.match(rf"folder/m\.hlo:{line}:\d+: \S+ '\w+' \(", message), message


@pytest.mark.parametrize("name", ["gpt2_block", "lstm_scan"])
def test_what_passes_make_of_an_instruction_has_its_place(name: str) -> None:
    module = canonicalise(parse_hlo(load(name).text, "folder/m.hlo"))
    run_passes(module, [Fuse()])
    placed = [i.place for i in module.instructions() if i.line]
    assert len(placed) > 10
    assert all(place is not None and place.file == "folder/m.hlo" and place.source for place in placed)
