"""Element types: one table, from which every other part takes names, widths and numpy types.

Names are XLA's (`f32`, `bf16`, `s8`, ...).  `stored` is the numpy type of an array of them in memory; those of less
than a byte take one an element (docs/isa.md, Numerics).  `DTYPES` are the types of instructions; buffers may be of any
in `ELEMENT_TYPES`.  Formats of the others: OCP Microscaling specification (f4e2m1fn, f8e8m0fnu), IEEE-like f8e3m4 and
f8e4m3, and XLA's integers of one and two bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import ml_dtypes
import numpy as np


class Kind(StrEnum):
    """The kind of number of an element type."""

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: XLA's name.
        code: its number in encoded instructions (0 to 31); -1 for a type that no instruction has.
        kind: sort of number.
        bits: width of a value in bits.
        stored: numpy type of an array of it in memory.
    """

    name: str
    code: int
    kind: Kind
    bits: int
    stored: np.dtype[np.generic]

    def __hash__(self) -> int:
        return self.code

    @property
    def size(self) -> int:
        """Bytes an element takes in memory."""
        return self.stored.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned (pred is neither)."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def in_memory(self) -> DType:
        """The type by which instructions move its elements: u8, of a byte, for one that they do not have."""
        return self if self.code >= 0 else U8

    @property
    def least(self) -> int:
        """The least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind is Kind.SIGNED else 0

    @property
    def greatest(self) -> int:
        """The greatest value of an integer type."""
        return (1 << (self.bits - (self.kind is Kind.SIGNED))) - 1

    @property
    def part(self) -> DType:
        """The type of the parts of a complex number; another type itself."""
        return DTYPES[{"c64": "f32", "c128": "f64"}[self.name]] if self.kind is Kind.COMPLEX else self

    @property
    def finfo(self) -> Any:
        """Limits of a float type, or of a complex one's parts: `eps`, `max`, `smallest_subnormal`, ..."""
        return cast("Any", ml_dtypes.finfo)(self.part.stored)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"


def _t(name: str, code: int, kind: Kind, bits: int, stored: object) -> DType:
    return DType(name, code, kind, bits, np.dtype(stored))  # type: ignore[call-overload]


DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        _t("pred", 0, Kind.PRED, 1, np.bool_),
        _t("s4", 1, Kind.SIGNED, 4, ml_dtypes.int4),
        _t("s8", 2, Kind.SIGNED, 8, np.int8),
        _t("s16", 3, Kind.SIGNED, 16, np.int16),
        _t("s32", 4, Kind.SIGNED, 32, np.int32),
        _t("s64", 5, Kind.SIGNED, 64, np.int64),
        _t("u4", 6, Kind.UNSIGNED, 4, ml_dtypes.uint4),
        _t("u8", 7, Kind.UNSIGNED, 8, np.uint8),
        _t("u16", 8, Kind.UNSIGNED, 16, np.uint16),
        _t("u32", 9, Kind.UNSIGNED, 32, np.uint32),
        _t("u64", 10, Kind.UNSIGNED, 64, np.uint64),
        _t("f8e4m3fn", 11, Kind.FLOAT, 8, ml_dtypes.float8_e4m3fn),
        _t("f8e5m2", 12, Kind.FLOAT, 8, ml_dtypes.float8_e5m2),
        _t("f8e4m3fnuz", 13, Kind.FLOAT, 8, ml_dtypes.float8_e4m3fnuz),
        _t("f8e5m2fnuz", 14, Kind.FLOAT, 8, ml_dtypes.float8_e5m2fnuz),
        _t("bf16", 15, Kind.FLOAT, 16, ml_dtypes.bfloat16),
        _t("f16", 16, Kind.FLOAT, 16, np.float16),
        _t("f32", 17, Kind.FLOAT, 32, np.float32),
        _t("f64", 18, Kind.FLOAT, 64, np.float64),
        _t("c64", 19, Kind.COMPLEX, 64, np.complex64),
        _t("c128", 20, Kind.COMPLEX, 128, np.complex128),
    )
}

ELEMENT_TYPES: dict[str, DType] = DTYPES | {
    t.name: t
    for t in (
        _t("s1", -1, Kind.SIGNED, 1, ml_dtypes.int1),
        _t("s2", -1, Kind.SIGNED, 2, ml_dtypes.int2),
        _t("u1", -1, Kind.UNSIGNED, 1, ml_dtypes.uint1),
        _t("u2", -1, Kind.UNSIGNED, 2, ml_dtypes.uint2),
        _t("f4e2m1fn", -1, Kind.FLOAT, 4, ml_dtypes.float4_e2m1fn),
        _t("f8e3m4", -1, Kind.FLOAT, 8, ml_dtypes.float8_e3m4),
        _t("f8e4m3", -1, Kind.FLOAT, 8, ml_dtypes.float8_e4m3),
        _t("f8e4m3b11fnuz", -1, Kind.FLOAT, 8, ml_dtypes.float8_e4m3b11fnuz),
        _t("f8e8m0fnu", -1, Kind.FLOAT, 8, ml_dtypes.float8_e8m0fnu),
    )
}
"""Name to element type, all that HLO text may have."""

BY_CODE: dict[int, DType] = {t.code: t for t in DTYPES.values()}

PRED, S8, S32, U8, U32 = (DTYPES[n] for n in ("pred", "s8", "s32", "u8", "u32"))
BF16, F16, F32 = (DTYPES[n] for n in ("bf16", "f16", "f32"))


def dtype(name: str) -> DType:
    """The element type called `name`.

    Raises:
        KeyError: there is none; the message lists those there are.
    """
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise KeyError(f"unknown element type {name!r}; known: {', '.join(ELEMENT_TYPES)}") from None
