"""The parser and printer against XLA's own: both take, print and refuse the same."""

import importlib
import re
from functools import cache
from typing import Any

import pytest

from systolith.compiler.hlo import HloError, parse_hlo, print_hlo
from tests.compiler.hlo.text_cases import texts
from tests.corpus.load import HERE
from tests.examples import THOROUGH

UNNAMED = re.compile(r"%_(?:\.\d+)?\b")
CASES = sorted(set(texts()))
# `HloPrintOptions` with which XLA's parser reads the text back.
OPTIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "names without %": {"print_percent": False},
    "shapes of operands": {"print_operand_shape": True},
    "no layouts": {"include_layout_in_shapes": False},
    "shapes of operands, no layouts": {"print_operand_shape": True, "include_layout_in_shapes": False},
    "no signatures": {"print_program_shape": False},
    "no metadata": {"print_metadata": False},
    "no control dependencies": {"print_control_dependencies": False},
    "no backend config": {"print_backend_config": False},
    "computations renamed": {"canonicalize_computations": True},
}


def hlo() -> Any:
    """Bindings to XLA, which have no types."""
    return importlib.import_module("jaxlib._hlo")


def xla_parse(text: str) -> Any:
    """XLA's module of a text, None if it refuses it."""
    try:
        return hlo().hlo_module_from_text(text)
    except (RuntimeError, ValueError):
        return None


def options(**flags: bool) -> Any:
    return with_flags(hlo().HloPrintOptions(), flags)


def with_flags(made: Any, flags: dict[str, bool]) -> Any:
    made.print_large_constants = True
    for key, value in flags.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize("text", CASES)
def test_as_xla(text: str) -> None:
    module = xla_parse(text)
    if module is None:
        with pytest.raises(HloError) as caught:
            parse_hlo(text)
        assert "\n" not in str(caught.value)
        return
    ours = print_hlo(parse_hlo(text))
    assert print_hlo(parse_hlo(ours)) == ours
    printed = module.to_string(options())
    assert print_hlo(parse_hlo(printed)).strip() == printed.strip()
    again = xla_parse(ours)
    assert again is not None, "XLA reads what we print"
    plain = options(include_layout_in_shapes=False)  # a transpose without a shape gets one with another layout
    assert again.to_string(plain).split("\n")[1:] == module.to_string(plain).split("\n")[1:]


def test_the_cases_are_of_both_kinds() -> None:
    taken = sum(xla_parse(text) is not None for text in CASES)
    assert taken > 400
    assert len(CASES) - taken > 150


@cache
def _modules() -> list[Any]:
    """Of the cases all that XLA takes and prints whole, and of the corpus the small ones."""
    found = [module for text in CASES if (module := xla_parse(text)) is not None]
    return found + [xla_parse(path.read_text()) for path in HERE.glob("*.hlo") if path.stat().st_size < 60_000]


@pytest.mark.parametrize(("turn", "name"), list(enumerate(OPTIONS)), ids=list(OPTIONS))
def test_every_way_of_printing_comes_back(turn: int, name: str) -> None:
    """Every module in a few ways, of which one is the default."""
    how = options(**OPTIONS[name])
    every = 1 if THOROUGH or not OPTIONS[name] else 5
    for module in _modules()[turn % every :: every]:
        text = module.to_string(how)
        assert print_hlo(parse_hlo(text)).strip() == text.strip()


def test_short_parsable_text_comes_back() -> None:
    for module in _modules() if THOROUGH else _modules()[1::3]:
        text = module.to_string(with_flags(hlo().HloPrintOptions.short_parsable(), {}))
        assert print_hlo(parse_hlo(text)).strip() == text.strip()


def test_computations_written_in_place_are_read_as_xla_reads_them() -> None:
    """The canonical form writes callees in place; both parsers give them names."""
    for module in _modules() if THOROUGH else _modules()[2::3]:
        text = module.to_string(with_flags(hlo().HloPrintOptions.canonical(), {}))
        again = xla_parse(text)
        if again is not None:
            ours = xla_parse(print_hlo(parse_hlo(text)))
            assert ours is not None
            assert UNNAMED.sub("_", ours.to_string(options())) == UNNAMED.sub("_", again.to_string(options()))
