"""Every fuzzer, by name."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.assembler import Assembler
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.hlo_text import HloText

REGRESSIONS = Path(__file__).parent / "regressions"

FUZZERS: dict[str, Fuzzer] = {fuzzer.name: fuzzer for fuzzer in (HloText(), Assembler())}
