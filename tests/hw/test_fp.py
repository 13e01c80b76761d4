"""Floating point in RTL against numpy, in two formats: binary32 as the chip has it, binary16 because the functions are
written for any widths.  And the element formats, against ml_dtypes where values are concerned.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith.hw.tb import fp_bench, native
from systolith.hw.tb.data import Words
from systolith.hw.tb.fp_bench import F16, F32, HALF, Format, What
from systolith.isa.dtypes import DTYPES, DType, Kind
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.numerics import formats

Array = Any  # floats of either width

# The micro-operations that are in f32 as those of `HALF` are in f16.
MICROOP = {name: f"{name}.f32" for name in HALF} | {
    "fmod": "rem.f32",
    "from_s32": "cvt.f32.s32",
    "from_u32": "cvt.f32.u32",
    "to_s32": "cvt.s32.f32",
    "to_u32": "cvt.u32.f32",
}
NARROWED = [t for t in DTYPES.values() if t.size <= 4]
SMALL_FLOATS = [t for t in NARROWED if t.is_float and t.size < 4]


def _away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)


def _saturated(least: int, most: int) -> Callable[[Array], Array]:
    return lambda x: np.clip(np.trunc(np.nan_to_num(x.astype(np.float64))), least, most).astype(np.int64)


def _most(x: Array, y: Array) -> Array:
    """The maximum; of zeros, which numpy takes for equal, +0 if there is one."""
    return np.where(x == y, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _least(x: Array, y: Array) -> Array:
    return -_most(-x, -y)


FLOATS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "fmod": np.fmod,
    "min": _least,
    "max": _most,
    "floor": np.floor,
    "ceil": np.ceil,
    "rne": np.rint,
    "rna": _away,
    "trunc": np.trunc,
}
WHOLES: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "to_s32": _saturated(-(2**31), 2**31 - 1),
    "to_u32": _saturated(0, 2**32 - 1),
}
UNARY = {"sqrt", "floor", "ceil", "rne", "rna", "trunc", "to_s32", "to_u32"}


def expected(name: str, form: Format, a: Words, b: Words) -> Words:
    """Numpy's results, a NaN as the canonical one."""
    raw, real = (np.uint32, np.float32) if form is F32 else (np.uint16, np.float16)
    with np.errstate(all="ignore"):
        if name in ("from_s32", "from_u32"):
            values = a.view(np.int32 if name == "from_s32" else np.uint32).astype(np.float64).astype(real)
            return np.asarray(values.view(raw), np.uint32)
        given = [x.astype(raw).view(real) for x in ((a,) if name in UNARY else (a, b))]
        if name in WHOLES:
            return np.asarray(WHOLES[name](*given)).astype(np.uint32)
        values = FLOATS[name](*given).astype(real)
    return np.where(np.isnan(values), form.nan, values.view(raw)).astype(np.uint32)


def check(executable: Path, name: str, form: Format, a: Words, b: Words) -> None:
    if form is F32:
        info = MICROOPS[MICROOP[name]]
        what, number = (What.ALU if info.slot is Slot.ALU else What.DIVIDE), info.code
    else:
        what, number = What.HALF, HALF.index(name)
    got = fp_bench.run(executable, what, number, a, b, a)
    fp_bench.compare(f"{name} {form}", got, expected(name, form, a, b), a, b)


@pytest.fixture(scope="module")
def executable() -> Path:
    return native.build("fp")


@pytest.mark.parametrize("form", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("name", HALF)
def test_arithmetic_is_numpys(executable: Path, name: str, form: Format) -> None:
    drawn = F32 if name.startswith("from") else form
    a, b, _ = fp_bench.operands(drawn, 4, 50_000)
    check(executable, name, form, a, b)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_every_binary16_operand(executable: Path, name: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    check(executable, name, F16, codes, codes)


@pytest.mark.slow
@pytest.mark.parametrize("form", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("name", HALF)
def test_arithmetic_is_numpys_for_many_operands(executable: Path, name: str, form: Format) -> None:
    drawn = F32 if name.startswith("from") else form
    for seed in (5, 6):
        a, b, _ = fp_bench.operands(drawn, seed, 1_000_000)
        check(executable, name, form, a, b)


def _codes(t: DType) -> Words:
    """Every pattern of a type of up to 2 bytes; images in which each bit counts, of a larger one."""
    return np.arange(1 << 8 * t.size, dtype=np.uint32) if t.size < 4 else fp_bench.operands(F32, 7, 50_000)[0]


def _images() -> Words:
    """Every upper half, with the lower halves at which rounding changes."""
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16) | low).reshape(-1)


@pytest.mark.parametrize("t", NARROWED, ids=str)
def test_widening(executable: Path, t: DType) -> None:
    codes = _codes(t)
    rubbish = (np.uint64(0xA5A5A5A5) << np.uint64(8 * t.size)).astype(np.uint32)
    got = fp_bench.run(executable, What.WIDEN, t.code, codes | rubbish, codes, codes)
    stored = codes.astype(formats.raw_type(t))
    fp_bench.compare(f"widen {t}", got, formats.widen(stored, t), codes)
    if t.is_float:
        with np.errstate(all="ignore"):
            values = stored.view(t.stored).astype(np.float32)
        number = ~np.isnan(values)
        fp_bench.compare(f"widen {t}", got[number], values.view(np.uint32)[number], codes[number])


@pytest.mark.parametrize("t", NARROWED, ids=str)
def test_narrowing(executable: Path, t: DType) -> None:
    images = _images()
    got = fp_bench.run(executable, What.NARROW, t.code, images, images, images)
    fp_bench.compare(f"narrow {t}", got, formats.narrow(images, t).astype(np.uint32), images)
    if t.kind is Kind.FLOAT:
        values = images.view(np.float32)
        number = ~np.isnan(values)
        with np.errstate(all="ignore"):
            cast = values[number].astype(t.stored).view(formats.raw_type(t)).astype(np.uint32)
        fp_bench.compare(f"narrow {t}", got[number], cast, images[number])


@pytest.mark.parametrize("t", SMALL_FLOATS, ids=str)
def test_narrowing_undoes_widening(executable: Path, t: DType) -> None:
    codes = _codes(t)
    images = fp_bench.run(executable, What.WIDEN, t.code, codes, codes, codes)
    again = fp_bench.run(executable, What.NARROW, t.code, images, images, images)
    fp_bench.compare(f"narrow of widen {t}", again, codes, codes)
