"""HLO text: parsed, verified, printed; small modules are compiled."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo import HloError, parse_hlo, print_hlo
from systolith.compiler.hlo.ir import Module
from systolith.isa.chip import load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.inputs.sources import parse_module, read_source
from tests.compiler.hlo.text_cases import texts
from tests.corpus.load import HERE
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tokens import mutated

SOUP = (
    "{ } ( ) [ ] , : = % \" ' * # ? . + ~ < > / -> <= ... /*c*/ // \\ 0 1 -1 2 x 1.5 1x2 0_0 nan inf true f32[] f32[2]"
    " s32[] f32[999999999,999999999] 99999999999999999999 ROOT ENTRY HloModule replicated {} {0} add \0 \ud800 é ٣"
).split(" ")
ELEMENTS = 1 << 16
"""Modules whose values have more are not compiled: how long that takes is not a matter of the text."""


@cache
def samples() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Texts of a few lines for every feature; whole modules."""
    modules = [path.read_text() for path in sorted(HERE.glob("*.hlo")) if path.stat().st_size < 6000]
    return tuple(text for text in texts() if _good(text)), tuple(modules)


def _good(text: str) -> bool:
    try:
        parse_module(text, "")
    except HloError:
        return False
    return True


class HloText(Fuzzer):
    name, suffix, seconds = "hlo-text", ".hlo", 20

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        features, modules = samples()
        text = mutated(dice.choice(features if dice.random() < 0.8 else modules), SOUP, dice)
        return text.encode("utf-8", "surrogatepass")

    def check(self, case: bytes) -> None:
        reprint(parse_hlo(case.decode("utf-8", "replace")))  # a module that does not verify prints, too
        source = read_source(file_of(case, self.suffix))
        if source.module is not None:
            check_module(source.module)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of text"


def reprint(module: Module) -> None:
    """A module prints, and parses and prints the same."""
    text = print_hlo(module)
    assert print_hlo(parse_hlo(text)) == text, "what is printed parses as something else"


def check_module(module: Module) -> None:
    """A verified module prints, and parses and prints the same; compiling it gives a program or a refusal."""
    reprint(module)
    if sum(leaf.size for i in module.instructions() for leaf in i.shape.leaves()) < ELEMENTS:
        with suppress(SystolithError):  # many modules have no lowering
            compile_module(module, load_chip("tiny"))
