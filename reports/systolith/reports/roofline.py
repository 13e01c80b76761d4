"""Roofs of a chip, and how near a run and each of its groups come to them.

The roofs are peaks: useful multiply-accumulates of all MXUs, other operations on all ALU slots of the VPU,
transcendentals on its transcendental slots, inputs and outputs once, as far as they were moved, at the HBM bandwidth.
The bound is what no program can go below (`compiler/bounds`): the record says it, of the run, of groups and of
operations.  Records of binaries do not; there the roofs take its place.  It is set against the
time that a group took: the cycles charged to it, or those that its busiest unit or its transfers take where these are
more, since work of a group that runs ahead is in cycles charged to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.isa.chip import SCHEMA
from systolith.reports.causes import occupied
from systolith.reports.record_version import MOST
from systolith.reports.run_data import Bound, ChipRow, Cost, Group, RunData, RunDataError, short

MXU, VPU, TRANS, HBM = "MXU", "VPU", "transcendental", "HBM"
NEEDED = (
    "clock_mhz mxu.count mxu.rows mxu.cols vpu.lanes vpu.sublanes vpu.alu_slots vpu.trans_slots hbm.p hbm.q vmem.bytes "
    "mxu.acc_rows hbm.bytes"
).split()


@dataclass(frozen=True)
class Peaks:
    """The peak rates of a chip, and its memories.

    Attributes:
        clock_hz: cycles a second.
        mxus: matrix units.
        macs: multiply-accumulates a cycle, all MXUs.
        alu, trans: VPU operations and transcendentals a cycle.
        hbm: bytes a cycle.
        vmem, hbm_bytes: capacities in bytes.
        acc_rows: accumulator rows of an MXU.
    """

    clock_hz: float
    mxus: int
    macs: int
    alu: int
    trans: int
    hbm: float
    vmem: int
    hbm_bytes: int
    acc_rows: int

    @property
    def mxu_flops(self) -> float:
        """FLOP/s of the MXUs; a multiply-accumulate counts as two."""
        return 2 * self.macs * self.clock_hz

    @property
    def vpu_flops(self) -> float:
        """Operations a second of the VPU's ALU slots."""
        return self.alu * self.clock_hz

    @property
    def bandwidth(self) -> float:
        """HBM bytes a second."""
        return self.hbm * self.clock_hz


def peaks(rows: Sequence[ChipRow], source: str = "") -> Peaks:
    """The peaks of the chip that `chip_parameters` describes.

    Args:
        rows: of the record.
        source: the record's file, for messages.

    Raises:
        RunDataError: a parameter that is needed is missing.
    """
    value = {row.field: row.value for row in rows}
    v: dict[str, float] = {}
    for name in NEEDED:
        found, lo, hi = value.get(name), SCHEMA[name].lo, SCHEMA[name].hi
        if isinstance(found, bool | str | None) or not (lo or 0) <= found <= (hi or MOST):
            where = f"{source}: " if source else ""
            raise RunDataError(f"{where}chip_parameters: {name} = {short(found)}: a number from {lo} to {hi} is needed")
        v[name] = float(found)
    vector = int(v["vpu.lanes"] * v["vpu.sublanes"])
    return Peaks(
        clock_hz=v["clock_mhz"] * 1e6,
        mxus=int(v["mxu.count"]),
        macs=int(v["mxu.count"] * v["mxu.rows"] * v["mxu.cols"]),
        alu=vector * int(v["vpu.alu_slots"]),
        trans=vector * int(v["vpu.trans_slots"]),
        hbm=v["hbm.p"] / v["hbm.q"],
        vmem=int(v["vmem.bytes"]),
        hbm_bytes=int(v["hbm.bytes"]),
        acc_rows=int(v["mxu.acc_rows"]),
    )


@dataclass(frozen=True)
class GroupRoof:
    """A group against the roofs.

    Attributes:
        needs: resource to the cycles that it needs at its peak, all executions.
        least: resource to the cycles of the bound.
        flops, bytes: all executions.
        intensity: flops a byte; None without either.
        achieved: FLOP/s during the time that it took; None if no cycle is charged to it.
        cycles: charged to it.
        took: cycles that it took: those charged, or those of its busiest unit or of its transfers, if more.
    """

    needs: dict[str, float]
    least: dict[str, float]
    flops: int
    bytes: int
    intensity: float | None
    achieved: float | None
    cycles: int
    took: float

    @property
    def roof(self) -> str:
        """The lowest roof over it; of equals the first."""
        return max(self.needs, key=lambda resource: self.needs[resource])

    @property
    def bound(self) -> float:
        """Cycles that it takes at least."""
        return max(self.least.values())

    @property
    def bound_by(self) -> str:
        """The resource of the bound; of equals the first."""
        return max(self.least, key=lambda resource: self.least[resource])

    @property
    def fraction(self) -> float | None:
        """Bound over cycles that it took: 1 is as fast as can be."""
        return self.bound / self.took if self.cycles else None


OF_BOUND = (
    "the least cycles of any program for it (products in whole tiles of the arrays, vector operations on all slots, or"
    " inputs and outputs once over HBM, as far as moved) over its cycles, or over those of its busiest unit if more"
)
"""The meaning of the column `of bound`."""


def took(cost: Cost, chip: Peaks) -> float:
    """The cycles that a group or operation took: those charged to it, of its busiest unit, or of its transfers."""
    return max(cost.cycles, *cost.busy.values(), (cost.hbm_bytes.read + cost.hbm_bytes.written) / chip.hbm)


def least(bound: Bound) -> dict[str, float]:
    """A bound by resource."""
    return {MXU: bound.mxu, VPU: bound.alu, TRANS: bound.trans, HBM: bound.hbm}


def group_roof(group: Group, chip: Peaks) -> GroupRoof:
    """Bounds of a group."""
    flops = group.flops * group.executions
    once = group.bytes * group.executions
    moved = group.hbm_bytes.read + group.hbm_bytes.written
    rest = max(0, flops - 2 * group.macs)
    spent = took(group, chip)
    needs = {
        MXU: group.macs / chip.macs,
        VPU: rest / chip.alu,
        TRANS: group.transcendentals * group.executions / chip.trans,
        HBM: min(once, moved) / chip.hbm,
    }
    return GroupRoof(
        needs=needs,
        least=least(group.bound) if group.bound else needs,
        flops=flops,
        bytes=once,
        intensity=flops / once if flops and once else None,
        achieved=flops * chip.clock_hz / spent if flops and group.cycles else None,
        cycles=group.cycles,
        took=spent,
    )


def module_bound(run: RunData, chip: Peaks) -> dict[str, float]:
    """The least cycles of the module by resource: those of the record, else products at the peak, and HBM.

    Of a record without them, parameters and results count once; of tables that are read in part, and results that are
    written in part, what was moved.
    """
    if run.bound:
        return least(run.bound)
    read = min(run.hbm_allocated.get("parameter", 0), run.hbm_bytes.read)
    written = min(run.hbm_allocated.get("result", 0), run.hbm_bytes.written)
    return {MXU: run.macs / chip.macs, HBM: (read + written) / chip.hbm}


@dataclass(frozen=True)
class MxuUse:
    """Three figures that are often taken for one another, as fractions of all MXU cycles of the run.

    Attributes:
        busy: a stream instruction occupies the unit (stalled by its own port conflicts included).
        active: a row enters the array; None: not measured.
        useful: useful multiply-accumulates over the peak of the arrays.
    """

    busy: float
    active: float | None
    useful: float


def mxu_use(run: RunData, chip: Peaks) -> MxuUse:
    """The three figures; zero for a run in which no cycle passed."""
    available = run.total * chip.mxus
    streams = [causes for unit, causes in run.units.items() if unit[:1] == "s" and unit[1:].isdigit()]
    busy = sum(occupied(causes) for causes in streams)
    active = sum(run.array_active.values()) if run.array_active else None
    useful = run.macs / (run.total * chip.macs) if run.mxu_utilization is None and run.total else run.mxu_utilization
    return MxuUse(
        busy=busy / available if available else 0.0,
        active=None if active is None or not available else active / available,
        useful=useful or 0.0,
    )


def bandwidth_fraction(run: RunData, chip: Peaks) -> float:
    """HBM bytes moved over those that the bandwidth allows in the run's cycles."""
    moved = run.hbm_bytes.read + run.hbm_bytes.written
    return moved / (run.total * chip.hbm) if run.total else 0.0
