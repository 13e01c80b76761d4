"""Half of one resource at a time: does the code re-tile, and does the time grow as the bounds say it should?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.modules import module
from systolith.compiler.bounds.bound import bound
from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.clone import clone
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip, load_chip
from systolith.sim.simulate import simulate

CASES = ("gemm_4096", "gemm_8x4096x4096", "resnet50_8", "bert_base_1x512")


@dataclass(frozen=True)
class Scaled:
    """A case on chips that have half of something.

    Attributes:
        ratios: the halved resource to (cycles, bound), both over those of the whole chip.
        cycles: on the whole chip.
    """

    name: str
    cycles: int
    ratios: Mapping[str, tuple[float, float]]


def scale(name: str, chip_name: str) -> Scaled:
    """Measure a case on the chip and on its halves, in mode `time`."""
    chip = load_chip(chip_name)
    cycles, limit = _run(name, chip)
    ratios = {}
    for what, half in halves(chip).items():
        c, b = _run(name, half)
        ratios[what] = (c / cycles, b / limit)
    return Scaled(name, cycles, ratios)


def halves(chip: Chip) -> dict[str, Chip]:
    """Chips with half the HBM bandwidth, half the VMEM, half the MXUs."""
    return {
        "HBM bandwidth": replace(chip, hbm=replace(chip.hbm, q=2 * chip.hbm.q)),
        "VMEM": replace(chip, vmem=replace(chip.vmem, bytes=chip.vmem.bytes // 2)),
        "MXUs": replace(chip, mxu=replace(chip.mxu, count=chip.mxu.count // 2)),
    }


def _run(name: str, chip: Chip) -> tuple[int, float]:
    parsed = module(name)
    limit = bound(canonicalise(clone(parsed)), chip).cycles
    cycles = simulate(compile_module(parsed, chip).program, chip, mode="time").cycles
    assert cycles is not None
    return cycles, limit
