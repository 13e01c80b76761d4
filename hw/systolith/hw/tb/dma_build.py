"""The tops of the benches of copies: their parameters for a chip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from systolith.hw.tb.build import HW, Top
from systolith.hw.tb.dma_cases import BUFFER_BYTES, BYTES, LENGTH
from systolith.isa.chip import Chip


def changed(chip: Chip, changes: dict[str, int]) -> Chip:
    """The chip with other fields, given as "group.field", and a name that says so."""
    for name, value in changes.items():
        group, _, field = name.partition(".")
        chip = replace(chip, **{group: replace(getattr(chip, group), **{field: value})})
    return replace(chip, name="-".join([chip.name, *(f"{k.rpartition('.')[2]}{v}" for k, v in changes.items())]))


def _top(module: str, chip: Chip, parameters: dict[str, int], sources: Path) -> Top:
    return Top(module, tuple(parameters.items()), f"{module}-{chip.name}", sources)


def hbm_top(chip: Chip, sources: Path = HW) -> Top:
    """`hbm_tb` for a chip."""
    h = chip.hbm
    return _top("hbm_tb", chip, {"P": h.p, "Q": h.q, "Chunk": h.chunk}, sources)


def dma_top(chip: Chip, sources: Path = HW) -> Top:
    """`dma_tb` for a chip."""
    h = chip.hbm
    parameters = {
        "Chunk": h.chunk,
        "Granule": h.granule,
        "HbmLatency": h.latency,
        "Segments": chip.dma.segments,
        "LocalLatency": chip.dma.local_latency,
        "HostP": chip.host.p,
        "HostQ": chip.host.q,
        "HostSetup": chip.host.setup,
        "HostLatency": chip.host.latency,
        "P": h.p,
        "Q": h.q,
        "Bytes": BYTES,
        "BufferBytes": BUFFER_BYTES,
        "Length": LENGTH,
    }
    return _top("dma_tb", chip, parameters, sources)


def xlu_top(chip: Chip, sources: Path = HW) -> Top:
    """`xlu_tb` for a chip."""
    parameters = {
        "Lanes": chip.vpu.lanes,
        "Sublanes": chip.vpu.sublanes,
        "Latency": chip.xlu.latency,
        "Bytes": BYTES,
        "Length": LENGTH,
    }
    return _top("xlu_tb", chip, parameters, sources)
