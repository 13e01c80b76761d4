"""Random kernels over random streams that overlap, for comparison with the definition."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np

from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Stream
from systolith.isa.pattern import Coord
from systolith.sim.memory import Machine
from tests.sim_values.build import TINY, Builder

INDEX = 100
_DTYPES = ["f32"] * 6 + ["s32", "bf16", "s8", "u4", "f8e4m3fn", "pred"]
_OPS = {
    1: ["mov", "neg.f32", "abs.f32", "not", "round.bf16", "floor.f32", "sign.f32", "abs.s32"],
    2: ["add.f32", "mul.f32", "max.f32", "min.f32", "add.s32", "xor", "sub.f32", "lt.f32", "min.s32", "eq.s32"],
    3: ["select"],
}
_CONSTANTS, _SCALAR = [0x3F800000, 0x7FA12345], 0x40490FDB
Ops = list[tuple[Any, ...]]


def _stream(r: Random, b: Builder, nest: tuple[int, ...]) -> Stream:
    counts = (*nest, *r.choice([(1, 8), (2, 3), (2, 8), (1, 1), (r.randint(1, 2), r.randint(1, 8))]))
    n, dtype = len(counts), r.choice(_DTYPES)
    size = DTYPES[dtype].size
    strides = [size * prod(counts[k + 1 :]) for k in range(n)]
    shape = r.random()
    if shape < 0.3:
        strides = [s * r.choice([1, 1, 0, -1, 2]) for s in strides]
    elif shape < 0.5:
        strides = [size * r.randint(-6, 10) for _ in strides]
    coords = []
    for _ in range(r.choice([0, 0, 0, 1, 1, 2])):
        lo = r.randint(-3, 4)
        coefs = tuple(r.choice([0, 0, 1, 1, 2, -1, 4]) for _ in counts)
        ends = r.choice([lo, -(2**31)]), r.choice([lo + r.randint(0, 12), 2**31 - 1])
        step = r.choice([0, size, -size, 4 * size])
        coords.append(Coord(coefs, r.randint(-4, 4), *ends, r.choice([1, 1, 1, 2, 3]), step, r.randint(-1, 1)))
    indirect = r.choice([-1] * 5 + [r.randrange(n)])
    fill = r.choice([0, 0x3F800000, 0xFF800000, 0x7FA00001, 5])
    number = b.pattern(dtype, counts, strides, coords, fill, indirect)
    base = r.choice([6000, 6000, 6000 + 4 * r.randint(0, 20), 6000 + 32 * r.randint(0, 6), 9000])
    return b.vmem(number, base, bias=(r.randint(-4, 4), r.randint(-4, 4)), index=INDEX)


def _section(r: Random, b: Builder, streams: list[Stream], live: list[int], length: int, targets: list[int]) -> Ops:
    """Operations that write `targets`; `live` has the registers that may be read, brought up to date."""
    ops: Ops = []
    for _ in range(length):
        source = [*live, 64, 65, 128]
        kind, dst, n = r.random(), r.choice(targets), r.randrange(len(streams))
        coords = b.program.patterns[streams[n].pattern].coords
        if kind < 0.15:
            ops.append(("st", -1, (r.choice(source),), n))
            continue
        if kind < 0.45:
            ops.append(("ld", dst, (), n))
        elif kind < 0.55:
            ops.append(("coord", dst, (), n + 16 * r.randrange(len(coords))) if coords else ("inside", dst, (), n))
        else:
            arity = r.choice([1, 1, 2, 2, 2, 3])
            ops.append((r.choice(_OPS[arity]), dst, tuple(r.choice(source) for _ in range(arity))))
        live.append(dst)
    return ops


def random_kernel(seed: int) -> Builder:
    """A program of one `vpu.run`."""
    r, b = Random(seed), Builder()
    nest = tuple(r.randint(1, 5) for _ in range(r.randint(0, 3)))
    streams = [_stream(r, b, nest) for _ in range(r.randint(1, 4))]
    carried, live = r.choice([[], [], [8], [8, 9]]), list[int]()
    prologue = _section(r, b, streams, live, r.randint(0, 3), [8, 9, 10]) if carried or r.random() < 0.2 else []
    for c in carried:
        prologue.append(
            ("ld", c, (), r.randrange(len(streams))) if r.random() < 0.5 else ("mov", c, (r.choice([64, 128]),))
        )
        live.append(c)
    body = _section(r, b, streams, live, r.randint(1, 7), [1, 2, 3, *carried, *carried])
    body.append(("st", -1, (r.choice([*live, 64]),), r.randrange(len(streams))))
    epilogue = _section(r, b, streams, live, r.randint(1, 4), [4, 5]) if r.random() < 0.4 else []
    kernel = b.kernel(body, prologue, epilogue, _CONSTANTS)
    b.run_kernel(kernel, nest, streams, r.randint(0, len(nest)), int(r.random() < 0.4), (_SCALAR, 0, 0, 0))
    return b


def machine_for(b: Builder, seed: int) -> Machine:
    """A machine whose VMEM holds numbers, NaNs among them, and an index list."""
    m, rng = Machine(b.program, TINY, {}), np.random.default_rng(seed)
    some = rng.standard_normal(4000).astype(np.float32)
    some[rng.random(4000) < 0.05] = np.nan
    m.vmem[:16000] = some.view(np.uint8)
    m.vmem[INDEX : INDEX + 64] = rng.integers(-2, 6, 16).astype(np.int32).view(np.uint8)
    return m
