"""The energy of a run: events of what was executed, times the chip's energies, in whole femtojoules.

    total = dynamic (by event, by instruction) + host + idle + leakage

Each instruction of the program is looked at once, after the run: the time plane takes no longer for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.chip_energy import EVENTS, UNITS
from systolith.isa.events import EventModel
from systolith.isa.program import Program
from systolith.sim.causes import InternalError
from systolith.sim.decoded import Decoded
from systolith.sim.trace import NOWHERE, Facts, Ints, Trace, spread

HOST = "host"
MOST_OPS = 100
"""HLO instructions whose energy is on record, those with most."""


@dataclass(frozen=True)
class EnergyUse:
    """The energy of a run with cycles on a chip with energies, in femtojoules.

    Attributes:
        program, chip, cycles, trace, facts, executed: of the run, as in `RunResult`.
        by_event: of the events of instructions (`chip_energy.EVENTS`).
        once: of one execution of each instruction of the program.
        idle: of the clock.
        leakage: of the chip's leakage in the time of the run.
        total: of everything, added up over what the trace says was executed.
    """

    program: Program = field(repr=False)
    chip: Chip = field(repr=False)
    cycles: int
    trace: Trace = field(repr=False)
    facts: Facts = field(repr=False)
    executed: Ints = field(repr=False)
    by_event: dict[str, int]
    once: list[int] = field(repr=False)
    idle: int
    leakage: int
    total: int

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
    def seconds(self) -> float:
        """Simulated time."""
        return self.cycles / (self.chip.clock_mhz * 1e6)

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates."""
        return int(self.executed @ self.facts.macs)

    @property
    def average_watts(self) -> float:
        """Joules over the run's seconds."""
        return self.total * 1e-15 / self.seconds if self.cycles else 0.0

    @property
    def tops_per_watt(self) -> float:
        """Useful operations of the matrix units, two a product, over the joules, in tera."""
        return _tops_per_watt(self.macs, self.total)

    @cached_property
    def tops_per_watt_by_unit(self) -> dict[str, float]:
        """All useful operations over the joules of each unit alone, in tera."""
        return {
            unit: _tops_per_watt(self.macs, amount) for unit, amount in self.by_unit.items() if amount and self.macs
        }

    @cached_property
    def tops_per_watt_by_op(self) -> dict[str, float]:
        """The useful operations of each HLO instruction that has some, over the joules of its events, in tera."""
        products = np.flatnonzero(self.facts.macs)
        macs = self._by_origin("hlo", products.tolist(), (self.facts.macs * self.executed)[products].tolist())
        return {op: _tops_per_watt(macs[op], amount) for op, amount in self.by_op.items() if macs.get(op)}

    @cached_property
    def by_instruction(self) -> list[int]:
        """Of all executions of each instruction of the program."""
        return [amount * count for amount, count in zip(self.once, self.executed.tolist(), strict=True)]

    @cached_property
    def by_op(self) -> dict[str, int]:
        """Of the instructions from each HLO instruction, the most first: all events in all."""
        return self._by("hlo")

    @cached_property
    def by_group(self) -> dict[str, int]:
        """Of those from each group, as `by_op`."""
        return self._by("group")

    def _by(self, key: str) -> dict[str, int]:
        found = self._by_origin(key, range(len(self.once)), self.by_instruction)
        return dict(sorted(((n, a) for n, a in found.items() if a), key=lambda item: -item[1]))

    def _by_origin(self, key: str, which: Iterable[int], amounts: Iterable[int]) -> dict[str, int]:
        """Amounts of some instructions, added up by the `hlo` or `group` that they are from."""
        program, origins = self.program, dict[int, int]()
        for index, amount in zip(which, amounts, strict=True):
            number = program.debug[index] if index < len(program.debug) else -1
            origins[number] = origins.get(number, 0) + amount
        found: dict[str, int] = {}
        for number, amount in origins.items():
            name = str(getattr(program.origins[number] if number >= 0 else NOWHERE, key))
            found[name] = found.get(name, 0) + amount
        return found

    def watts(self, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        """Power between cycles: an instruction's energy flows evenly from its start to its end, the rest always."""
        trace = self.trace
        if not self.cycles or len(edges) < 2:
            return np.zeros(0)
        amounts = np.array(self.once, np.float64)[trace.index]
        flows, steady = np.zeros(len(edges) - 1), float(self.total)
        for q in range(1, len(trace.queues)):
            mine = np.flatnonzero(trace.queue == q)
            if len(mine):
                times = np.stack([trace.start[mine], trace.end[mine]], 1).ravel()
                flows += spread(edges, times, amounts[mine])
                steady -= float(amounts[mine].sum())
        found: NDArray[np.float64] = flows / np.diff(edges) + steady / self.cycles
        return found * (self.chip.clock_mhz * 1e6 * 1e-15)

    def peak_watts(self, edges: NDArray[np.int64]) -> float:
        """Power between those two of the cycles where it is most."""
        return float(self.watts(edges).max(initial=0.0))

    def check(self) -> None:
        """Assert that the parts are the total, and that HBM's is that of the bytes of the run.

        Raises:
            InternalError: what does not add up.
        """
        self._same("dynamic, host, idle and leakage", self.dynamic + self.host + self.idle + self.leakage)
        moved = int(self.executed @ self.facts.read) + int(self.executed @ self.facts.written)
        counted, price = self.by_event["hbm_byte"], _prices(self.chip)["hbm_byte"]
        if counted != moved * price:
            raise InternalError(f"energy: hbm_byte is {counted} fJ, and {moved} bytes of {price} fJ were moved")

    def check_sums(self) -> None:
        """Assert that the sums by instruction, HLO instruction, group and unit are the total, too.

        Raises:
            InternalError: what does not add up.
        """
        rest = self.idle + self.leakage
        self._same("instructions", sum(self.by_instruction) + rest)
        self._same("HLO instructions", sum(self.by_op.values()) + rest)
        self._same("groups", sum(self.by_group.values()) + rest)
        self._same("units", sum(self.by_unit.values()) + rest)

    def _same(self, parts: str, amount: int) -> None:
        if amount != self.total:
            raise InternalError(f"energy: {parts} add up to {amount} of {self.total} fJ")

    def to_json(self, edges: Ints) -> dict[str, Any]:
        """The figures as JSON values: femtojoules, watts; the HLO instructions that take most.

        Args:
            edges: cycles of the parts that power is given for.

        Raises:
            InternalError: the sums are not all the same.
        """
        self.check_sums()
        ops = dict(list(self.by_op.items())[:MOST_OPS])
        return {
            "total_fj": self.total,
            "dynamic_fj": self.dynamic,
            "host_fj": self.host,
            "idle_fj": self.idle,
            "leakage_fj": self.leakage,
            "joules": self.total * 1e-15,
            "average_watts": self.average_watts,
            "peak_watts": self.peak_watts(edges),
            "tops_per_watt": self.tops_per_watt,
            "by_unit": self.by_unit,
            "by_event": self.by_event,
            "by_op": ops,
            "by_group": self.by_group,
            "tops_per_watt_by_unit": self.tops_per_watt_by_unit,
            "tops_per_watt_by_op": {op: n for op, n in self.tops_per_watt_by_op.items() if op in ops},
            "timeline": {"edges": edges.tolist(), "watts": self.watts(edges).tolist()},
        }


def energy_of(
    program: Program,
    chip: Chip,
    cycles: int,
    trace: Trace,
    facts: Facts,
    executed: Ints,
    decoded: Decoded | None = None,
) -> EnergyUse | None:
    """The energy of a run, checked; None: the chip has no energies.  `decoded`: of the program.

    Raises:
        InternalError: it does not add up.
    """
    if chip.energy is None:
        return None
    prices, code = _prices(chip), program.code
    model, decoded = EventModel(program, chip), decoded or Decoded(program)
    seen = np.bincount(trace.index, minlength=len(code))  # SEQ's own are not in the trace
    times, flowed = np.zeros((2, len(decoded.kinds)), np.int64)
    np.add.at(times, decoded.kind_column, executed)
    np.add.at(flowed, decoded.kind_column, np.where(seen, seen, executed))
    by_event, amounts, flows = dict.fromkeys(EVENTS, 0), [0] * len(decoded.kinds), 0
    for kind, (first, count, many) in enumerate(zip(decoded.kinds, times.tolist(), flowed.tolist(), strict=True)):
        if count:
            for event, n in model.of(code[first]).items():
                by_event[event] += n * count * prices[event]
                amounts[kind] += n * prices[event]
            flows += amounts[kind] * many
    once = [amounts[k] if count else 0 for k, count in zip(decoded.kind, executed.tolist(), strict=True)]
    idle = chip.energy.idle_cycle * cycles
    # mW x cycles / MHz: nanojoules, a million femtojoules.
    leakage = int(Fraction(str(chip.energy.leakage)) * cycles * 10**6 / Fraction(str(chip.clock_mhz)))
    total = flows + idle + leakage
    use = EnergyUse(program, chip, cycles, trace, facts, executed, by_event, once, idle, leakage, total)
    use.check()
    return use


def _tops_per_watt(macs: int, femtojoules: int) -> float:
    return 2 * macs / (femtojoules * 1e-15) / 1e12 if femtojoules else 0.0


def _prices(chip: Chip) -> dict[str, int]:
    return {event: int(getattr(chip.energy, event)) for event in EVENTS}
