"""Chains of fused multiply-adds, compiled for this processor: the matrix unit's sums.

Down each column of a tile the sum starts at +0 and takes rows 0 .. K-1, each step one fused multiply-add rounded to
f32.  Sums of different rows and columns do not depend on each other: a block of them is kept in vector registers, and a
step is a vector instruction for 16 columns of a row.  The order within a sum, and so every bit, is as on the chip.

The functions are written in LLVM's IR and compiled when first called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir

from systolith.isa.numerics.images import CANONICAL_NAN, Bits, Floats

_LANES = 16
_ROWS = 6
_VECTORS = 4 if llvm.get_host_cpu_features().get("avx512f") else 1  # 6 rows of as many fill the vector registers
COLS = _LANES * _VECTORS
"""Weight tiles have a multiple of this many columns."""

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, _LANES)


def reduce_to_part(bits: Bits, part: int) -> None:
    """Replace f32 images by part 0, 1 or 2 of their bf16 split, in place; NaNs become canonical.

    part 0 = bf16(x), part 1 = bf16(x - part 0), part 2 = bf16(x - part 0 - part 1), each subtraction in f32.

    Args:
        bits: uint32, C-contiguous.
        part: 0, 1 or 2.
    """
    _compiled().reduce(bits.ctypes.data, bits.size, part)


def add_product(rows: Bits, part: int, weights: Floats, sums: Floats, accumulate: bool) -> None:
    """Put (accumulate ? sums : +0) + rows x weights into `sums`; a NaN as 0x7FC00000.

    Args:
        rows: [M, K] f32 images, the elements of a row side by side; reduced to `part` on the way.
        part: 0, 1 or 2.
        weights: [K, N rounded up to COLS] f32, C-contiguous.
        sums: [M, N] f32, C-contiguous.
        accumulate: add to `sums`.
    """
    count, depth = rows.shape
    _compiled().add_product(
        *(rows.ctypes.data, rows.strides[0] // 4, count, depth, part),
        *(weights.ctypes.data, weights.shape[1], sums.ctypes.data, sums.shape[1], accumulate),
    )


class _Functions:
    """The functions as machine code for this processor; `engine` owns it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
        )
        source = ir.Module()
        _define(source, "reduce", 3, _reduce)
        _define(source, "add_product", 10, _add_product)
        module = llvm.parse_assembly(str(source))
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization, options.loop_unrolling = True, False  # unrolling takes longer than it saves
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.reduce = self._function("reduce", 3)
        self.add_product = self._function("add_product", 10)

    def _function(self, name: str, arguments: int) -> Any:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)
        return kind(self.engine.get_function_address(name))


@lru_cache(maxsize=1)
def _compiled() -> _Functions:
    return _Functions()


def _define(module: ir.Module, name: str, arguments: int, body: Callable[..., None]) -> None:
    """A function of 64-bit integers (addresses are such)."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * arguments), name)
    builder = ir.IRBuilder(function.append_basic_block())
    body(builder, *function.args)
    builder.ret_void()


@contextmanager
def _loop(b: ir.IRBuilder, count: Any, step: int = 1) -> Iterator[Any]:
    """Give 0, `step`, ... below `count`."""
    before, head, body, after = b.block, *(b.append_basic_block() for _ in range(3))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(_I64)
    index.add_incoming(_I64(0), before)
    b.cbranch(b.icmp_signed("<", index, count), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, _I64(step)), b.block)
    b.branch(head)
    b.position_at_end(after)


def _at(b: ir.IRBuilder, pointer: Any, index: Any, kind: ir.Type = _F32) -> Any:
    """Address of element `index` of f32s at `pointer`, as a pointer to `kind`."""
    return b.bitcast(b.gep(pointer, [index]), kind.as_pointer())


def _floats(b: ir.IRBuilder, address: Any) -> Any:
    return b.inttoptr(address, _F32.as_pointer())


def _bf16(b: ir.IRBuilder, value: Any) -> Any:
    """A value rounded to bf16, nearest even; a NaN becomes canonical."""
    bits = b.bitcast(value, _I32)
    odd = b.and_(b.lshr(bits, _I32(16)), _I32(1))
    rounded = b.and_(b.add(b.add(bits, odd), _I32(0x7FFF)), _I32(0xFFFF0000))
    number = b.fcmp_ordered("ord", value, value)
    return b.bitcast(b.select(number, rounded, _I32(CANONICAL_NAN)), _F32)


def _part(b: ir.IRBuilder, value: Any, part: Any) -> Any:
    for n in (1, 2):
        rest = b.fsub(value, _bf16(b, value))
        value = b.select(b.icmp_signed(">=", part, _I64(n)), rest, value)
    return _bf16(b, value)


def _reduce(b: ir.IRBuilder, bits: Any, size: Any, part: Any) -> None:
    values = _floats(b, bits)
    with _loop(b, size) as i:
        b.store(_part(b, b.load(_at(b, values, i)), part), _at(b, values, i))


def _add_product(
    b: ir.IRBuilder, rows: Any, stride: Any, count: Any, depth: Any, part: Any,
    weights: Any, padded: Any, sums: Any, width: Any, accumulate: Any,
) -> None:  # fmt: skip
    source, right, target = (_floats(b, p) for p in (rows, weights, sums))
    left = b.alloca(_F32, b.mul(depth, _I64(_ROWS)))
    block = b.alloca(_F32, _ROWS * COLS)
    adds = b.icmp_signed("!=", accumulate, _I64(0))
    with _loop(b, count, _ROWS) as start:
        with _loop(b, _I64(_ROWS)) as r:  # beyond the last row it again, for nothing
            row = b.mul(_least(b, b.add(start, r), b.sub(count, _I64(1))), stride)
            with _loop(b, depth) as k:
                value = b.load(_at(b, source, b.add(row, k)))
                b.store(_part(b, value, part), _at(b, left, b.add(b.mul(depth, r), k)))
        with _loop(b, padded, COLS) as col:
            _chain(b, left, depth, b.gep(right, [col]), padded, block)
            with _loop(b, _least(b, b.sub(count, start), _I64(_ROWS))) as r:
                line = b.add(b.mul(b.add(start, r), width), col)
                with _loop(b, _least(b, b.sub(width, col), _I64(COLS))) as j:
                    place = _at(b, target, b.add(line, j))
                    total = b.load(_at(b, block, b.add(b.mul(r, _I64(COLS)), j)))
                    total = b.fadd(total, b.select(adds, b.load(place), _F32(0.0)))
                    number = b.fcmp_ordered("ord", total, total)
                    image = b.select(number, b.bitcast(total, _I32), _I32(CANONICAL_NAN))
                    b.store(b.bitcast(image, _F32), place)


def _least(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed("<", x, y), x, y)


def _chain(b: ir.IRBuilder, left: Any, depth: Any, right: Any, stride: Any, block: Any) -> None:
    """The sums of a block: left [_ROWS, depth] x right [depth, COLS], rows `stride` apart -> block [_ROWS, COLS]."""
    fma = b.module.declare_intrinsic(f"llvm.fma.v{_LANES}f32", fnty=ir.FunctionType(_VECTOR, [_VECTOR] * 3))
    zero, first = ir.Constant(_VECTOR, [0.0] * _LANES), ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES)
    with b.goto_entry_block():  # where LLVM looks for what it can keep in registers
        totals = [[b.alloca(_VECTOR) for _ in range(_VECTORS)] for _ in range(_ROWS)]
    for line in totals:
        for total in line:
            b.store(zero, total)
    with _loop(b, depth) as k:
        row = b.mul(k, stride)
        values = [b.load(_at(b, right, b.add(row, _I64(v * _LANES)), _VECTOR), align=4) for v in range(_VECTORS)]
        for r, line in enumerate(totals):
            element = b.load(_at(b, left, b.add(b.mul(depth, _I64(r)), k)))
            single = b.insert_element(ir.Constant(_VECTOR, ir.Undefined), element, _I32(0))
            spread = b.shuffle_vector(single, single, first)
            for total, value in zip(line, values, strict=True):
                b.store(b.call(fma, [spread, value, b.load(total)]), total)
    for r, line in enumerate(totals):
        for v, total in enumerate(line):
            b.store(b.load(total), _at(b, block, _I64(r * COLS + v * _LANES), _VECTOR), align=4)
