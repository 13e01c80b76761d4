"""Points of a program's text: (group, point) for everything that its executed instructions use."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

from systolith.hw.fuzz.case import Case
from systolith.isa.geometry import Unknown, interval, loop_strides
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream
from systolith.isa.kernel import CONST0, SCALAR0, Kernel, MicroOp
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import queue_of
from systolith.isa.pattern import UNBOUNDED, Pattern
from systolith.isa.program import Program
from systolith.isa.timing import carried
from systolith.sim.plans import plan_of
from systolith.sim.simulate import RunResult

Point = tuple[str, str]
COPIES = ("dma.load", "dma.store", "xlu.shuffle", "xlu.reduce")
MOST = 8  # counts from here on are one point


def many(n: int, most: int = MOST) -> str:
    """A count as a point: the largest ones together."""
    return str(n) if n < most else f"{most}+"


def _kind(operand: object) -> str:
    return "register" if isinstance(operand, Reg) else "immediate"


def ports_of(instr: Instruction, program: Program) -> Iterator[tuple[str, Stream]]:
    """(port, stream) of an instruction; a kernel's streams by their use in its micro-operations."""
    if instr.op == "vpu.run":
        kernel = program.kernels[cast(int, instr.args["kernel"])]
        streams = cast(tuple[Stream, ...], instr.args["streams"])
        uses = {(m.op, m.imm % 16) for m in _ops(kernel) if m.op in ("ld", "st", "coord", "inside")}
        for op, n in sorted(uses):
            yield f"vpu {'coord' if op == 'inside' else op}", streams[n]
        return
    for name in ("src", "dst"):
        stream = instr.args.get(name)
        if isinstance(stream, Stream):
            yield f"{instr.op} {name}", stream


def _ops(kernel: Kernel) -> list[MicroOp]:
    return [m for s in (kernel.prologue, kernel.body, kernel.epilogue) for m in s.ops]


def field_points(instr: Instruction, program: Program) -> Iterator[Point]:
    """Opcode and fields of one instruction."""
    op, a = instr.op, instr.args
    yield "opcode", op
    queue = queue_of(instr)
    if op == "nop":
        yield "nop", queue
    if queue != "seq" or op == "sync":
        yield "waits", f"{queue} {len(instr.waits)}"
        yield "signals", f"{queue} {len(instr.signals)}"
    if op == "mxu.latch" and instr.signals:
        yield "control", "latch token"
    if instr.fence:
        yield "fence", op
    for name in ("b", "count", "acc"):
        if name in a:
            yield "operand", f"{op}.{name} {_kind(a[name])}"
    for name in ("part", "integer", "transpose", "accumulate", "serial", "inner"):
        if name in a:
            yield "field", f"{op}.{name} {a[name]}"
    if "row_loops" in a:
        loops = len(program.patterns[cast(Stream, a["src"]).pattern].counts)
        given = cast(int, a["row_loops"])
        yield "field", f"{op}.row_loops {'none' if not given else 'all' if given == loops else 'some'}"
    if op == "vpu.run":
        yield "field", f"vpu.run.counts {len(cast(tuple[int, ...], a['counts']))}"
        yield "field", f"vpu.run.streams {len(cast(tuple[Stream, ...], a['streams']))}"
        scalars = cast(tuple[Operand, ...], a["scalars"])
        yield from (("operand", f"vpu.run.scalar{i} {_kind(v)}") for i, v in enumerate(scalars))
    if op == "xlu.reduce":
        dtype = program.patterns[cast(Stream, a["src"]).pattern].dtype
        yield "reduce", f"{a['function']} {dtype}"


def shape_points(instr: Instruction, program: Program) -> Iterator[Point]:
    """The way of a copy, the sizes of vectors and tiles."""
    a = instr.args
    if instr.op in ("dma.load", "dma.store"):
        src, dst = cast(Stream, a["src"]), cast(Stream, a["dst"])
        yield "route", f"{instr.op} {src.space.name} to {dst.space.name}"
    elif instr.op == "vpu.run":
        for port, s in ports_of(instr, program):
            counts = program.patterns[s.pattern].counts
            yield "vector", f"{port.removeprefix('vpu ')} {counts[-2]} x {counts[-1]}"
    elif "row_loops" in a:
        counts, loops = program.patterns[cast(Stream, a["src"]).pattern].counts, cast(int, a["row_loops"])
        rows, row = prod(counts[:loops]), prod(counts[loops:])
        if instr.op == "mxu.matmul":
            yield "tile", f"matmul k {row}"
        else:
            k, n = (row, rows) if a["transpose"] else (rows, row)
            yield "tile", f"load k {k}"
            yield "tile", f"load n {n}"


def stream_points(port: str, s: Stream, program: Program) -> Iterator[Point]:
    """Space, type, operands and pattern of one port."""
    p = program.patterns[s.pattern]
    yield "space", f"{port} {s.space.name}"
    yield "type", f"{port} {'ACC ' if s.space is Space.ACC else ''}{p.dtype}"
    if s.space is Space.HOST:
        return
    if s.space is not Space.NONE:
        yield "stream", f"{port} base {_kind(s.base)}"
    for b in {c.bias for c in p.coords if c.bias >= 0}:
        yield "stream", f"{port} bias{b} {_kind(s.bias[b])}"
    if p.indirect >= 0:
        yield "stream", f"{port} index {_kind(s.index)}"
    for feature in pattern_features(p):
        yield "pattern", f"{port} {feature}"
    if isinstance(s.base, int) and s.base % p.dtype.size:
        yield "pattern", f"{port} unaligned"


def pattern_features(p: Pattern) -> Iterator[str]:
    """The features of an address generator that a pattern needs."""
    yield f"loops {len(p.counts)}"
    yield f"coords {len(p.coords)}"
    plain = [s for s, n in zip(loop_strides(p), p.counts, strict=True) if n > 1]
    if any(s is not None and s < 0 for s in plain):
        yield "stride negative"
    if 0 in plain:
        yield "stride zero"
    for c in p.coords:
        yield from _coord_features(p, c.lo, c.hi, c.div, c.stride, c.bias, c.offset)
    if p.indirect >= 0:
        yield "indirect unbounded" if isinstance(interval(p), Unknown) else "indirect bounded"
        yield "indirect lanes" if p.indirect == len(p.counts) - 1 else "indirect outer"
    elif p.coords and all(c.bias < 0 for c in p.coords):
        plan = plan_of(p, (0, 0))
        inside = int(plan.mask.sum())
        yield "inside all" if inside == prod(p.counts) else "inside some" if inside else "inside none"


def _coord_features(p: Pattern, lo: int, hi: int, div: int, stride: int, bias: int, offset: int) -> Iterator[str]:
    if lo != UNBOUNDED[0]:
        yield "coord lo"
    if hi != UNBOUNDED[1]:
        yield "coord hi"
    if div > 1:
        yield "coord div stride" if stride else "coord div"
    if stride:
        yield "coord stride negative" if stride < 0 else "coord stride"
    if bias >= 0:
        yield f"coord bias {bias}"
    if offset:
        yield "coord offset"


def kernel_points(kernel: Kernel) -> Iterator[Point]:
    """Micro-operations, where they issue, their operands; how sections overlap."""
    sections = {"prologue": kernel.prologue, "body": kernel.body, "epilogue": kernel.epilogue}
    for name, section in sections.items():
        for m in section.ops:
            yield "slot", f"{m.op} {m.slot}"
            yield "section", f"{MICROOPS[m.op].slot} {name}"
            for i, s in enumerate(m.srcs):
                kind = "register" if s < CONST0 else "constant" if s < SCALAR0 else "scalar"
                yield "source", f"{m.op}.{i} {kind}"
    yield "kernel", f"ii {many(kernel.ii)}"
    yield "kernel", f"stages {many(-(-kernel.body.length // kernel.ii))}"
    yield "kernel", "carried" if carried(kernel) else "not carried"
    for name, section in sections.items():
        if not section.ops:
            yield "kernel", f"no {name}"
    shared = {m.imm for m in kernel.body.ops if m.op == "ld"} & {m.imm for m in kernel.body.ops if m.op == "st"}
    if shared:
        yield "kernel", "loads what it stores"
    if len({m.imm for m in kernel.body.ops if m.op == "st"}) > 1:
        yield "kernel", "several stored streams"


def control_points(program: Program, result: RunResult) -> Iterator[Point]:
    """Loops: how deep, which end together, trip counts."""
    ends: list[int] = []
    for i, instr in enumerate(program.code):
        while ends and i >= ends[-1]:
            ends.pop()
        if instr.op != "loop" or not result.executed[i]:
            continue
        end, count = cast(int, instr.args["end"]), instr.args["count"]
        if end in ends:
            yield "control", "loops end together"
        ends.append(end)
        yield "control", f"loop depth {len(ends)}"
        if isinstance(count, int):
            yield "control", "loop count " + ("negative" if count < 0 else many(count, 3))
        if not result.executed[i + 1]:
            yield "control", f"loop skipped, {_kind(count)} count"


def text_points(case: Case, result: RunResult) -> Iterator[Point]:
    """Everything that the executed instructions of a program use."""
    program = case.program
    kernels: set[int] = set()
    for i, instr in enumerate(program.code):
        if not result.executed[i]:
            continue
        yield from field_points(instr, program)
        yield from shape_points(instr, program)
        for port, stream in ports_of(instr, program):
            yield from stream_points(port, stream, program)
        if instr.op == "vpu.run":
            kernels.add(cast(int, instr.args["kernel"]))
    for k in sorted(kernels):
        yield from kernel_points(program.kernels[k])
    for t in program.tokens:
        yield "token", f"{t.producer} to {t.consumer}"
    if any(b.alias >= 0 for b in program.buffers):
        yield "control", "aliased buffer"
    yield from control_points(program, result)
