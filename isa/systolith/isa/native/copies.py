"""Copies of strided blocks of elements in machine code, widening bf16 on the way where asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numpy.typing import NDArray

from systolith.isa.native.library import I32, I64, Call, Library, loop, pointer

LOOPS = 5
"""A copy has at most so many loops."""

WIDEN = "widen"
"""The kind of copy that makes f32 images of bf16; the other kinds are the elements' bytes: "1", "2", "4", "8"."""

_SIZES = {"1": (8, 8), "2": (16, 16), "4": (32, 32), "8": (64, 64), WIDEN: (16, 32)}  # bits, from and to
_ROW = 2 + 3 * LOOPS

Loop = tuple[int, int, int]
"""Trip count, and the bytes that source and target move each time."""


class Blocks(NamedTuple):
    """Blocks to copy.

    Attributes:
        rows: of 64-bit integers, one a block.
        address: of the first.
    """

    rows: NDArray[np.int64]
    address: int


def blocks(found: Sequence[tuple[int, int, Sequence[Loop]]]) -> Blocks:
    """Blocks from their offsets in source and target (bytes) and at most `LOOPS` loops, outermost first."""
    rows = [
        [source, target, *(v for one in (*((1, 0, 0),) * (LOOPS - len(loops)), *loops) for v in one)]
        for source, target, loops in found
    ]
    made = np.array(rows, np.int64).reshape(-1, _ROW)
    return Blocks(made, made.ctypes.data)


def copy_blocks(kind: str, what: Blocks, source: int, target: int, keep: object, call: Call) -> None:
    """Copy blocks of elements.

    Args:
        kind: of `WIDEN`.
        what: the blocks.
        source, target: addresses that their offsets are from, at any alignment; source and target do not
            overlap.
        keep: whose memory that is.
        call: makes the call.
    """
    call(_library()[kind], (what.address, len(what.rows), source, target), (what, keep))


@lru_cache(maxsize=1)
def _library() -> Library:
    return Library({kind: (4, partial(_copy, *sizes)) for kind, sizes in _SIZES.items()}, __file__)


def _copy(narrow: int, wide: int, b: ir.IRBuilder, rows: Any, count: Any, source: Any, target: Any) -> None:
    base = pointer(b, rows, I64)
    with loop(b, count) as block:
        row = [b.load(b.gep(base, [b.add(b.mul(block, I64(_ROW)), I64(i))])) for i in range(_ROW)]
        nest = [row[i : i + 3] for i in range(2, _ROW, 3)]
        _block(b, narrow, wide, b.add(source, row[0]), b.add(target, row[1]), nest)


def _block(b: ir.IRBuilder, narrow: int, wide: int, source: Any, target: Any, nest: Sequence[Any]) -> None:
    with ExitStack() as stack:
        for count, step, to_step in nest[:-1]:
            i = stack.enter_context(loop(b, count))
            source, target = b.add(source, b.mul(i, step)), b.add(target, b.mul(i, to_step))
        count, step, to_step = nest[-1]
        plain = (I64(narrow // 8), I64(wide // 8))
        packed = b.and_(b.icmp_signed("==", step, plain[0]), b.icmp_signed("==", to_step, plain[1]))
        with b.if_else(packed) as (yes, no):
            with yes:
                _elements(b, narrow, wide, source, target, (count, *plain))
            with no:
                _elements(b, narrow, wide, source, target, (count, step, to_step))


def _elements(b: ir.IRBuilder, narrow: int, wide: int, source: Any, target: Any, nest: Sequence[Any]) -> None:
    """The innermost loop; with strides that are constants LLVM makes vector instructions or a block move of it."""
    count, step, to_step = nest
    with loop(b, count) as i:
        element = b.load(pointer(b, b.add(source, b.mul(i, step)), ir.IntType(narrow)), align=1)
        if wide > narrow:
            element = b.shl(b.zext(element, I32), I32(wide - narrow))
        b.store(element, pointer(b, b.add(target, b.mul(i, to_step)), ir.IntType(wide)), align=1)
