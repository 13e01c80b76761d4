"""Copies of strided blocks of elements in machine code, widening bf16 on the way where asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.numerics.native import I32, I64, Call, Library, loop, pointer

LOOPS = 5
"""A copy has at most so many loops."""

WIDEN = "widen"
"""The kind of copy that makes f32 images of bf16; the other kinds are the elements' bytes: "1", "2", "4", "8"."""

_ONES = ((1, 0, 0),) * LOOPS
_SIZES = {"1": (8, 8), "2": (16, 16), "4": (32, 32), "8": (64, 64), WIDEN: (16, 32)}  # bits, from and to

Loop = tuple[int, int, int]
"""Trip count, and the bytes that source and target move each time."""


def copy_block(kind: str, source: int, target: int, loops: Sequence[Loop], keep: object, call: Call) -> None:
    """Copy the elements of a loop nest.

    Args:
        kind: of `WIDEN`.
        source, target: addresses of the first elements, at any alignment; they do not overlap.
        loops: at most `LOOPS`, outermost first.
        keep: whose memory that is.
        call: makes the call.
    """
    whole = (*_ONES[len(loops) :], *loops)
    call(_library()[kind], (source, target, *(v for one in whole for v in one)), keep)


@lru_cache(maxsize=1)
def _library() -> Library:
    bodies: dict[str, tuple[int, Callable[..., None]]] = {
        kind: (2 + 3 * LOOPS, partial(_copy, *sizes)) for kind, sizes in _SIZES.items()
    }
    return Library(bodies)


def _copy(narrow: int, wide: int, b: ir.IRBuilder, source: Any, target: Any, *nest: Any) -> None:
    loops = [nest[i : i + 3] for i in range(0, len(nest), 3)]
    with ExitStack() as stack:
        for count, step, to_step in loops[:-1]:
            i = stack.enter_context(loop(b, count))
            source, target = b.add(source, b.mul(i, step)), b.add(target, b.mul(i, to_step))
        count, step, to_step = loops[-1]
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
