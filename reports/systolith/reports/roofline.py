"""Roofs of a chip, and how near a run and each of its groups come to them.

A group's bound is the longest of the least times of its resources: useful multiply-accumulates at the peak of all
MXUs, other operations on all ALU slots of the VPU, transcendentals on its transcendental slots, its inputs and outputs
once, as far as they were moved, at the HBM bandwidth.  It is set against the time that the group took: the cycles
charged to it, or those that its busiest unit or its transfers take where these are more, since work of a group that
runs ahead is in cycles charged to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.isa.chip import SCHEMA
from systolith.reports.causes import OCCUPIED
from systolith.reports.record_version import MOST
from systolith.reports.run_data import ChipRow, Group, RunData, RunDataError, short

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
        needs: resource to the cycles that it needs at least, all executions.
        flops, bytes: all executions.
        intensity: flops a byte; None without either.
        achieved: FLOP/s during the time that it took; None if no cycle is charged to it.
        cycles: charged to it.
        took: cycles that it took: those charged, or those of its busiest unit or of its transfers, if more.
    """

    needs: dict[str, float]
    flops: int
    bytes: int
    intensity: float | None
    achieved: float | None
    cycles: int
    took: float

    @property
    def roof(self) -> str:
        """The resource that bounds it; of equals the first."""
        return max(self.needs, key=lambda resource: self.needs[resource])

    @property
    def bound(self) -> float:
        """Cycles that it takes at least."""
        return max(self.needs.values())

    @property
    def fraction(self) -> float | None:
        """Bound over cycles that it took: 1 is on the roof."""
        return self.bound / self.took if self.cycles else None


OF_BOUND = "its roofline bound over its cycles, or over those of its busiest unit where these are more"
"""The meaning of the column `of bound` of tables of groups."""


def group_roof(group: Group, chip: Peaks) -> GroupRoof:
    """Bounds of a group."""
    flops = group.flops * group.executions
    once = group.bytes * group.executions
    moved = group.hbm_bytes.read + group.hbm_bytes.written
    rest = max(0, flops - 2 * group.macs)
    needs = {
        MXU: group.macs / chip.macs,
        VPU: rest / chip.alu,
        TRANS: group.transcendentals * group.executions / chip.trans,
        HBM: min(once, moved) / chip.hbm,
    }
    took = max(group.cycles, *group.busy.values(), moved / chip.hbm)
    return GroupRoof(
        needs=needs,
        flops=flops,
        bytes=once,
        intensity=flops / once if flops and once else None,
        achieved=flops * chip.clock_hz / took if flops and group.cycles else None,
        cycles=group.cycles,
        took=took,
    )


@dataclass(frozen=True)
class Floor:
    """Lower bounds of the whole module, in cycles: useful MACs at peak; parameters and results once over HBM.

    Of tables that are read in part, and results that are written in part, what was moved counts.
    """

    compute: float
    memory: float

    @property
    def cycles(self) -> float:
        return max(self.compute, self.memory)

    @property
    def limit(self) -> str:
        return "MXU peak" if self.compute >= self.memory else "HBM bandwidth"


def module_floor(run: RunData, chip: Peaks) -> Floor:
    """The module's floor."""
    read = min(run.hbm_allocated.get("parameter", 0), run.hbm_bytes.read)
    written = min(run.hbm_allocated.get("result", 0), run.hbm_bytes.written)
    return Floor(run.macs / chip.macs, (read + written) / chip.hbm)


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
    busy = sum(causes.get(name, 0) for causes in streams for name in OCCUPIED)
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
