"""The energy of a run in its record (`run_data.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from systolith.reports.record_model import Amount, Count, Energies, Label, Model


@dataclass(frozen=True, kw_only=True)
class EnergyTime(Model):
    """Power over the run.

    Attributes:
        edges: in cycles, one more than there are parts.
        watts: in each part.
    """

    edges: list[Count] = field(default_factory=list)
    watts: list[Amount] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Energy(Model):
    """Energy of the run; whole numbers are femtojoules.

    Attributes:
        total_fj: dynamic, host, idle and leakage together.
        dynamic_fj, host_fj: of events of instructions; those of host queues.
        idle_fj, leakage_fj: of the clock, and of leakage during the run.
        joules: the total in joules.
        average_watts, peak_watts: over the run, and in the part of `timeline` that has most.
        tops_per_watt: useful operations of the matrix units, two a product, in tera, over joules.
        by_unit, by_event, by_op, by_group: of events, by unit, event, HLO instruction (those with most), fusion group.
        tops_per_watt_by_unit: all useful operations over the energy of each unit alone.
        tops_per_watt_by_op: those of an HLO instruction, of `by_op`, over the energy of its events.
        timeline: power over time.
    """

    total_fj: Energies
    dynamic_fj: Energies
    host_fj: Energies
    idle_fj: Energies
    leakage_fj: Energies
    joules: Amount
    average_watts: Amount
    peak_watts: Amount
    tops_per_watt: Amount
    by_unit: dict[Label, Energies] = field(default_factory=dict)
    by_event: dict[Label, Energies] = field(default_factory=dict)
    by_op: dict[Label, Energies] = field(default_factory=dict)
    by_group: dict[Label, Energies] = field(default_factory=dict)
    tops_per_watt_by_unit: dict[Label, Amount] = field(default_factory=dict)
    tops_per_watt_by_op: dict[Label, Amount] = field(default_factory=dict)
    timeline: EnergyTime = EnergyTime()
