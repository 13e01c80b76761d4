"""The effect of each instruction on the machine's values: `EXECUTE`, a function for each opcode.

Instructions come with their registers resolved.  Program order is the order of execution.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from systolith.isa.dtypes import Kind
from systolith.isa.host_functions import HostFunctionError
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.numerics.alu import RULES
from systolith.isa.numerics.fma import add_product_at
from systolith.isa.numerics.formats import fill_of, raw_type, to_f32
from systolith.isa.numerics.images import Bits, Floats, canonical, floats, image
from systolith.isa.numerics.matmul import add_product, integer_product, weight_tile
from systolith.isa.program import FROM_HOST, TO_HOST, Role
from systolith.sim import kernels, native_kernels
from systolith.sim import native_streams as native
from systolith.sim import streams as io
from systolith.sim.host_calls import declared
from systolith.sim.host_queue import HostQueue, HostQueueError
from systolith.sim.independence import check_apart, check_independent, check_rows_apart
from systolith.sim.memory import Machine, Tile
from systolith.sim.plans import Array
from systolith.sim.serial import run_serial
from systolith.sim.streams import Access


def _stream(instr: Instruction, name: str) -> Stream:
    value = instr.args[name]
    if not isinstance(value, Stream):
        raise TypeError(f"{instr.op}: {name} is not a stream")
    return value


def _number(instr: Instruction, name: str) -> int:
    value = instr.args[name]
    if not isinstance(value, int):
        raise TypeError(f"{instr.op}: {name} is not resolved")
    return value


def copy(machine: Machine, instr: Instruction) -> None:
    """dma.load, dma.store, xlu.shuffle: elements in pattern order.

    Raises:
        SimulationError: element sizes or counts differ, out of bounds, or a host queue has too little.
    """
    src, dst = (io.access(machine, _stream(instr, name)) for name in ("src", "dst"))
    a, b = src.pattern, dst.pattern
    if a.dtype.size != b.dtype.size or a.elements != b.elements:
        raise machine.error(f"copies {a.elements} x {a.dtype.size} bytes to {b.elements} x {b.dtype.size}")
    if machine.hostile:
        check_apart(machine, src, dst)
    if io.is_memory(src.stream) and io.is_memory(dst.stream) and native.copied(machine, src, dst):
        return
    values = _receive(machine, src) if src.stream.space is Space.HOST else io.read_raw(machine, src)
    if dst.stream.space is Space.HOST:
        _send(machine, dst, values)
    else:
        io.write_raw(machine, dst, values.reshape(b.counts))


def _queue(machine: Machine, a: Access, infeed: bool) -> HostQueue:
    number = a.stream.buffer
    queues = machine.infeed if infeed else machine.outfeed
    if number >= len(queues):
        raise machine.error(f"no {'infeed' if infeed else 'outfeed'} queue {number}, the chip has {len(queues)}")
    return queues[number]


def _receive(machine: Machine, a: Access) -> Array:
    size, decl = a.pattern.elements * a.pattern.dtype.size, declared(machine.program, a.stream, FROM_HOST)
    try:
        if decl is not None and decl.role is Role.RETURN:
            data = machine.host_calls.take(size, decl)
        else:
            data = _queue(machine, a, True).take(size, decl)
        return data.view(raw_type(a.pattern.dtype))
    except (HostQueueError, HostFunctionError) as problem:
        raise machine.error(str(problem)) from None


def _send(machine: Machine, a: Access, values: Array) -> None:
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy()
    decl = declared(machine.program, a.stream, TO_HOST)
    try:
        if decl is not None and decl.role is Role.CALL:
            machine.host_calls.put(data, decl)
        else:
            _queue(machine, a, False).put(data, decl)
    except HostQueueError as problem:
        raise machine.error(str(problem)) from None
    except HostFunctionError as problem:
        raise machine.error(str(problem)) from problem.__cause__


def _matrix(machine: Machine, instr: Instruction, a: Access, integer: bool) -> Array:
    """The stream's elements as [rows, rest]: f32 images, or integers as f32 values."""
    rows, counts, dtype = _number(instr, "row_loops"), a.pattern.counts, a.pattern.dtype
    shape = (prod(counts[:rows]), prod(counts[rows:]))
    if integer:
        return to_f32(io.read_raw(machine, a, fill_of(a.pattern.fill, dtype)[0]), dtype).reshape(shape)
    return io.read_bits(machine, a).reshape(shape)


def _operand(machine: Machine, instr: Instruction, integer: bool) -> Access:
    """The stream of an MXU's instruction, of a type that it multiplies."""
    a = io.access(machine, _stream(instr, "src"))
    dtype = a.pattern.dtype
    if integer and (dtype.is_float or dtype.kind is Kind.COMPLEX or dtype.bits > 8):
        raise machine.error(f"integer products of {dtype}: at most 8 bits")
    if not integer and not dtype.is_float:
        raise machine.error(f"floating-point products of {dtype}")
    return a


class _Load(NamedTuple):
    """A weight tile's stream, with what its instruction says; `source`: for machine code, None: numpy reads it."""

    stream: Access
    integer: bool
    transpose: bool
    part: int
    source: native.Source | None


def _load(machine: Machine, instr: Instruction) -> _Load:
    chip = machine.chip.mxu
    integer, transpose = bool(_number(instr, "integer")), bool(_number(instr, "transpose"))
    a, rows = _operand(machine, instr, integer), _number(instr, "row_loops")
    counts = a.pattern.counts
    depth, width = prod(counts[:rows]), prod(counts[rows:])
    if transpose:
        depth, width = width, depth
    if depth > chip.rows or width > chip.cols:
        raise machine.error(f"weight tile of {depth} x {width}, the array is {chip.rows} x {chip.cols}")
    source = None if integer else native.source(machine, a, rows, transpose)
    return _Load(a, integer, transpose, _number(instr, "part"), source)


def mxu_load(machine: Machine, instr: Instruction) -> None:
    """mxu.load: the weight tile, [K, N] and zero elsewhere, into the shadow registers."""
    load = machine.kept(instr, _load)
    if load.source is not None:
        tile = native.tile(machine, load.source, load.part)
    else:
        weights = _matrix(machine, instr, load.stream, load.integer)
        weights, cols = weights.T if load.transpose else weights, machine.chip.mxu.cols
        tile = Tile(
            _integer_tile(weights, cols) if load.integer else weight_tile(weights, load.part, cols), load.integer
        )
    machine.shadow[_unit(machine, instr)] = tile


def _integer_tile(weights: Array, cols: int) -> Floats:
    values = np.zeros((len(weights), cols), np.float32)
    values[:, : weights.shape[1]] = weights
    return values


def _unit(machine: Machine, instr: Instruction) -> int:
    if not 0 <= instr.unit < machine.chip.mxu.count:
        raise machine.error(f"no mxu {instr.unit}, the chip has {machine.chip.mxu.count}")
    return instr.unit


def mxu_latch(machine: Machine, instr: Instruction) -> None:
    """mxu.latch: the shadow tile becomes active."""
    unit = _unit(machine, instr)
    if machine.shadow[unit] is None:
        raise machine.error("latches, but no weights were loaded")
    machine.active[unit] = machine.shadow[unit]


class _Product(NamedTuple):
    """A product's rows and accumulators.

    Attributes:
        stream: of the rows.
        integer, part, accumulate: what the instruction says.
        first, height: accumulator rows.
        depth: elements of a row.
        source: for machine code; None: numpy reads them.
        sums: address of the accumulators, and elements from row to row.
    """

    stream: Access
    integer: bool
    part: int
    accumulate: bool
    first: int
    height: int
    depth: int
    source: native.Source | None
    sums: tuple[int, int]


def _product(machine: Machine, instr: Instruction) -> _Product:
    chip, integer, first = machine.chip.mxu, bool(_number(instr, "integer")), _number(instr, "acc")
    a, loops = _operand(machine, instr, integer), _number(instr, "row_loops")
    count, depth = prod(a.pattern.counts[:loops]), prod(a.pattern.counts[loops:])
    if depth > chip.rows:
        raise machine.error(f"rows of {depth} elements, the array has {chip.rows}")
    if first < 0 or first + count > chip.acc_rows:
        raise machine.error(f"accumulator rows {first} to {first + count - 1}, there are {chip.acc_rows}")
    ours = a.stream.space is Space.ACC  # the rows read may be those written
    source = None if integer or ours else native.source(machine, a, loops, None)
    sums = (machine.memory(Space.ACC, instr.unit).address + 4 * chip.cols * first, chip.cols)
    part, accumulate = _number(instr, "part"), bool(_number(instr, "accumulate"))
    return _Product(a, integer, part, accumulate, first, count, depth, source, sums)


def mxu_matmul(machine: Machine, instr: Instruction) -> None:
    """mxu.matmul: accumulator = (accumulate ? accumulator : +0) + rows x active tile."""
    unit = _unit(machine, instr)
    tile, p = machine.active[unit], machine.kept(instr, _product)
    if tile is None:
        raise machine.error("multiplies, but no weights were latched")
    if tile.integer != p.integer:
        raise machine.error("integer rows meet floating-point weights, or the other way round")
    depth, width = tile.values.shape
    ours = p.stream.stream.space is Space.ACC
    if machine.hostile and ours:
        check_rows_apart(machine, p.stream, unit, p.first, p.height)
    if p.source is not None and depth == p.depth:
        rows_at, memory = native.matrix(machine, p.source)
        add_product_at(rows_at, p.part, (tile.address, width), p.sums, p.accumulate, (memory, tile), machine.calls)
        return
    rows = _matrix(machine, instr, p.stream, p.integer)  # all calls are made
    rows, target = rows.copy() if ours else rows, machine.acc[unit][p.first : p.first + p.height]
    if not p.integer:
        add_product(rows, p.part, tile.values, floats(target), p.accumulate)
        return
    depth = min(p.depth, depth)  # the rest meets zeros
    total = image(integer_product(rows[:, :depth], tile.values[:depth]))
    target[...] = target + total if p.accumulate else total


def vpu_run(machine: Machine, instr: Instruction) -> None:
    """vpu.run: see `kernels`."""
    run = kernels.prepare(machine, instr)
    if _number(instr, "serial"):
        run_serial(run)
    else:
        if machine.hostile:
            check_independent(run)
        if not native_kernels.call(run):
            kernels.run(run)


def xlu_reduce(machine: Machine, instr: Instruction) -> None:
    """xlu.reduce: combine the innermost loop of src as a tree over the chip's lanes, element i with i + n/2."""
    src, dst = (io.access(machine, _stream(instr, name)) for name in ("src", "dst"))
    counts, lanes = src.pattern.counts, machine.chip.vpu.lanes
    if counts[-1] > lanes:
        raise machine.error(f"reduces rows of {counts[-1]} elements, the chip has {lanes} lanes")
    if prod(counts[:-1]) != dst.pattern.elements:
        raise machine.error(f"reduces {prod(counts[:-1])} rows into {dst.pattern.elements} elements")
    if machine.hostile:
        check_apart(machine, src, dst)
    bits = io.read_bits(machine, src).reshape(-1, counts[-1])
    rows: Bits = np.full((len(bits), lanes), src.pattern.fill & 0xFFFFFFFF, np.uint32)
    rows[:, : counts[-1]] = bits
    function = RULES[str(instr.args["function"])].function
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = function(rows[:, :half], rows[:, half:])
    result = canonical(rows) if str(instr.args["function"]).endswith("f32") else rows
    io.write_bits(machine, dst, result.reshape(dst.pattern.counts))


def nop(machine: Machine, instr: Instruction) -> None:
    """nop: nothing happens to values."""


EXECUTE: dict[str, Callable[[Machine, Instruction], None]] = {
    "dma.load": copy,
    "dma.store": copy,
    "xlu.shuffle": copy,
    "mxu.load": mxu_load,
    "mxu.latch": mxu_latch,
    "mxu.matmul": mxu_matmul,
    "vpu.run": vpu_run,
    "xlu.reduce": xlu_reduce,
    "nop": nop,
}
