"""The micro-operations of VPU kernels: one table.

The function of the same name in `systolith.isa.numerics` defines the result of each to the bit; its issue slot and
latency come from here and from the chip's configuration (`vpu.<slot>_slots`, `vpu.<slot>_latency`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Slot(StrEnum):
    """Issue slots of the VPU."""

    ALU = "alu"
    LOAD = "load"
    STORE = "store"
    TRANS = "trans"


@dataclass(frozen=True)
class MicroOpInfo:
    """A row of the table.

    Attributes:
        name: as kernels write it; the suffix is the type it works in.
        code: number in the encoding.
        slot: issue slot.
        sources: how many operands.
        doc: one line.
    """

    name: str
    code: int
    slot: Slot
    sources: int
    doc: str


_ALU, _TRANS = Slot.ALU, Slot.TRANS
_ROWS: tuple[tuple[int, str, Slot, int, str], ...] = (
    # Streams.
    (0, "ld", Slot.LOAD, 0, "load a vector through stream imm, widened"),
    (1, "st", Slot.STORE, 1, "store a vector through stream imm, rounded to the pattern's element type"),
    (2, "coord", _ALU, 0, "coordinate imm / 16 of stream imm mod 16, as s32 (before division and bounds)"),
    (3, "inside", _ALU, 0, "1 where the element of stream imm mod 16 is inside, else 0"),
    # Moves and bits.
    (4, "mov", _ALU, 1, "copy, payloads kept"),
    (5, "select", _ALU, 3, "a != 0 ? b : c, bits"),
    (6, "and", _ALU, 2, "bitwise"),
    (7, "or", _ALU, 2, "bitwise"),
    (8, "xor", _ALU, 2, "bitwise"),
    (9, "not", _ALU, 1, "bitwise"),
    (10, "shl", _ALU, 2, "a << b; 0 where b, unsigned, is 32 or more"),
    (11, "shr", _ALU, 2, "logical a >> b; 0 where b, unsigned, is 32 or more"),
    (12, "sra", _ALU, 2, "arithmetic a >> b; the sign where b, unsigned, is 32 or more"),
    (13, "clz", _ALU, 1, "leading zeros, 32 of 0"),
    (14, "popc", _ALU, 1, "bits set"),
    # Arithmetic.
    (15, "add.f32", _ALU, 2, "IEEE add"),
    (16, "add.s32", _ALU, 2, "two's complement"),
    (17, "sub.f32", _ALU, 2, "IEEE sub"),
    (18, "sub.s32", _ALU, 2, "two's complement"),
    (19, "min.f32", _ALU, 2, "IEEE min; min and max give NaN if either is"),
    (20, "min.s32", _ALU, 2, "two's complement"),
    (21, "max.f32", _ALU, 2, "IEEE max; min and max give NaN if either is"),
    (22, "max.s32", _ALU, 2, "two's complement"),
    (23, "min.u32", _ALU, 2, "unsigned"),
    (24, "max.u32", _ALU, 2, "unsigned"),
    (25, "mul.f32", _ALU, 2, "IEEE multiply"),
    (26, "mul.s32", _ALU, 2, "low 32 bits"),
    (27, "mulh.u32", _ALU, 2, "high 32 bits"),
    (28, "neg.f32", _ALU, 1, "flip the sign bit"),
    (29, "abs.f32", _ALU, 1, "clear the sign bit"),
    (30, "neg.s32", _ALU, 1, "two's complement"),
    (31, "abs.s32", _ALU, 1, "two's complement; abs of the least is itself"),
    # Comparisons.
    (32, "eq.f32", _ALU, 2, "1 or 0"),
    (33, "eq.s32", _ALU, 2, "1 or 0"),
    (34, "ne.f32", _ALU, 2, "1 or 0"),
    (35, "ne.s32", _ALU, 2, "1 or 0"),
    (36, "lt.f32", _ALU, 2, "1 or 0"),
    (37, "lt.s32", _ALU, 2, "1 or 0"),
    (38, "lt.u32", _ALU, 2, "1 or 0"),
    (39, "le.f32", _ALU, 2, "1 or 0"),
    (40, "le.s32", _ALU, 2, "1 or 0"),
    (41, "le.u32", _ALU, 2, "1 or 0"),
    (42, "gt.f32", _ALU, 2, "1 or 0"),
    (43, "gt.s32", _ALU, 2, "1 or 0"),
    (44, "gt.u32", _ALU, 2, "1 or 0"),
    (45, "ge.f32", _ALU, 2, "1 or 0"),
    (46, "ge.s32", _ALU, 2, "1 or 0"),
    (47, "ge.u32", _ALU, 2, "1 or 0"),
    # Whole numbers, signs.
    (48, "floor.f32", _ALU, 1, "towards -inf"),
    (49, "ceil.f32", _ALU, 1, "towards +inf"),
    (50, "rne.f32", _ALU, 1, "nearest integer, ties to even"),
    (51, "rna.f32", _ALU, 1, "nearest integer, ties away from zero"),
    (52, "trunc.f32", _ALU, 1, "towards zero"),
    (53, "sign.f32", _ALU, 1, "-1, -0, +0, +1 or NaN"),
    (54, "isfinite.f32", _ALU, 1, "1 if neither infinite nor NaN"),
    (55, "sign.s32", _ALU, 1, "-1, 0, 1"),
    # Conversions.
    (56, "cvt.f32.s32", _ALU, 1, "s32 to f32, nearest even"),
    (57, "cvt.f32.u32", _ALU, 1, "u32 to f32, nearest even"),
    (58, "cvt.s32.f32", _ALU, 1, "f32 to s32, towards zero, saturating, NaN gives 0"),
    (59, "cvt.u32.f32", _ALU, 1, "f32 to u32, towards zero, saturating, NaN gives 0"),
    # Narrow element types, held in 32 bits.
    (60, "wrap.s4", _ALU, 1, "low 4 bits, extended as s4"),
    (61, "sat.s4", _ALU, 1, "s32 clamped to the range of s4"),
    (62, "wrap.s8", _ALU, 1, "low 8 bits, extended as s8"),
    (63, "sat.s8", _ALU, 1, "s32 clamped to the range of s8"),
    (64, "wrap.s16", _ALU, 1, "low 16 bits, extended as s16"),
    (65, "sat.s16", _ALU, 1, "s32 clamped to the range of s16"),
    (66, "wrap.u4", _ALU, 1, "low 4 bits, extended as u4"),
    (67, "sat.u4", _ALU, 1, "s32 clamped to the range of u4"),
    (68, "wrap.u8", _ALU, 1, "low 8 bits, extended as u8"),
    (69, "sat.u8", _ALU, 1, "s32 clamped to the range of u8"),
    (70, "wrap.u16", _ALU, 1, "low 16 bits, extended as u16"),
    (71, "sat.u16", _ALU, 1, "s32 clamped to the range of u16"),
    (72, "round.f8e4m3fn", _ALU, 1, "f32 rounded to f8e4m3fn (nearest even), as f32"),
    (73, "round.f8e5m2", _ALU, 1, "f32 rounded to f8e5m2 (nearest even), as f32"),
    (74, "round.f8e4m3fnuz", _ALU, 1, "f32 rounded to f8e4m3fnuz (nearest even), as f32"),
    (75, "round.f8e5m2fnuz", _ALU, 1, "f32 rounded to f8e5m2fnuz (nearest even), as f32"),
    (76, "round.bf16", _ALU, 1, "f32 rounded to bf16 (nearest even), as f32"),
    (77, "round.f16", _ALU, 1, "f32 rounded to f16 (nearest even), as f32"),
    # Division and functions.
    (78, "div.f32", _TRANS, 2, "IEEE divide"),
    (79, "sqrt.f32", _TRANS, 1, "IEEE square root"),
    (80, "div.s32", _TRANS, 2, "towards zero; x/0 is -1 (all ones)"),
    (81, "div.u32", _TRANS, 2, "towards zero; x/0 is -1 (all ones)"),
    (82, "rem.s32", _TRANS, 2, "sign of the dividend; x rem 0 is x"),
    (83, "rem.u32", _TRANS, 2, "sign of the dividend; x rem 0 is x"),
    (84, "exp.f32", _TRANS, 1, "exp, a fixed sequence (numerics)"),
    (85, "expm1.f32", _TRANS, 1, "expm1, a fixed sequence (numerics)"),
    (86, "log.f32", _TRANS, 1, "log, a fixed sequence (numerics)"),
    (87, "log1p.f32", _TRANS, 1, "log1p, a fixed sequence (numerics)"),
    (88, "tanh.f32", _TRANS, 1, "tanh, a fixed sequence (numerics)"),
    (89, "logistic.f32", _TRANS, 1, "logistic, a fixed sequence (numerics)"),
    (90, "rsqrt.f32", _TRANS, 1, "rsqrt, a fixed sequence (numerics)"),
    (91, "cbrt.f32", _TRANS, 1, "cbrt, a fixed sequence (numerics)"),
    (92, "sin.f32", _TRANS, 1, "sin, a fixed sequence (numerics)"),
    (93, "cos.f32", _TRANS, 1, "cos, a fixed sequence (numerics)"),
    (94, "tan.f32", _TRANS, 1, "tan, a fixed sequence (numerics)"),
    (95, "erf.f32", _TRANS, 1, "erf, a fixed sequence (numerics)"),
    (96, "pow.f32", _TRANS, 2, "pow, a fixed sequence (numerics)"),
    (97, "atan2.f32", _TRANS, 2, "atan2, a fixed sequence (numerics)"),
    (98, "rem.f32", _TRANS, 2, "IEEE fmod: sign of the dividend"),
)
"""(code, name, slot, sources, doc).  Codes are in binaries: a row keeps its own, a new one takes any that is free."""


def _build() -> dict[str, MicroOpInfo]:
    table: dict[str, MicroOpInfo] = {}
    for code, name, slot, sources, doc in _ROWS:
        if name in table or any(m.code == code for m in table.values()) or not 0 <= code <= 0xFF:
            raise ValueError(f"{name}: code {code} or name is there already")
        table[name] = MicroOpInfo(name, code, slot, sources, doc)
    return table


MICROOPS: dict[str, MicroOpInfo] = _build()
