"""Every fuzzer, by name."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.assembler import Assembler
from tests.fuzz.chip_toml import ChipToml
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.graphs import Graphs
from tests.fuzz.grouped_text import GroupedText
from tests.fuzz.hlo_text import HloText
from tests.fuzz.npz import Npz
from tests.fuzz.proto import Proto
from tests.fuzz.records import RECORDS
from tests.fuzz.slb import Slb
from tests.fuzz.tile_text import TileText

REGRESSIONS = Path(__file__).parent / "regressions"

_ALL: tuple[Fuzzer, ...] = (
    HloText(),
    Proto(),
    GroupedText(),
    TileText(),
    Slb(),
    Assembler(),
    ChipToml(),
    Npz(),
    *RECORDS,
    Graphs(),
)
FUZZERS: dict[str, Fuzzer] = {fuzzer.name: fuzzer for fuzzer in _ALL}
