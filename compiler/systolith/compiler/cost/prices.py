"""Prices: cycles of a chip's units for work of which only sizes and micro-operations are known.

The closed forms are those of `isa/timing.py`, without conflicts of accesses: patterns are not known yet.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

from systolith.isa.chip import Chip
from systolith.isa.microops import MICROOPS, Slot

OVERHEAD = 16
"""Cycles that one more run of the vector unit costs in fetch, fill and drain, roughly."""


@dataclass(frozen=True)
class UnitCycles:
    """Cycles of units that work at the same time.

    Attributes:
        compute: of the matrix units.
        transfer: of HBM.
        cross_lane: of the cross-lane unit.
        vector: of the vector unit.
        ends: in which what comes first is moved and what comes last is made, while the other units wait.
    """

    compute: int = 0
    transfer: int = 0
    cross_lane: int = 0
    vector: int = 0
    ends: int = 0

    @property
    def on_chip(self) -> int:
        """At least so many cycles, wherever transfers are hidden."""
        return max(self.compute, self.cross_lane, self.vector) + self.ends

    @property
    def bound(self) -> int:
        """At least so many cycles."""
        return max(self.transfer, self.on_chip)

    @property
    def numbers(self) -> dict[str, int]:
        """For `explain`."""
        return {name.replace("_", "-"): cycles for name, cycles in asdict(self).items()}


def transfer_cycles(size: int, chip: Chip) -> int:
    """Cycles in which HBM moves so many bytes."""
    return size * chip.hbm.q // chip.hbm.p


def product_cycles(m: int, n: int, k: int, chip: Chip) -> int:
    """Cycles of one matrix unit for a product of [m, k] by [k, n], in one pass: through each tile of weights stream all
    rows, or the next tile is loaded, whichever takes longer.
    """
    return -(-k // chip.mxu.rows) * -(-n // chip.mxu.cols) * max(m, chip.mxu.rows)


def vectors(rows: int, columns: int, chip: Chip) -> int:
    """Vectors of so many rows, in the sublanes, and columns, in the lanes."""
    return -(-rows // chip.vpu.sublanes) * -(-columns // chip.vpu.lanes)


def full_vectors(elements: int, chip: Chip) -> int:
    """Vectors of elements that fill them."""
    return -(-elements // (chip.vpu.lanes * chip.vpu.sublanes))


def kernel_length(ops: Collection[str], chip: Chip) -> int:
    """Cycles of one iteration of micro-operations, before they are scheduled: of which a few depend on one another."""
    vpu = chip.vpu
    transcendental = any(MICROOPS[op].slot is Slot.TRANS for op in ops)
    return vpu.load_latency + vpu.alu_latency * min(len(ops), 4) + vpu.trans_latency * transcendental + 1
