"""The energy of a run: events of what was executed, times the chip's energies, in whole femtojoules.

    total = dynamic (by event, by instruction) + host + idle + leakage

Each instruction of the program is looked at once, after the run: runs take no longer for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip_energy import EVENTS, UNITS
from systolith.isa.events import EventModel, Events
from systolith.sim.stats import NOWHERE, RunResult, spread

HOST = "host"
_OPS = 100


@dataclass(frozen=True)
class EnergyUse:
    """The energy of a run with cycles on a chip with energies, in femtojoules.

    Attributes:
        by_event: of the events of instructions (`chip_energy.EVENTS`).
        by_instruction: of all executions of each instruction of the program.
        idle: of the clock.
        leakage: of the chip's leakage in the time of the run.
    """

    result: RunResult
    by_event: dict[str, int]
    by_instruction: list[int]
    once: list[int]
    idle: int
    leakage: int

    @cached_property
    def by_unit(self) -> dict[str, int]:
        """Of the events of each unit."""
        found = dict.fromkeys(UNITS, 0)
        for event, amount in self.by_event.items():
            found[event.partition("_")[0]] += amount
        return found

    @property
    def host(self) -> int:
        """Of the host's queues."""
        return self.by_unit[HOST]

    @property
    def dynamic(self) -> int:
        """Of all events but the host's."""
        return sum(self.by_event.values()) - self.host

    @property
    def total(self) -> int:
        """Of everything."""
        return self.dynamic + self.host + self.idle + self.leakage

    @property
    def average_watts(self) -> float:
        """Joules over the run's seconds."""
        return self.total * 1e-15 / self.result.seconds if self.result.seconds else 0.0

    @property
    def tops_per_watt(self) -> float:
        """Useful operations of the matrix units, two a product, over the joules, in tera."""
        return 2 * self.result.macs / (self.total * 1e-15) / 1e12 if self.total else 0.0

    def by(self, key: str) -> dict[str, int]:
        """Of the instructions from each `hlo` (HLO instruction) or `group`, the most first: all events in all."""
        program, origins = self.result.program, dict[int, int]()
        for index, amount in enumerate(self.by_instruction):
            number = program.debug[index] if index < len(program.debug) else -1
            origins[number] = origins.get(number, 0) + amount
        found: dict[str, int] = {}
        for number, amount in origins.items():
            name = str(getattr(program.origins[number] if number >= 0 else NOWHERE, key))
            found[name] = found.get(name, 0) + amount
        return dict(sorted(((n, a) for n, a in found.items() if a), key=lambda item: -item[1]))

    def watts(self, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        """Power between cycles: an instruction's energy flows evenly from its start to its end, the rest always."""
        trace, result = self.result.trace, self.result
        if trace is None or not result.cycles or len(edges) < 2:
            return np.zeros(0)
        amounts = np.array(self.once, np.float64)[trace.index]
        flows, steady = np.zeros(len(edges) - 1), float(self.total)
        for q in range(1, len(trace.queues)):
            mine = np.flatnonzero(trace.queue == q)
            if len(mine):
                times = np.stack([trace.start[mine], trace.end[mine]], 1).ravel()
                flows += spread(edges, times, amounts[mine])
                steady -= float(amounts[mine].sum())
        found: NDArray[np.float64] = flows / np.diff(edges) + steady / result.cycles
        return found * (result.chip.clock_mhz * 1e6 * 1e-15)

    def check(self) -> None:
        """Assert that every way of adding up gives the same."""
        events = self.dynamic + self.host
        assert events == sum(self.by_instruction) == sum(self.by("hlo").values()) == sum(self.by("group").values())
        assert events == sum(self.by_unit.values())
        assert self.total == events + self.idle + self.leakage

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values: femtojoules, watts; the HLO instructions that take most."""
        edges = np.array(self.result.timeline()["edges"], np.int64)
        watts = self.watts(edges)
        ops = self.by("hlo")
        return {
            "total_fj": self.total,
            "dynamic_fj": self.dynamic,
            "host_fj": self.host,
            "idle_fj": self.idle,
            "leakage_fj": self.leakage,
            "joules": self.total * 1e-15,
            "average_watts": self.average_watts,
            "peak_watts": float(watts.max(initial=0.0)),
            "tops_per_watt": self.tops_per_watt,
            "by_unit": self.by_unit,
            "by_event": self.by_event,
            "by_op": dict(list(ops.items())[:_OPS]),
            "by_group": self.by("group"),
            "timeline": {"edges": edges.tolist(), "watts": watts.tolist()},
        }


def energy_of(result: RunResult) -> EnergyUse | None:
    """The energy of a run; None: it has no cycles, or its chip no energies."""
    energies = result.chip.energy
    if energies is None or result.cycles is None:
        return None
    model = EventModel(result.program, result.chip)
    price = {event: int(getattr(energies, event)) for event in EVENTS}
    once, executed = [0] * len(result.program.code), result.executed.tolist()
    kinds: dict[int, tuple[Events, int]] = {}  # the model gives instructions of a kind the same object
    times: dict[int, int] = {}
    for index, count in enumerate(executed):
        if count:
            events = model.of(result.program.code[index])
            kind = id(events)
            if kind not in kinds:
                kinds[kind] = events, sum(n * price[event] for event, n in events.items())
            once[index] = kinds[kind][1]
            times[kind] = times.get(kind, 0) + count
    by_event = dict.fromkeys(EVENTS, 0)
    for kind, (events, _) in kinds.items():
        for event, n in events.items():
            by_event[event] += n * times[kind] * price[event]
    by_instruction = [amount * count for amount, count in zip(once, executed, strict=True)]
    # mW x cycles / MHz: nanojoules, a million femtojoules.
    leakage = int(Fraction(str(energies.leakage)) * result.cycles * 10**6 / Fraction(str(result.chip.clock_mhz)))
    use = EnergyUse(result, by_event, by_instruction, once, energies.idle_cycle * result.cycles, leakage)
    use.check()
    return use
