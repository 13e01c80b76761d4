"""Random kernels of the form that native code takes: streams of one size, that overlap only element by element."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random
from typing import Any

import numpy as np

from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Stream
from systolith.isa.microops import MICROOPS
from systolith.isa.pattern import Coord
from systolith.sim.memory import Machine
from tests.isa_numerics.traceable import TRACED
from tests.sim_values.build import TINY, Builder

CHIP = replace(TINY, vpu=replace(TINY.vpu, lanes=64, sublanes=4), vmem=replace(TINY.vmem, bytes=1 << 20))
_CONSTANTS, _SCALARS = [0x3F800000, 0x7FA12345, 0, 0xFF800000], (0x40490FDB, 0x80000000, 7, 0)
_PIECE = 1 << 16  # bytes of memory for one stream
Ops = list[tuple[Any, ...]]


def _stream(r: Random, b: Builder, counts: tuple[int, ...], slot: int, stored: bool, inner: tuple[int, ...]) -> Stream:
    """`inner`: loops along which nothing moves (the stream belongs to the prologue or the epilogue)."""
    dtype = r.choice(["f32", "f32", "s32", "u32", "bf16"])
    size, n = DTYPES[dtype].size, len(counts)
    moving = [1 if k in inner else c for k, c in enumerate(counts)]
    strides = [0 if k in inner else size * prod(moving[k + 1 :]) for k in range(n)]
    if r.random() < 0.3:
        strides[:-1] = [s + (size * prod(moving) if k == 0 and s else 0) for k, s in enumerate(strides[:-1])]
    if not stored and r.random() < 0.4:
        strides = [s * r.choice([0, 1, 1, -1 if k < n - 1 else 1]) for k, s in enumerate(strides)]
    coords = []
    for _ in range(r.choice([0, 0, 1, 2])):
        coefs = tuple(r.choice([0, 1, 2, -1]) if k < n - 1 and k not in inner else 0 for k in range(n))
        lo = r.randint(-2, 3)
        coords.append(Coord(coefs, r.randint(-2, 3), lo, lo + r.randint(0, 9), 1, 0, r.randint(-1, 1)))
    number = b.pattern(dtype, counts, strides, coords, r.choice([0, 0x3F800000, 0xFF800000, 0x7FA00001]))
    base = (2 * slot + 1) * _PIECE + size * r.randint(0, 5) + r.choice([0, 0, 0, 2])
    return b.vmem(number, base, bias=(r.randint(-3, 3), r.randint(-3, 3)))


def _compute(r: Random, ops: Ops, live: list[int], targets: list[int], count: int) -> None:
    for _ in range(count):
        name, dst = r.choice(TRACED), r.choice(targets)
        source = [*live, *live, *range(64, 68), *range(128, 131)]
        ops.append((name, dst, tuple(r.choice(source) for _ in range(MICROOPS[name].sources))))
        live.append(dst)


def plain_kernel(seed: int) -> Builder:
    """A program of one `vpu.run`."""
    r, b = Random(seed), Builder(CHIP)
    nest = tuple(r.randint(1, 3) for _ in range(r.randint(0, 3)))
    counts = (*nest, r.randint(1, 4), r.choice([1, 3, 31, 32, 33, 64, 64]))
    carried = [8] if r.random() < 0.5 and nest else []
    inner = tuple(range(r.randint(0, len(nest) - 1) if carried else len(nest), len(nest)))
    streams = [_stream(r, b, counts, n, n == 2, ()) for n in range(3)]
    streams += [_stream(r, b, counts, n, n == 4, inner) for n in (3, 4)] if carried else []
    if r.random() < 0.3:  # in place
        streams[0] = replace(streams[2])
    prologue: Ops = [("ld", 10, (), 3), ("mov", 8, (r.choice([10, 64, 128]),))] if carried else []
    body: Ops = [("ld", 1, (), 0), ("ld", 2, (), 1)]
    live = [1, 2, *([8, 10] if carried else [])]
    _compute(r, body, live, [3, 4, 5], r.randint(0, 4))
    if carried:
        body.append((r.choice(["add.f32", "max.f32", "add.s32", "min.u32", "xor"]), 8, (8, r.choice(live))))
    body.append(("st", -1, (r.choice(live),), 2))
    _compute(r, body, live, [3, 4, 5], r.randint(0, 1))
    epilogue: Ops = []
    if carried:
        left = [8, r.choice(live)]
        _compute(r, epilogue, left, [11], r.randint(0, 2))
        epilogue.append(("st", -1, (left[-1],), 4))
    b.run_kernel(b.kernel(body, prologue, epilogue, _CONSTANTS), nest, streams, len(inner), 0, _SCALARS)
    return b


def machine_for(b: Builder, seed: int) -> Machine:
    """A machine whose VMEM holds numbers of all sorts."""
    m, rng = Machine(b.program, CHIP, {}), np.random.default_rng(seed)
    words = m.vmem.view(np.uint32)
    some = rng.standard_normal(len(words)).astype(np.float32).view(np.uint32)
    any_bits = rng.integers(0, 2**32, len(words), np.uint32)
    special = np.array([0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FA00000, 0xFFC00001], np.uint32)
    words[:] = np.choose(
        rng.choice(3, len(words), p=[0.7, 0.2, 0.1]), [some, any_bits, rng.choice(special, len(words))]
    )
    return m
