"""Builds `vpu_tb` with vpu_main.cpp for a chip."""

from __future__ import annotations

from pathlib import Path

from systolith.hw.tb.build import HW
from systolith.hw.tb.native import build
from systolith.isa.chip import Chip


def parameters(chip: Chip) -> dict[str, int]:
    """The parameters of `vpu_tb` for a chip."""
    v = chip.vpu
    return {
        "Lanes": v.lanes,
        "Sublanes": v.sublanes,
        "AluSlots": v.alu_slots,
        "LoadSlots": v.load_slots,
        "StoreSlots": v.store_slots,
        "TransSlots": v.trans_slots,
        "AluLatency": v.alu_latency,
        "LoadLatency": v.load_latency,
        "TransLatency": v.trans_latency,
        "Bytes": chip.vmem.bytes,
        "Accumulators": chip.mxu.count,
    }


def executable(chip: Chip, sources: Path = HW, suffix: str = "") -> Path:
    """The simulation of a chip's vector unit.

    Raises:
        subprocess.CalledProcessError: Verilator or the C++ compiler failed; the log is in the folder.
    """
    return build("vpu", sources, f"-{chip.name}{suffix}", "vpu*.sv", parameters(chip))
