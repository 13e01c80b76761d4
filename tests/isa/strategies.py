"""Hypothesis strategies for everything that has an encoding."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st

from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import OPCODES, TARGETS, Field, FieldKind
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, GroupInfo, Location, Origin, Probe, Program, Role, TokenDecl

s32 = st.integers(-(2**31), 2**31 - 1)
u32 = st.integers(0, 2**32 - 1)
positive = st.integers(1, 2**31 - 1)
registers = st.builds(Reg, st.integers(0, 31))
operands: st.SearchStrategy[Operand] = s32 | registers
names = st.text('abcXYZ_.-%0 1"\\é', min_size=1, max_size=8)

streams = st.builds(
    Stream,
    st.sampled_from(Space),
    st.integers(0, 2**20 - 1),
    operands,
    st.integers(0, 2**16 - 1),
    st.tuples(operands, operands),
    operands,
    st.just(0) | st.builds(Reg, st.integers(1, 31)),
)


def _uint(f: Field) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << f.value.width) - 1)


def field_values(f: Field) -> st.SearchStrategy[Value]:
    """Every value that a field can hold."""
    table: dict[FieldKind, st.SearchStrategy[Value]] = {
        FieldKind.SINT: s32,
        FieldKind.REG: registers,
        FieldKind.OPERAND: operands,
        FieldKind.STREAM: streams,
        FieldKind.STREAMS: st.lists(streams, max_size=12).map(tuple),
        FieldKind.COUNTS: st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=6).map(tuple),
        FieldKind.SCALARS: st.tuples(*[cast(st.SearchStrategy[Operand], u32 | registers)] * 4),
    }
    if f.kind is FieldKind.CHOICE:
        return st.sampled_from([name for name, _ in f.choices])
    return _uint(f) if f.kind in (FieldKind.UINT, FieldKind.TARGET) else table[f.kind]


@st.composite
def instructions(draw: st.DrawFn, ops: tuple[str, ...] = tuple(OPCODES)) -> Instruction:
    op = OPCODES[draw(st.sampled_from(ops))]
    tokens = st.lists(st.integers(0, 254), max_size=4).map(tuple)
    unit = draw(st.integers(0, 7)) if op.queue in ("w", "s") else 0
    args = {f.name: draw(field_values(f)) for f in op.fields}
    return Instruction(op.name, args, unit, draw(tokens), draw(tokens), draw(st.booleans()))


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    n = draw(st.integers(1, 8))
    coords = st.builds(Coord, st.tuples(*[s32] * n), s32, s32, s32, positive, s32, st.integers(-1, 1))
    return Pattern(
        draw(st.sampled_from(list(DTYPES.values()))),
        draw(st.tuples(*[st.integers(1, 2**32 - 1)] * n)),
        draw(st.tuples(*[s32] * n)),
        tuple(draw(st.lists(coords, max_size=4))),
        draw(u32),
        draw(st.integers(-1, n - 1)),
    )


@st.composite
def _microops(draw: st.DrawFn, constants: int) -> MicroOp:
    info = MICROOPS[draw(st.sampled_from(list(MICROOPS)))]
    source = st.integers(0, 63) | st.integers(128, 131)
    if constants:
        source |= st.integers(64, 63 + constants)
    imm = draw(st.integers(0, 255)) if info.name in ("ld", "st", "coord", "inside") else 0
    srcs = tuple(draw(st.lists(source, min_size=info.sources, max_size=info.sources)))
    dst = -1 if info.name == "st" else draw(st.integers(0, 63))
    return MicroOp(info.name, dst, srcs, imm, draw(st.integers(0, 8191)), draw(st.integers(0, 15)))


@st.composite
def kernels(draw: st.DrawFn, name: str = "k") -> Kernel:
    constants = tuple(draw(st.lists(u32, max_size=64)))
    sections = st.builds(Section, st.lists(_microops(len(constants)), max_size=4).map(tuple), st.integers(0, 65535))
    prologue, body, epilogue = (draw(sections) for _ in range(3))
    return Kernel(name, body, draw(st.integers(1, 65535)), prologue, epilogue, constants, draw(st.integers(0, 64)))


@st.composite
def codes(draw: st.DrawFn, count: int) -> list[Instruction]:
    """Instructions of which targets are instructions, or the end."""
    code = [draw(instructions()) for _ in range(count)]
    for instr in code:
        for key in TARGETS.get(instr.op, ()):
            instr.args[key] = draw(st.integers(0, count))
    return code


@st.composite
def programs(draw: st.DrawFn, chip: str = "tiny", digest: str = "") -> Program:
    """Programs with encodable contents; they need not make sense."""
    count = draw(st.integers(1, 5))
    code = draw(codes(count))
    dims = st.lists(positive, max_size=3).map(tuple)
    roles, dtypes, index = st.sampled_from(Role), st.sampled_from(list(DTYPES)), st.integers(-1, 2)
    buffers = st.builds(BufferDecl, names, roles, dtypes, dims, positive, index, st.binary(max_size=5), index)
    locations = st.builds(Location, names, st.sampled_from(["hbm", "vmem"]), s32, s32, st.just("f32"), dims, dims)
    origins = draw(st.lists(st.builds(Origin, names, names, names, positive), min_size=1, max_size=2))
    spots = st.lists(locations, max_size=2).map(tuple)
    texts = st.lists(names, max_size=2).map(tuple)
    tokens = st.builds(TokenDecl, st.sampled_from(["ld", "vpu"]), st.sampled_from(["w0", "s0"]))
    return Program(
        draw(names),
        chip,
        digest,
        code,
        draw(st.lists(patterns(), max_size=2)),
        [draw(kernels(n)) for n in draw(st.lists(names, max_size=2, unique=True))],
        draw(st.lists(buffers, max_size=3)),
        draw(st.lists(tokens, max_size=3)),
        origins,
        draw(st.just([]) | st.lists(st.integers(0, len(origins) - 1), min_size=count, max_size=count)),
        draw(st.lists(st.builds(GroupInfo, names, names, texts, texts), max_size=1)),
        draw(st.lists(st.builds(Probe, names, positive, positive, spots, spots), max_size=1)),
        draw(positive),
    )
