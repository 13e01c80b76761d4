"""The points that random programs are to cover, and those that no legal program can."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from systolith.hw.fuzz.points import COPIES, MOST, Point, many
from systolith.hw.fuzz.units import FLOATS, INTEGERS, NARROW, REDUCTIONS, WORDS
from systolith.isa.chip import Chip
from systolith.isa.dependence import slots_of
from systolith.isa.instruction import Space
from systolith.isa.kernel import MAX_NEST, MAX_STREAMS, NSCALARS
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.opcodes import ALU_OPS, BRANCH_OPS, MAX_LOOP_NEST, MAX_WAITS, OPCODES, queues
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS
from systolith.isa.verify import SPACES

KINDS = ("immediate", "register")
LEFT_OUT = {
    "opcode: trap": "it ends the run with an error",
    "waits, signals: SEQ's scalar instructions": "only sync looks at them",
    "pattern: 1 and 2 loops of the VPU": "a stream has the nest's loops and two more",
    "cause: wait_seq of a unit": "SEQ issues what waits for its token after it has signalled",
    "cause: fence, drain, wait for itself of vpu and xlu": "an instruction retires when its occupancy ends",
    "cause: hbm_bandwidth, hbm_contention, granularity but of ld and st": "only they reach HBM",
    "cause: fill but of vpu and xlu": "no other unit's pipeline is part of its occupancy",
}
"""Points that are no goals, and why."""


def _ports(chip: Chip) -> Iterator[tuple[str, Space]]:
    for (op, name), spaces in SPACES.items():
        port = f"vpu {name}" if op == "vpu.run" else f"{op} {name}"
        for space in spaces:
            if (space is Space.LINK and not chip.link.count) or (space is Space.HOST and not chip.host.queues):
                continue
            yield port, space


def field_goals(chip: Chip) -> Iterator[Point]:
    """Opcodes and their fields."""
    names = queues(chip)
    yield from (("opcode", op) for op in OPCODES if op != "trap")
    yield from (("nop", q) for q in names)
    yield from ((side, f"{q} {n}") for side in ("waits", "signals") for q in names for n in range(MAX_WAITS + 1))
    yield from (("fence", op) for op in ("nop", "mxu.load", "mxu.latch", "mxu.matmul", "vpu.run", *COPIES))
    operands = [*(f"{op}.b" for op in ALU_OPS), "loop.count", "mxu.matmul.acc"]
    operands += [f"vpu.run.scalar{i}" for i in range(NSCALARS)]
    yield from (("operand", f"{name} {kind}") for name in operands for kind in KINDS)
    flags = {"mxu.load": ("integer", "transpose"), "mxu.matmul": ("integer", "accumulate"), "vpu.run": ("serial",)}
    yield from (("field", f"{op}.{name} {n}") for op, some in flags.items() for name in some for n in (0, 1))
    yield from (("field", f"{op}.part {n}") for op in ("mxu.load", "mxu.matmul") for n in range(3))
    yield from (("field", f"{op}.row_loops {n}") for op in ("mxu.load", "mxu.matmul") for n in ("none", "some", "all"))
    yield from (("field", f"vpu.run.inner {n}") for n in range(MAX_NEST + 1))
    yield from (("field", f"vpu.run.counts {n}") for n in range(1, MAX_NEST + 1))
    yield from (("field", f"vpu.run.streams {n}") for n in range(MAX_STREAMS + 1))
    yield from (("reduce", f"{f} {t}") for f, t in REDUCTIONS)


def _types(port: str, space: Space) -> Iterator[str]:
    if space is Space.ACC:
        yield from (f"ACC {t}" for t in WORDS)
    elif port.startswith("mxu"):
        yield from (str(t) for t in (*FLOATS, *INTEGERS))
    else:
        yield from (str(t) for t in NARROW)


def stream_goals(chip: Chip) -> Iterator[Point]:
    """Ports: spaces, types, operands, patterns."""
    ports = dict(_ports(chip))
    for port, space in _ports(chip):
        yield "space", f"{port} {space.name}"
        if not (port == "vpu coord" and space is Space.ACC):
            yield from (("type", f"{port} {t}") for t in _types(port, space))
    for port in ports:
        operands = ["base", "bias0", "bias1"] + ["index"] * (not port.startswith("mxu"))
        yield from (("stream", f"{port} {name} {kind}") for name in operands for kind in KINDS)
        yield from (("pattern", f"{port} {feature}") for feature in _features(port))


def shape_goals(chip: Chip) -> Iterator[Point]:
    """Ways of copies, sizes of vectors and tiles."""
    for op in ("dma.load", "dma.store"):
        sides = [[s for port, s in _ports(chip) if port == f"{op} {side}"] for side in ("src", "dst")]
        yield from (("route", f"{op} {a.name} to {b.name}") for a in sides[0] for b in sides[1])
    v, m = chip.vpu, chip.mxu
    for op in ("ld", "st"):
        yield from (("vector", f"{op} {s} x {n}") for s in range(1, v.sublanes + 1) for n in range(1, v.lanes + 1))
    yield from (("tile", f"load k {n}") for n in range(1, m.rows + 1))
    yield from (("tile", f"load n {n}") for n in range(1, m.cols + 1))
    yield from (("tile", f"matmul k {n}") for n in range(1, m.rows + 1))


def _features(port: str) -> Iterator[str]:
    first = 3 if port.startswith("vpu") else 1
    yield from (f"loops {n}" for n in range(first, MAX_LOOPS + 1))
    yield from (f"coords {n}" for n in range(int(port == "vpu coord"), MAX_COORDS + 1))
    yield from ("stride negative", "stride zero", "coord lo", "coord hi", "coord div", "coord div stride")
    yield from ("coord stride", "coord stride negative", "coord bias 0", "coord bias 1", "coord offset")
    yield from ("inside all", "inside some", "inside none")
    if port != "vpu coord":
        yield "unaligned"
    if not port.startswith("mxu"):
        yield from (f"indirect {what}" for what in ("bounded", "unbounded", "lanes", "outer"))


def kernel_goals(chip: Chip) -> Iterator[Point]:
    """Micro-operations and schedules."""
    for m in MICROOPS.values():
        yield from (("slot", f"{m.name} {n}") for n in range(slots_of(m.slot, chip)))
        kinds = ("register", "constant", "scalar")
        yield from (("source", f"{m.name}.{i} {kind}") for i in range(m.sources) for kind in kinds)
    yield from (("section", f"{slot} {name}") for slot in Slot for name in ("prologue", "body", "epilogue"))
    yield from (("kernel", f"ii {many(n)}") for n in range(1, MOST + 1))
    yield from (("kernel", f"stages {many(n)}") for n in range(MOST + 1))
    others = ("carried", "not carried", "no prologue", "no body", "no epilogue", "loads what it stores")
    yield from (("kernel", what) for what in (*others, "several stored streams"))


def control_goals(chip: Chip) -> Iterator[Point]:
    """Branches and loops."""
    yield from (("branch", f"{op} {how}") for op in BRANCH_OPS for how in ("taken", "not taken"))
    yield from (("control", f"loop depth {n}") for n in range(1, MAX_LOOP_NEST + 1))
    yield from (("control", f"loop count {n}") for n in ("negative", "0", "1", "2", "3+"))
    yield from (("control", f"loop skipped, {kind} count") for kind in KINDS)
    yield from (("control", what) for what in ("loops end together", "aliased buffer", "latch token"))


def time_goals(chip: Chip) -> Iterator[Point]:
    """Tokens, causes, units at work together."""
    names = queues(chip)
    yield from (("token", f"{a} to {b}") for a in names for b in names)
    yield from (("count", str(n)) for n in range(1, chip.token.max + 1))
    yield from (("overlap", f"{a} and {b}") for a, b in combinations(names, 2))
    yield from (("overlap", f"{q} in flight") for q in names if q in ("ld", "st") or q[-1].isdigit())
    units = names[1:]
    yield from (("cause", f"seq {c}") for c in ("busy", "fetch", "branch", "idle", "hbm_latency", "weight_shift"))
    yield from (("cause", f"seq wait_{q}") for q in units)
    yield from (("cause", f"seq fifo_full_{q}") for q in units)
    for u in units:
        always = ("busy", "self_conflict", "fifo_empty", "idle", "hbm_latency", "weight_shift")
        some = ("fill",) if u in ("vpu", "xlu") else ("fence", "drain", f"wait_{u}")
        yield from (("cause", f"{u} {c}") for c in (*always, *some))
        yield from (("cause", f"{u} wait_{q}") for q in units if q != u)
        if u in ("ld", "st"):
            yield from (("cause", f"{u} {c}") for c in ("granularity", "hbm_bandwidth", "hbm_contention"))


def goals(chip: Chip) -> list[Point]:
    """Every point that programs of a chip are to cover."""
    parts = (field_goals, stream_goals, shape_goals, kernel_goals, control_goals, time_goals)
    return list(dict.fromkeys(point for part in parts for point in part(chip)))
