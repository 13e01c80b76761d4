"""Why a group takes as long as it does: the unit and cause that dominate, and a sentence that says so.

The *limiter* is the unit that is occupied for most of the group's cycles.  Occupied for at least LIMITED of the cycles
charged to the group, that unit bounds it; otherwise the group waits, and the sentence names the cause that the
limiter's instructions waited on longest.  Where they wait for the sequencer, and the sequencer for a full queue, the
sentence goes on to the cause that this queue waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.reports.causes import FIXED, cause, producer, queue_class, unit_label
from systolith.reports.numbers import percent, size
from systolith.reports.roofline import HBM, MXU, TRANS, VPU, GroupRoof, Peaks, group_roof
from systolith.reports.run_data import BUSY, Group, RunData

LIMITED = 0.7
HELD_UP = 0.1  # of the run's cycles: a full queue that the sequencer waits for as long matters
HIDDEN = 10  # a unit occupied so many times the cycles charged to the group: the work is not waited for
SEEN = 0.01  # of a group's cycles: shorter waits are not worth a word
FULL = "fifo_full_"
COMPUTE, MEMORY, VECTOR, CONTROL, LATENCY, NOTHING = "compute", "memory", "vector", "control", "latency", "nothing"
HOST = "host"
BOUND_BY_UNIT = {
    "s": COMPUTE, "w": COMPUTE, "ld": MEMORY, "st": MEMORY, "vpu": VECTOR, "xlu": VECTOR, "seq": CONTROL,
}  # fmt: skip
BOUND_BY_STALL = {"hbm_bandwidth": MEMORY, "hbm_contention": MEMORY, "fifo_empty": CONTROL, "host": HOST}


@dataclass(frozen=True)
class Attribution:
    """Why a group is slow.

    Attributes:
        group: its name.
        unit: the limiter; "" if none of its instructions took time.
        cause: `busy`, or the limiter's stall.
        share: of the cycles charged to the group, at most 1.
        bound: class: compute, memory, vector, control, latency, host, nothing.
        sentence: for people.
    """

    group: str
    unit: str
    cause: str
    share: float
    bound: str
    sentence: str


def attribute(group: Group, chip: Peaks, full: Sequence[str] = (), alone: bool = False) -> Attribution:
    """The dominant unit and cause of a group.

    Args:
        group: the group.
        chip: peaks of the chip.
        full: queues whose being full holds up the sequencer during the run.
        alone: the program has no other group; one without a name is then all that it does.
    """
    if not group.name and not alone:
        text = "What the program does for no group in particular: joining queues, loops and branches."
        return Attribution(group.name, "seq", BUSY, 1.0 if group.cycles else 0.0, CONTROL, text)
    if not any(group.busy.values()):
        return Attribution(group.name, "", BUSY, 0.0, NOTHING, "No instruction of it occupies a unit.")
    unit = max(group.busy, key=lambda name: group.busy[name])
    if group.cycles * HIDDEN <= group.busy[unit]:
        text = f"Hidden behind other groups; its longest part is {group.busy[unit]:,} cycles of {unit_label(unit)}."
        return Attribution(group.name, unit, BUSY, 0.0, NOTHING, text)
    share = min(1.0, group.busy[unit] / group.cycles)
    if share >= LIMITED:
        text = _occupied(group, unit, share, group_roof(group, chip), chip)
        return Attribution(group.name, unit, BUSY, share, BOUND_BY_UNIT.get(queue_class(unit)[0], CONTROL), text)
    return _waits(group, unit, share, full)


def attribute_run(run: RunData, chip: Peaks) -> dict[str, Attribution]:
    """Attributions by group name."""
    waits = {cause: n for cause, n in run.units.get("seq", {}).items() if cause.startswith(FULL)}
    full = [cause.removeprefix(FULL) for cause, n in waits.items() if n >= HELD_UP * run.total]
    return {group.name: attribute(group, chip, full, alone=len(run.groups) == 1) for group in run.groups}


def _waits(group: Group, unit: str, share: float, full: Sequence[str]) -> Attribution:
    """A group none of whose units is occupied for most of its cycles."""
    rest = group.cycles - group.busy[unit]
    stall, waited = _longest_stall(group, unit, rest)
    part = waited / group.cycles
    head = f"Its longest unit, {unit_label(unit)}, is occupied for {percent(share, 0)} of its cycles"
    if part < SEEN:
        return Attribution(group.name, unit, BUSY, share, LATENCY, f"{head}; {_others(group, unit)}.")
    time = "the rest goes" if waited == rest else f"{percent(part, 0)} go"
    text = f"{head}; {time} by {_waiting(stall)}"
    if stall == "fifo_empty":
        text += _held_up(group, [queue for queue in full if queue != unit])
    if share >= part:
        return Attribution(group.name, unit, BUSY, share, LATENCY, text + ".")
    return Attribution(group.name, unit, stall, part, BOUND_BY_STALL.get(stall, LATENCY), text + ".")


def _others(group: Group, unit: str) -> str:
    """A clause on the wait of the busiest other unit, in a group whose longest one does not wait."""
    waits = {queue: _longest_stall(group, queue, group.cycles - n) for queue, n in group.busy.items() if queue != unit}
    long = {q: (stall, n) for q, (stall, n) in waits.items() if 0 < SEEN * group.cycles <= n}
    if not long:
        return "the rest is latencies and dependencies between its units"
    # Of the units that wait, the one that works longest.
    queue = max(long, key=lambda name: group.busy[name])
    stall, waited = long[queue]
    return f"{unit_label(queue)} spends {percent(waited / group.cycles, 0)} {_waiting(stall)}"


def _held_up(group: Group, full: Sequence[str]) -> str:
    """A clause on the full queue that holds up the sequencer, and its own wait."""
    used = [queue for queue in full if queue in group.stalls]
    if not used:
        return ""
    queue = max(used, key=lambda name: sum(group.stalls[name].values()))
    stall, waited = _longest_stall(group, queue, group.cycles)
    held = f", which is held up by the full queue of {unit_label(queue)}"
    return f"{held}: that is {_waiting(stall)}" if waited and stall != "fifo_empty" else held


def _longest_stall(group: Group, unit: str, most: int) -> tuple[str, int]:
    """The cause that the unit's instructions waited on longest, and the cycles, at most `most`.

    The gap before a group's first instruction begins while other groups run, so a wait can be longer than the group.
    """
    stalls = {name: n for name, n in group.stalls.get(unit, {}).items() if name and name != BUSY}
    if not stalls:
        return "", 0
    name = max(stalls, key=lambda key: stalls[key])
    return name, min(stalls[name], most)


def _waiting(stall: str) -> str:
    """A cause as a gerund: 'waiting for loads'."""
    if stall.startswith("wait_"):
        return f"waiting for {producer(stall.removeprefix('wait_'))}"
    if stall in FIXED:
        return GERUND.get(stall, f"in {FIXED[stall][0]}")
    return f"in {cause(stall).label}"


GERUND = {
    "fifo_empty": "waiting for the sequencer to issue",
    "hbm_latency": "waiting for data to arrive from HBM (latency)",
    "hbm_bandwidth": "waiting for HBM bandwidth",
    "hbm_contention": "waiting while the other DMA queue has the HBM",
    "host": "waiting for the host to send data, or to make room",
    "weight_shift": "waiting for a weight tile to shift into the array",
    "fence": "waiting at a fence for earlier transfers",
    "self_conflict": "in conflicts of the unit's own accesses on its memory port",
}


def _occupied(group: Group, unit: str, share: float, roof: GroupRoof, chip: Peaks) -> str:
    kind = queue_class(unit)[0]
    ahead = group.busy[unit] - group.cycles
    more = f" and {ahead:,} before them" if ahead > SEEN * group.cycles else ""
    head = f"{unit_label(unit)} is occupied for {percent(share, 0)} of its cycles{more}"
    say = DETAIL.get(kind)
    return f"{head}{say(group, unit, roof, chip) if say else ''}."


def _stream(group: Group, unit: str, roof: GroupRoof, chip: Peaks) -> str:
    used = roof.needs[MXU] / roof.took
    text = f", {percent(used, 0)} of the MXU peak as useful MACs"
    occupied = sum(n for name, n in group.busy.items() if queue_class(name)[0] == "s") / chip.mxus
    filled = roof.needs[MXU] / occupied if occupied else 0.0
    if filled >= 0.8:
        return text + f": while it streams, {percent(filled, 0)} of the array does useful work"
    if chip.mxus > 1 and occupied < 0.7 * max(group.busy[n] for n in group.busy if queue_class(n)[0] == "s"):
        return text + ": the work is uneven over the MXUs"
    reasons = "K or N short of its size, or several passes a product"
    return text + f": each pass fills {percent(filled, 0)} of the array ({reasons})"


def _weights(group: Group, unit: str, roof: GroupRoof, chip: Peaks) -> str:
    return " loading weight tiles: too few rows stream through each tile to hide the next one"


def _load(group: Group, unit: str, roof: GroupRoof, chip: Peaks) -> str:
    moved = group.hbm_bytes.read + group.hbm_bytes.written
    if not moved:
        return ", with no bytes of HBM"
    text = f", moving {size(moved)} ({percent(moved / (roof.took * chip.hbm), 0)} of the bandwidth in that time)"
    ridge = chip.mxu_flops / chip.bandwidth
    if roof.roof == HBM and roof.intensity is not None and roof.intensity < ridge:
        return text + f": its {roof.intensity:.3g} flops a byte are below the {ridge:.3g} that keep the MXUs fed"
    if moved > 1.5 * roof.bytes > 0:
        return text + f": {moved / roof.bytes:.1f} times its inputs and outputs, read again for other tiles"
    return text


def _vector(group: Group, unit: str, roof: GroupRoof, chip: Peaks) -> str:
    need = min(1.0, max(roof.needs[VPU], roof.needs[TRANS]) / group.busy[unit])
    if need >= 0.6:
        return f": its operations take {percent(need, 0)} of that at the full rate of the slots"
    return (
        f", though its operations at the full rate of the slots would take {percent(need, 0)} of that: "
        "loads, stores, conversions or dependencies of its kernels limit it"
    )


def _control(group: Group, unit: str, roof: GroupRoof, chip: Peaks) -> str:
    return ": issuing instructions limits it"


DETAIL = {"s": _stream, "w": _weights, "ld": _load, "st": _load, "vpu": _vector, "seq": _control}
