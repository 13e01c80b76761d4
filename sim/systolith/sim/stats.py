"""The result of a run: times and causes as arrays, and the figures made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.program import Origin, Program, Role
from systolith.sim.causes import HOST
from systolith.sim.energy import EnergyUse
from systolith.sim.hazards import Hazard
from systolith.sim.host_credits import Intervals
from systolith.sim.trace import Facts, Ints, Trace, origin_of, spread

BUCKETS = 200


@dataclass
class RunResult:
    """The outcome of `simulate`.

    Attributes:
        chip, program: what ran on what.
        mode: `full`, `time` or `values`.
        cycles: from the first fetch until everything has retired; None in mode `values`.
        units: cycles by cause for each queue, adding up to `cycles` (`causes.DOCS`).
        instructions: executed, SEQ's included.
        trace: times; None in mode `values`.
        facts: per instruction of the program.
        executed: how often each instruction of the program was executed.
        held: by infeed queue whose times are given, when it was full and the host waited with bytes for it.
        energy: None: no cycles, or a chip that states no energies.
        outputs: result arrays in order; empty in mode `time`.
        decisions: recorded decisions of SEQ that depended on data, for a replay.
        hazards: the first races, in hostile mode.
        wall_seconds: host time by phase.
        max_abs_error, max_rel_error: filled in by whoever compares the outputs.
    """

    chip: Chip
    program: Program
    mode: str
    cycles: int | None = None
    units: dict[str, dict[str, int]] = field(default_factory=dict)
    instructions: int = 0
    trace: Trace | None = None
    facts: Facts | None = None
    executed: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    held: dict[int, Intervals] = field(default_factory=dict)
    energy: EnergyUse | None = None
    outputs: list[NDArray[Any]] = field(default_factory=list)
    decisions: Any = None
    hazards: list[Hazard] = field(default_factory=list)
    wall_seconds: dict[str, float] = field(default_factory=dict)
    max_abs_error: float | None = None
    max_rel_error: float | None = None

    @property
    def ok(self) -> bool:
        """No races were found."""
        return not self.hazards

    @property
    def seconds(self) -> float | None:
        """Simulated time; None without cycles."""
        return None if self.cycles is None else self.cycles / (self.chip.clock_mhz * 1e6)

    @property
    def hbm_bytes(self) -> dict[str, int]:
        """Bytes `read` from and `written` to HBM, granules counted whole."""
        if self.facts is None:
            return {"read": 0, "written": 0}
        return {
            "read": int(self.executed @ self.facts.read),
            "written": int(self.executed @ self.facts.written),
        }

    @property
    def launch(self) -> int | None:
        """Cycles that the call of the program takes beside its own (`host.launch`); None without cycles."""
        return None if self.cycles is None else self.chip.host.launch

    @property
    def host_held(self) -> dict[str, int]:
        """By config of the infeed queues whose times are given: cycles in which the host waited for credits."""
        names = dict(enumerate(self.program.host_names(Role.INFEED, self.chip.host.queues)))
        return {str(names.get(n, n) or ""): sum(end - start for start, end in of) for n, of in self.held.items()}

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: padding and masked tails not counted."""
        return 0 if self.facts is None else int(self.executed @ self.facts.macs)

    @property
    def mxu_utilization(self) -> float | None:
        """Useful multiply-accumulates over the peak of all arrays in the time; None without cycles."""
        if not self.cycles:
            return None
        m = self.chip.mxu
        return self.macs / (m.rows * m.cols * m.count * self.cycles)

    @property
    def array_active(self) -> dict[str, int]:
        """Cycles in which rows enter the array, for each MXU's stream queue: at most its busy cycles."""
        if self.trace is None or self.facts is None:
            return {}
        t = self.trace
        active = np.bincount(t.queue, self.facts.active[t.index], len(t.queues)).astype(np.int64)
        return {name: int(active[q]) for q, name in enumerate(t.queues) if name[0] == "s" and name[1:].isdigit()}

    @property
    def vmem_high_water(self) -> int:
        """Bytes of VMEM that the memory plan uses."""
        return self.program.vmem_high_water

    def origin(self, index: int) -> Origin:
        """Where the instruction with that index comes from."""
        return origin_of(self.program, index)

    def critical(self) -> Ints:
        """Cycles in which each executed instruction was the oldest unfinished one; they add up to the last retirement.

        Counted in program order: an instruction gets the time between the moment when all before it had retired and
        its own retirement.  So a group's figure is the run's wait for it, overlapped work not counted twice.
        """
        if self.trace is None:
            return np.zeros(0, np.int64)
        return np.diff(np.maximum.accumulate(self.trace.retire), prepend=0)

    def by(self, key: str) -> list[dict[str, Any]]:
        """Figures by `hlo` (HLO instruction) or `group` (fusion group), the most critical first.

        Each entry: name, cycles (critical), busy {queue: occupied cycles, without waits for the host}, instructions,
        macs, hbm_bytes {read, written}, first_start, last_retire, stalls {queue: {cause: cycles}} (in the gaps before
        its instructions, and for the host).
        """
        t, f = self.trace, self.facts
        if t is None or f is None:
            return []
        names = [str(getattr(self.origin(i), key)) for i in range(len(self.program.code))]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(names))}
        of = np.array([numbers[n] for n in names], np.int64)[t.index]
        n, nq = len(numbers), len(t.queues)

        def total(values: Ints) -> Ints:
            return np.bincount(of, values, n).astype(np.int64)

        cycles = total(self.critical())
        busy = np.bincount(of * nq + t.queue, t.end - t.start, n * nq).astype(np.int64).reshape(n, nq)
        stalls = self._stalls(t, of, n)
        for entry, waits in enumerate(stalls):
            for name, causes in waits.items():
                busy[entry, t.queues.index(name)] -= causes.get(HOST, 0)
        count, macs = np.bincount(of, minlength=n), total(f.macs[t.index])
        read, written = total(f.read[t.index]), total(f.written[t.index])
        first, last = np.full(n, self.cycles or 0), np.zeros(n, np.int64)
        np.minimum.at(first, of, t.start)
        np.maximum.at(last, of, t.retire)
        entries = [
            {
                "name": name,
                "cycles": int(cycles[i]),
                "busy": {t.queues[q]: int(busy[i, q]) for q in np.flatnonzero(busy[i])},
                "instructions": int(count[i]),
                "macs": int(macs[i]),
                "hbm_bytes": {"read": int(read[i]), "written": int(written[i])},
                "first_start": int(first[i]),
                "last_retire": int(last[i]),
                "stalls": stalls[i],
            }
            for name, i in numbers.items()
            if count[i]
        ]
        return sorted(entries, key=lambda e: -e["cycles"])

    def _stalls(self, t: Trace, of: Ints, n: int) -> list[dict[str, dict[str, int]]]:
        """For each of `n` names, which `of` gives for each entry of the trace: {queue: {cause: cycles}}."""
        at = t.stall_at
        table = np.zeros((n, len(t.queues), len(t.causes)), np.int64)
        np.add.at(table, (of[at], t.queue[at], t.stall_cause), t.stall_cycles)
        out: list[dict[str, dict[str, int]]] = [{} for _ in range(n)]
        for name, queue, cause in np.argwhere(table):
            out[name].setdefault(t.queues[queue], {})[t.causes[cause]] = int(table[name, queue, cause])
        return out

    def groups(self) -> list[dict[str, Any]]:
        """`by("group")`, with the compiler's record of each group: kind, hlo, opcodes, flops, bytes, executions, and
        cycles as planned and as predicted.
        """
        info = {g.name: g for g in self.program.groups}
        entries = self.by("group")
        for e in entries:
            g = info.get(e["name"])
            if g is not None:
                e |= {"kind": g.kind, "hlo": list(g.hlo), "opcodes": list(g.opcodes)}
                e |= {"flops": g.flops, "transcendentals": g.transcendentals, "bytes": g.bytes}
                e |= {"executions": g.executions, "planned": g.planned, "predicted": g.predicted, "root": g.root}
                e |= _place(g.places[:1])
        return entries

    def ops(self) -> list[dict[str, Any]]:
        """`by("hlo")`, with `op_name` and `source` of those that the HLO's metadata places."""
        places = {place[0]: place for g in self.program.groups for place in g.places}
        return [e | _place([places[e["name"]]] if e["name"] in places else []) for e in self.by("hlo")]

    def edges(self, buckets: int = BUCKETS) -> Ints:
        """Cycles between which the parts of a timeline are; empty without cycles."""
        if not self.cycles:
            return np.zeros(0, np.int64)
        edges = np.linspace(0, self.cycles, min(buckets, self.cycles) + 1).astype(np.int64)
        return edges[np.diff(edges, prepend=-1) > 0]  # `numpy.unique` would import `numpy.ma`, which takes long

    def timeline(self, buckets: int = BUCKETS) -> dict[str, Any]:
        """HBM traffic and occupancy over time, in `buckets` equal parts of the run (fewer if it is shorter).

        Returns:
            `edges` (cycles, one more than buckets), `read` and `written` (bytes a bucket; a transfer's bytes spread
            evenly from its start to its last grant), `busy` {queue: occupied cycles a bucket}.
        """
        t, f = self.trace, self.facts
        if t is None or f is None or not self.cycles:
            return {"edges": [], "read": [], "written": [], "busy": {}}
        edges = self.edges(buckets)
        traffic = {"read": np.zeros(len(edges) - 1), "written": np.zeros(len(edges) - 1)}
        busy = {}
        for q, name in enumerate(t.queues):
            mine = np.flatnonzero(t.queue == q)
            if q == 0 or not len(mine):
                continue
            times = np.stack([t.start[mine], t.end[mine]], 1).ravel()
            busy[name] = np.rint(spread(edges, times, t.end[mine] - t.start[mine])).astype(int).tolist()
            for what, values in (("read", f.read), ("written", f.written)):
                traffic[what] += spread(edges, times, values[t.index[mine]])
        return {"edges": edges.tolist(), **{k: v.tolist() for k, v in traffic.items()}, "busy": busy}

    def to_json(self, ops: int = 100) -> dict[str, Any]:
        """Everything a report needs, as JSON values; the `ops` most critical HLO instructions."""
        return {
            "ok": self.ok,
            "program": self.program.name,
            "chip": self.chip.name,
            "mode": self.mode,
            "cycles": self.cycles,
            "launch": self.launch,
            "host_held": self.host_held,
            "seconds": self.seconds,
            "wall_seconds": dict(self.wall_seconds),
            "mxu_utilization": self.mxu_utilization,
            "array_active": self.array_active,
            "macs": self.macs,
            "hbm_bytes": self.hbm_bytes,
            "vmem_high_water": self.vmem_high_water,
            "instructions": self.instructions,
            "units": {name: dict(causes) for name, causes in self.units.items()},
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "hazards": [str(h) for h in self.hazards],
            "groups": self.groups(),
            "ops": self.ops()[:ops],
            "timeline": self.timeline(),
        }


def _place(places: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """The names of the first place, as the record has them."""
    return {"op_name": places[0][1], "source": places[0][2]} if places else {}
