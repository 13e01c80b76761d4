"""The arithmetic of the matrix unit against exact arithmetic: corner cases and random operands.

The references are written here anew, from the definitions: sums in f64 rounded to odd (from which rounding to f32 is
exact), parts by their definition, small floats with ml_dtypes.  Environment: ARITH_OPERANDS (how many, each test).
"""

from __future__ import annotations

import itertools
import os
from typing import Any, TypeAlias

import cocotb
import numpy as np
from cocotb.triggers import Timer
from numpy.typing import NDArray

from systolith.hw.tb.data import EDGES, Words, words
from systolith.isa.dtypes import DTYPES, Kind

Dut: TypeAlias = Any  # a handle: its ports are found when it runs

NAN = np.uint32(0x7FC00000)
SIGN = np.uint32(0x80000000)
HALF = np.uint32(0xFFFF0000)
KINDS = ("normal", "wide", "tiny", "edges")
COUNT = int(os.environ.get("ARITH_OPERANDS", "100000"))


def to_odd(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum, rounded towards zero and, where inexact, with the last bit set."""
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    bits = total.view(np.uint64).copy()
    too_big = (error != 0) & ((error < 0) == (total > 0))  # nearest was away from zero
    bits -= too_big.astype(np.uint64)
    bits |= (error != 0).astype(np.uint64)
    return np.where(np.isfinite(total), bits.view(np.float64), total)


def rounded(values: NDArray[np.float64]) -> Words:
    """To f32 images; NaN canonical."""
    images = values.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), NAN, images)


def wide(images: Words) -> NDArray[np.float64]:
    return images.view(np.float32).astype(np.float64)


def fma(a: Words, b: Words, c: Words) -> Words:
    """bf16 x bf16 is exact in f64."""
    return rounded(to_odd(wide(a & HALF) * wide(b & HALF), wide(c)))


def add(a: Words, c: Words) -> Words:
    return rounded(to_odd(wide(a), wide(c)))


def bf16(x: Words) -> Words:
    """Nearest even, by the definition: the neighbours below and above, and which is nearer."""
    below = x & HALF
    rest = x & ~HALF
    up = (rest > 0x8000) | ((rest == 0x8000) & (below >> np.uint32(16) & np.uint32(1)).astype(bool))
    nearest = np.where(up, below + np.uint32(0x10000), below)
    return np.where((x & ~SIGN) > 0x7F800000, NAN, nearest)


def part(x: Words, number: int) -> Words:
    for _ in range(number):
        x = add(x, bf16(x) ^ SIGN)
    return bf16(x)


def operands(seed: int, count: int) -> tuple[Words, Words, Words]:
    """Corner cases (all triples), then random ones; of the sums, a third nearly cancels."""
    random = np.random.default_rng(seed)
    signed = np.concatenate([EDGES, EDGES | SIGN])
    corners = np.array(list(itertools.product(signed, repeat=3)), np.uint32)
    corners = corners[random.permutation(len(corners))[: count // 2]]
    rest = count - len(corners)
    columns = []
    for column in range(3):
        kinds = [words(random, kind, rest) for kind in KINDS] + [random.integers(0, 2**32, rest, np.uint32)]
        picked = np.choose(random.integers(0, len(kinds), rest), kinds)
        columns.append(np.concatenate([corners[:, column], picked]))
    a, b, c = columns
    with np.errstate(all="ignore"):
        near = (a & HALF).view(np.float32) * (b & HALF).view(np.float32)
    nudged = near.view(np.uint32) ^ SIGN ^ random.integers(0, 4, count, np.uint32)
    cancels = (random.random(count) < 0.3) & (np.arange(count) >= len(corners))
    return a, b, np.where(cancels, nudged, c)


async def apply(dut: Dut, inputs: dict[str, Words], output: str) -> Words:
    """Put words through all lanes, a batch after the other."""
    lanes = len(dut.a_i) // 32
    count = len(next(iter(inputs.values())))
    out = np.zeros(count, np.uint32)
    for at in range(0, count, lanes):
        for name, values in inputs.items():
            batch = np.zeros(lanes, np.uint32)
            batch[: len(values[at : at + lanes])] = values[at : at + lanes]
            getattr(dut, name).value = int.from_bytes(batch.tobytes(), "little")
        await Timer(1, "ns")
        bits = int(getattr(dut, output).value)
        out[at : at + lanes] = np.frombuffer(bits.to_bytes(lanes * 4, "little"), np.uint32)[: count - at]
    return out


def compare(what: str, got: Words, want: Words, *inputs: Words) -> None:
    """Raise AssertionError at the first difference."""
    bad = np.flatnonzero(got != want)
    if len(bad):
        i = bad[0]
        given = ", ".join(f"{x[i]:#010x}" for x in inputs)
        found = f"RTL {got[i]:#010x}, exact {want[i]:#010x}"
        raise AssertionError(f"{what}: {len(bad)} of {len(got)} differ; {given}: {found}")


@cocotb.test()
async def fused_multiply_add(dut: Dut) -> None:
    a, b, c = operands(1, COUNT)
    with np.errstate(all="ignore"):
        want = fma(a, b, c)
    compare("fma", await apply(dut, {"a_i": a, "b_i": b, "c_i": c}, "fma_o"), want, a, b, c)


@cocotb.test()
async def addition(dut: Dut) -> None:
    a, _, c = operands(2, COUNT)
    c[::3] = a[::3] ^ SIGN ^ (c[::3] & np.uint32(0x01000007))
    with np.errstate(all="ignore"):
        want = add(a, c)
    compare("add", await apply(dut, {"a_i": a, "c_i": c}, "add_o"), want, a, c)


@cocotb.test()
async def parts(dut: Dut) -> None:
    _, _, c = operands(3, COUNT // 4)
    for number in range(3):
        dut.part_i.value = number
        with np.errstate(all="ignore"):
            want = part(c, number)
        got = await apply(dut, {"c_i": c}, "part_o")
        compare(f"part {number}", np.where((got & ~SIGN) > 0x7F800000, NAN, got), want, c)  # whatever NaN


@cocotb.test()
async def widening(dut: Dut) -> None:
    """Every code of the small types, under rubbish in the bits above."""
    for t in DTYPES.values():
        if t.size > 2 or t.name in ("s16", "u16"):
            continue
        dut.dtype_i.value = t.code
        codes = np.arange(1 << 8 * t.size, dtype=np.uint32)
        stored = codes.astype(f"u{t.size}")
        if t.bits == 4:
            want = ((codes & 15) ^ 8).astype(np.int32) - 8 if t.kind is Kind.SIGNED else (codes & 15).astype(np.int32)
        elif t.kind is Kind.PRED:
            want = (codes != 0).astype(np.int32)
        elif t.is_float:
            with np.errstate(all="ignore"):
                want = stored.view(t.stored).astype(np.float32)
        else:
            want = stored.view(t.stored).astype(np.int32)
        images = want.view(np.uint32)
        raw = codes | np.uint32(0xA5A5A5A5) << np.uint32(8 * t.size)
        got = await apply(dut, {"a_i": raw}, "widen_o")
        if t.is_float:  # whatever NaN: arithmetic makes it canonical
            nan = np.isnan(images.view(np.float32))
            assert ((got[nan] & ~SIGN) > 0x7F800000).all(), f"widen {t}: a NaN became a number"
            got, images, raw = got[~nan], images[~nan], raw[~nan]
        compare(f"widen {t}", got, images, raw)
