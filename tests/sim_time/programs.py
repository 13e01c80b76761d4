"""A small program of every unit, for tests of the times: a tile through load, matmul, epilogue, store."""

from __future__ import annotations

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, GroupInfo, Origin, Program, Role, TokenDecl

CHIP = load_chip("tiny")
TILE, LEFT, OUT = 0, 1, 2
W_AT, X_AT, Y_AT = 0, 1024, 2048
KERNEL = Kernel("copy", Section((MicroOp("ld", 0, imm=0), MicroOp("st", -1, (0,), imm=1, cycle=3)), 4))


def matmul_program(tiles: int = 3) -> Program:
    """`tiles` times in a loop: 16 x 8 by 8 x 8 in bf16, results in f32."""
    program = Program("matmul", CHIP.name, CHIP.digest())
    program.patterns = [
        Pattern(BF16, (8, 8), (16, 2)),
        Pattern(BF16, (16, 8), (16, 2)),
        Pattern(F32, (8, 2, 8), (64, 32, 4)),
    ]
    program.kernels = [KERNEL]
    shapes = {"w": ("bf16", (8, 8), 128), "x": ("bf16", (16, 8), 256), "y": ("f32", (16, 8), 512)}
    for n, (name, (dtype, dims, size)) in enumerate(shapes.items()):
        role, number = (Role.RESULT, 0) if name == "y" else (Role.PARAMETER, n)
        program.buffers.append(BufferDecl(name, role, dtype, dims, size, number))
    pairs = [("ld", "w0"), ("ld", "s0"), ("w0", "s0"), ("s0", "w0"), ("s0", "vpu"), ("vpu", "st")]
    back = [("w0", "ld"), ("s0", "ld"), ("vpu", "s0"), ("st", "vpu"), ("st", "seq")]
    program.tokens = [TokenDecl(p, c) for p, c in pairs + back]
    program.code = [*_prime(), Instruction("loop", {"count": tiles, "end": 14}), *_body(), *_join()]
    program.origins = [
        Origin(),
        Origin("dot.1", "fusion.1", "matmul", 16 * 8 * 8),
        Origin("add.2", "fusion.1", "epilogue"),
    ]
    program.debug = [{"mxu.matmul": 1, "mxu.load": 1, "vpu.run": 2}.get(i.op, 0) for i in program.code]
    program.groups = [GroupInfo("fusion.1", "kOutput", ("dot.1", "add.2"), ("dot", "add"), 2048, 0, 896)]
    program.vmem_high_water = 2560
    return program


def _nop(queue: str, **more: tuple[int, ...]) -> Instruction:
    return Instruction("nop", {"queue": queue}, **more)  # type: ignore[arg-type]


def _prime() -> list[Instruction]:
    """Signals that say that every buffer is free."""
    return [_nop("w0", signals=(6,)), _nop("s0", signals=(3, 7)), _nop("vpu", signals=(8,)), _nop("st", signals=(9,))]


def _body() -> list[Instruction]:
    def vmem(pattern: int, base: int) -> Stream:
        return Stream(Space.VMEM, pattern, base)

    copy: dict[str, Value] = {"kernel": 0, "counts": (8,), "inner": 1, "serial": 0, "scalars": (0, 0, 0, 0)}
    mxu: dict[str, Value] = {"row_loops": 1, "part": 0, "integer": 0}
    accumulators, sums = Stream(Space.ACC, OUT), vmem(OUT, Y_AT)
    return [
        Instruction("dma.load", {"src": Stream(Space.HBM, TILE, 0, 0), "dst": vmem(TILE, W_AT)}, 0, (6,), (0,)),
        Instruction("dma.load", {"src": Stream(Space.HBM, LEFT, 0, 1), "dst": vmem(LEFT, X_AT)}, 0, (7,), (1,)),
        Instruction("mxu.load", {"src": vmem(TILE, W_AT), "transpose": 0, **mxu}, 0, (0, 3), (2, 6)),
        Instruction("mxu.latch", {}, 0, (2,)),
        Instruction(
            "mxu.matmul", {"src": vmem(LEFT, X_AT), "acc": 0, "accumulate": 0, **mxu}, 0, (1, 8), (3, 4, 7)
        ),
        Instruction("vpu.run", {**copy, "streams": (accumulators, sums)}, 0, (4, 9), (5, 8)),
        Instruction("dma.store", {"src": sums, "dst": Stream(Space.HBM, OUT, 0, 2)}, 0, (5,), (9,)),
        Instruction("add", {"rd": Reg(1), "ra": Reg(1), "b": 1}),
        Instruction("add", {"rd": Reg(2), "ra": Reg(2), "b": 1}),
    ]  # fmt: skip


def _join() -> list[Instruction]:
    """SEQ waits until the last store has retired."""
    return [_nop("st", signals=(10,)), Instruction("sync", {}, 0, (10,)), Instruction("halt")]
