"""The micro-operations of VPU kernels: one table.

What each one computes, to the bit, is the function of the same name in `systolith.isa.numerics`; its issue slot and
latency come from here and from the chip's configuration (`vpu.<slot>_slots`, `vpu.<slot>_latency`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from systolith.isa.dtypes import DTYPES, Kind


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


def _rows() -> list[tuple[str, Slot, int, str]]:
    alu, trans = Slot.ALU, Slot.TRANS
    rows: list[tuple[str, Slot, int, str]] = [
        ("ld", Slot.LOAD, 0, "load a vector through stream imm, widened"),
        ("st", Slot.STORE, 1, "store a vector through stream imm, rounded to the pattern's element type"),
        ("coord", alu, 0, "coordinate imm / 16 of stream imm mod 16, as s32 (before division and bounds)"),
        ("inside", alu, 0, "1 where the element of stream imm mod 16 is inside, else 0"),
        ("mov", alu, 1, "copy, payloads kept"),
        ("select", alu, 3, "a != 0 ? b : c, bits"),
        ("and", alu, 2, "bitwise"),
        ("or", alu, 2, "bitwise"),
        ("xor", alu, 2, "bitwise"),
        ("not", alu, 1, "bitwise"),
        ("shl", alu, 2, "a << b; 0 where b, unsigned, is 32 or more"),
        ("shr", alu, 2, "logical a >> b; 0 where b, unsigned, is 32 or more"),
        ("sra", alu, 2, "arithmetic a >> b; the sign where b, unsigned, is 32 or more"),
        ("clz", alu, 1, "leading zeros, 32 of 0"),
        ("popc", alu, 1, "bits set"),
    ]
    for op in ("add", "sub", "min", "max"):
        rows += [
            (f"{op}.f32", alu, 2, f"IEEE {op}; min and max give NaN if either is" if op[0] == "m" else f"IEEE {op}")
        ]
        rows += [(f"{op}.s32", alu, 2, "two's complement")]
    rows += [(f"{op}.u32", alu, 2, "unsigned") for op in ("min", "max")]
    rows += [
        ("mul.f32", alu, 2, "IEEE multiply"),
        ("mul.s32", alu, 2, "low 32 bits"),
        ("mulh.u32", alu, 2, "high 32 bits"),
    ]
    rows += [("neg.f32", alu, 1, "flip the sign bit"), ("abs.f32", alu, 1, "clear the sign bit")]
    rows += [
        ("neg.s32", alu, 1, "two's complement"),
        ("abs.s32", alu, 1, "two's complement; abs of the least is itself"),
    ]
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        rows += [
            (f"{op}.{t}", alu, 2, "1 or 0") for t in ("f32", "s32", "u32") if not (op in ("eq", "ne") and t == "u32")
        ]
    rows += [
        (f"{op}.f32", alu, 1, doc)
        for op, doc in (
            ("floor", "towards -inf"),
            ("ceil", "towards +inf"),
            ("rne", "nearest integer, ties to even"),
            ("rna", "nearest integer, ties away from zero"),
            ("trunc", "towards zero"),
            ("sign", "-1, -0, +0, +1 or NaN"),
            ("isfinite", "1 if neither infinite nor NaN"),
        )
    ]
    rows += [("sign.s32", alu, 1, "-1, 0, 1")]
    rows += [
        ("cvt.f32.s32", alu, 1, "s32 to f32, nearest even"),
        ("cvt.f32.u32", alu, 1, "u32 to f32, nearest even"),
        ("cvt.s32.f32", alu, 1, "f32 to s32, towards zero, saturating, NaN gives 0"),
        ("cvt.u32.f32", alu, 1, "f32 to u32, towards zero, saturating, NaN gives 0"),
    ]
    for t in DTYPES.values():
        if t.kind is Kind.FLOAT and t.bits < 32:
            rows.append((f"round.{t}", alu, 1, f"f32 rounded to {t} (nearest even), as f32"))
        elif t.is_integer and t.bits < 32:
            rows.append((f"wrap.{t}", alu, 1, f"low {t.bits} bits, extended as {t}"))
            rows.append((f"sat.{t}", alu, 1, f"s32 clamped to the range of {t}"))
    rows += [("div.f32", trans, 2, "IEEE divide"), ("sqrt.f32", trans, 1, "IEEE square root")]
    rows += [
        (f"{op}.{t}", trans, 2, doc)
        for op, doc in (("div", "towards zero; x/0 is -1 (all ones)"), ("rem", "sign of the dividend; x rem 0 is x"))
        for t in ("s32", "u32")
    ]
    rows += [
        (f"{op}.f32", trans, n, f"{op}, a fixed sequence (numerics)")
        for op, n in (
            ("exp", 1),
            ("expm1", 1),
            ("log", 1),
            ("log1p", 1),
            ("tanh", 1),
            ("logistic", 1),
            ("rsqrt", 1),
            ("cbrt", 1),
            ("sin", 1),
            ("cos", 1),
            ("tan", 1),
            ("erf", 1),
            ("pow", 2),
            ("atan2", 2),
        )
    ]
    rows += [("rem.f32", trans, 2, "IEEE fmod: sign of the dividend")]
    return rows


MICROOPS: dict[str, MicroOpInfo] = {
    name: MicroOpInfo(name, code, slot, sources, doc) for code, (name, slot, sources, doc) in enumerate(_rows())
}
