"""Chains of fused multiply-adds, compiled for this processor: the matrix unit's sums.

Down each column of a tile the sum starts at +0 and takes rows 0 .. K-1, each step one fused multiply-add rounded to
f32.  Sums of different rows and columns do not depend on each other: a block of them is kept in vector registers, and a
step is a vector instruction for 16 columns of a row.  The order within a sum, and so every bit, is as on the chip.

The functions are written in LLVM's IR (`isa/native/`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir

from systolith.isa.native.library import F32, I32, I64, Call, Library, least, loop, now, pointer
from systolith.isa.numerics.images import CANONICAL_NAN, Bits, Floats

_LANES = 16
_ROWS = 6
_VECTORS = 4 if llvm.get_host_cpu_features().get("avx512f") else 1  # 6 rows of as many fill the vector registers
COLS = _LANES * _VECTORS
"""Weight tiles have a multiple of this many columns."""
Block = tuple[int, int]
"""Address and width (elements) of a C-contiguous matrix."""

_VECTOR = ir.VectorType(F32, _LANES)


def tile_columns(cols: int) -> int:
    """Columns of the weight tiles of an array of `cols` columns."""
    return cols + -cols % COLS


class Rows(NamedTuple):
    """Rows of f32 images in memory, the elements of a row side by side.

    Attributes:
        address, pitch: of the first row, and from row to row (bytes).
        height, depth: rows, and elements of a row.
    """

    address: int
    pitch: int
    height: int
    depth: int


def reduce_to_part(bits: Bits, part: int) -> None:
    """Replace f32 images by part 0, 1 or 2 of their bf16 split, in place; NaNs become canonical.

    part 0 = bf16(x), part 1 = bf16(x - part 0), part 2 = bf16(x - part 0 - part 1), each subtraction in f32.

    Args:
        bits: uint32, C-contiguous.
        part: 0, 1 or 2.
    """
    reduce_at(bits.ctypes.data, bits.size, part, bits, now)


def reduce_at(address: int, size: int, part: int, keep: object, call: Call) -> None:
    """`reduce_to_part` of `size` images at an address; `keep`: whose memory that is."""
    call(_library()["reduce"], (address, size, part), keep)


def add_product(rows: Bits, part: int, weights: Floats, sums: Floats, accumulate: bool) -> None:
    """Put (accumulate ? sums : +0) + rows x weights into `sums`; a NaN as 0x7FC00000.

    Args:
        rows: [M, K] f32 images, the elements of a row side by side; reduced to `part` on the way.
        part: 0, 1 or 2.
        weights: [K, N rounded up to COLS] f32, C-contiguous.
        sums: [M, N] f32, C-contiguous.
        accumulate: add to `sums`.
    """
    left = Rows(rows.ctypes.data, rows.strides[0], *rows.shape)
    right = (weights.ctypes.data, weights.shape[1])
    add_product_at(left, part, right, (sums.ctypes.data, sums.shape[1]), accumulate, (rows, weights, sums), now)


def add_product_at(
    rows: Rows, part: int, weights: Block, sums: Block, accumulate: bool, keep: object, call: Call
) -> None:
    """`add_product` on memory at addresses, when `call` makes it.

    Args:
        rows, part, weights, sums, accumulate: as there; addresses are multiples of 4.
        keep: whose memory that is.
        call: makes the call.
    """
    left = (rows.address, rows.pitch // 4, rows.height, rows.depth, part)
    call(_library()["add_product"], (*left, *weights, *sums, accumulate), keep)


@lru_cache(maxsize=1)
def _library() -> Library:
    return Library({"reduce": (3, _reduce), "add_product": (10, _add_product)}, __file__)


def _at(b: ir.IRBuilder, base: Any, index: Any, kind: ir.Type = F32) -> Any:
    """Address of element `index` of f32s at `base`, as a pointer to `kind`."""
    return b.bitcast(b.gep(base, [index]), kind.as_pointer())


def _bf16(b: ir.IRBuilder, value: Any) -> Any:
    """A value rounded to bf16, nearest even; a NaN becomes canonical."""
    bits = b.bitcast(value, I32)
    odd = b.and_(b.lshr(bits, I32(16)), I32(1))
    rounded = b.and_(b.add(b.add(bits, odd), I32(0x7FFF)), I32(0xFFFF0000))
    number = b.fcmp_ordered("ord", value, value)
    return b.bitcast(b.select(number, rounded, I32(CANONICAL_NAN)), F32)


def _part(b: ir.IRBuilder, value: Any, part: Any) -> Any:
    for n in (1, 2):
        rest = b.fsub(value, _bf16(b, value))
        value = b.select(b.icmp_signed(">=", part, I64(n)), rest, value)
    return _bf16(b, value)


def _reduce(b: ir.IRBuilder, bits: Any, size: Any, part: Any) -> None:
    values = pointer(b, bits)
    with loop(b, size) as i:
        b.store(_part(b, b.load(_at(b, values, i)), part), _at(b, values, i))


def _add_product(
    b: ir.IRBuilder, rows: Any, stride: Any, count: Any, depth: Any, part: Any,
    weights: Any, padded: Any, sums: Any, width: Any, accumulate: Any,
) -> None:  # fmt: skip
    source, right, target = (pointer(b, p) for p in (rows, weights, sums))
    left = b.alloca(F32, b.mul(depth, I64(_ROWS)))
    block = b.alloca(F32, _ROWS * COLS)
    adds = b.icmp_signed("!=", accumulate, I64(0))
    with loop(b, count, _ROWS) as start:
        with loop(b, I64(_ROWS)) as r:  # beyond the last row it again, for nothing
            row = b.mul(least(b, b.add(start, r), b.sub(count, I64(1))), stride)
            with loop(b, depth) as k:
                value = b.load(_at(b, source, b.add(row, k)))
                b.store(_part(b, value, part), _at(b, left, b.add(b.mul(depth, r), k)))
        with loop(b, padded, COLS) as col:
            _chain(b, left, depth, b.gep(right, [col]), padded, block)
            with loop(b, least(b, b.sub(count, start), I64(_ROWS))) as r:
                line = b.add(b.mul(b.add(start, r), width), col)
                with loop(b, least(b, b.sub(width, col), I64(COLS))) as j:
                    place = _at(b, target, b.add(line, j))
                    total = b.load(_at(b, block, b.add(b.mul(r, I64(COLS)), j)))
                    total = b.fadd(total, b.select(adds, b.load(place), F32(0.0)))
                    number = b.fcmp_ordered("ord", total, total)
                    image = b.select(number, b.bitcast(total, I32), I32(CANONICAL_NAN))
                    b.store(b.bitcast(image, F32), place)


def _chain(b: ir.IRBuilder, left: Any, depth: Any, right: Any, stride: Any, block: Any) -> None:
    """The sums of a block: left [_ROWS, depth] x right [depth, COLS], rows `stride` apart -> block [_ROWS, COLS]."""
    fma = b.module.declare_intrinsic(f"llvm.fma.v{_LANES}f32", fnty=ir.FunctionType(_VECTOR, [_VECTOR] * 3))
    zero, first = ir.Constant(_VECTOR, [0.0] * _LANES), ir.Constant(ir.VectorType(I32, _LANES), [0] * _LANES)
    with b.goto_entry_block():  # where LLVM looks for variables that it can keep in registers
        totals = [[b.alloca(_VECTOR) for _ in range(_VECTORS)] for _ in range(_ROWS)]
    for line in totals:
        for total in line:
            b.store(zero, total)
    with loop(b, depth) as k:
        row = b.mul(k, stride)
        values = [b.load(_at(b, right, b.add(row, I64(v * _LANES)), _VECTOR), align=4) for v in range(_VECTORS)]
        for r, line in enumerate(totals):
            element = b.load(_at(b, left, b.add(b.mul(depth, I64(r)), k)))
            single = b.insert_element(ir.Constant(_VECTOR, ir.Undefined), element, I32(0))
            spread = b.shuffle_vector(single, single, first)
            for total, value in zip(line, values, strict=True):
                b.store(b.call(fma, [spread, value, b.load(total)]), total)
    for r, line in enumerate(totals):
        for v, total in enumerate(line):
            b.store(b.load(total), _at(b, block, I64(r * COLS + v * _LANES), _VECTOR), align=4)
