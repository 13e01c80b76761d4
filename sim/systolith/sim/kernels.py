"""vpu.run: a kernel over its loop nest, all iterations at once.

Registers are arrays of shape nest x sublanes x lanes (axes may be 1 where nothing varies).  The nest is cut into
chunks of outer iterations that fit a core's cache.  Where registers are carried, the part of the body that they go
through (the core) runs iteration by iteration over the inner loops, vectorised over the outer ones; the rest runs
over all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from systolith.isa.instruction import Instruction, Stream
from systolith.isa.kernel import CONST0, SCALAR0
from systolith.isa.native.library import Function
from systolith.isa.numerics.images import Array, Bits, canonical
from systolith.sim import streams as io
from systolith.sim.accumulate import accumulate, sole_accumulation
from systolith.sim.kernel_code import Code, Step, compile_kernel, next_name
from systolith.sim.memory import Machine
from systolith.sim.streams import Access

_CHUNK = 1 << 16  # elements of a register at once
_MAX_PARTS = 4096
Positions = tuple[tuple[int, int], ...]
"""For each loop of the nest: first position and how many."""


@dataclass
class Run:
    """One execution of vpu.run.

    Attributes:
        machine, code: where and what.
        counts: trip counts of the nest.
        inner: how many of them are inner loops.
        accesses: the streams.
        shape: sublanes and lanes of the registers.
        scalars: 32-bit images.
        parts: accesses of the parts that the nest is cut into, by stream and positions.
        native: its native function and descriptor (`native_kernels.py`); (): none, None: none yet.
    """

    machine: Machine
    code: Code
    counts: tuple[int, ...]
    inner: int
    accesses: tuple[Access, ...]
    shape: tuple[int, int]
    scalars: tuple[int, ...]
    parts: dict[tuple[int, Positions], Access] = field(default_factory=dict)
    native: tuple[Function, Array] | tuple[()] | None = None

    @property
    def outer(self) -> int:
        return len(self.counts) - self.inner

    @cached_property
    def operands(self) -> dict[int, Bits]:
        """Constants and scalars as 0-d images, by operand number."""
        constants = self.code.kernel.constants
        images = {CONST0 + i: c for i, c in enumerate(constants)} | {SCALAR0 + i: v for i, v in enumerate(self.scalars)}
        return {n: np.array(v & 0xFFFFFFFF, np.uint32) for n, v in images.items()}


def code_of(machine: Machine, number: int) -> Code:
    """A kernel of the program, made ready once."""
    kernels = machine.program.kernels
    if not 0 <= number < len(kernels):
        raise machine.error(f"no kernel {number}, the program has {len(kernels)}")
    key = ("kernel", number)
    if key not in machine.cache:
        machine.remember(key, compile_kernel(kernels[number]))
    code: Code = machine.cache[key]
    return code


def prepare(machine: Machine, instr: Instruction) -> Run:
    """The operands of vpu.run, checked; kept for when the same instruction comes again."""
    return machine.kept(instr, _prepare)


def _prepare(machine: Machine, instr: Instruction) -> Run:
    a = instr.args
    code = code_of(machine, _integer(a["kernel"]))
    counts, scalars, streams = _tuple(a["counts"]), _tuple(a["scalars"]), _tuple(a.get("streams", ()))
    nest = tuple(_integer(c) for c in counts)
    accesses = tuple(io.access(machine, s) for s in streams if isinstance(s, Stream))
    for number, access in enumerate(accesses):
        if access.pattern.counts[:-2] != nest:
            raise machine.error(f"stream {number}: loops {access.pattern.counts[:-2]} are not the nest's, {nest}")
    shapes = [access.pattern.counts[-2:] for access in accesses]
    shape = (max((s[0] for s in shapes), default=1), max((s[1] for s in shapes), default=1))
    vpu = machine.chip.vpu
    if shape[0] > vpu.sublanes or shape[1] > vpu.lanes:
        raise machine.error(f"vectors of {shape[0]} x {shape[1]}, the chip's have {vpu.sublanes} x {vpu.lanes}")
    images = tuple(_integer(v) & 0xFFFFFFFF for v in scalars)
    return Run(machine, code, nest, _integer(a["inner"]), accesses, shape, images)


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"operand {value} is not resolved")
    return value


def _tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def run(r: Run) -> None:
    """Execute all iterations (not serial)."""
    code = r.code
    alone = not (code.prologue or code.epilogue or code.carried)
    loops = r.counts if alone else r.counts[: r.outer]
    rest = prod(r.counts[len(loops) :]) * r.shape[0] * r.shape[1]
    if code.in_order:
        rest = _CHUNK  # one outer iteration after another: a later one's stores stay
    whole = tuple((0, n) for n in r.counts[len(loops) :])
    for chunk in chunks(loops, rest):
        run_chunk(r, chunk + whole)


def chunks(counts: tuple[int, ...], size: int) -> Iterator[Positions]:
    """Cut a loop nest into boxes, in loop order, each of about _CHUNK elements (`size`: elements an iteration)."""
    depth = len(counts)
    while depth and size * counts[depth - 1] <= _CHUNK:
        depth -= 1
        size *= counts[depth]
    tail = tuple((0, n) for n in counts[depth:])
    if not depth:
        yield tail
        return
    step = max(1, _CHUNK // size)
    for head in product(*(range(n) for n in counts[: depth - 1])):
        for start in range(0, counts[depth - 1], step):
            yield (*((h, 1) for h in head), (start, min(step, counts[depth - 1] - start)), *tail)


def run_chunk(r: Run, where: Positions) -> None:
    """Execute the outer iterations of a box, with all of its inner ones."""
    code, outer = r.code, r.outer
    first = where[:outer] + tuple((0, 1) for _ in range(r.inner))
    regs = Registers(r, first)
    regs.execute(code.prologue)
    regs.where = where
    if code.in_order:
        for inner in product(*(range(n) for _, n in where[outer:])):
            regs.where = where[:outer] + tuple((i, 1) for i in inner)
            regs.execute(code.body)
    else:
        regs.execute(code.before)
        if code.carried:
            regs.recur(tuple(n for _, n in where))
        regs.execute(code.after)
    if code.epilogue:
        regs.keep_last(outer)
        regs.where = first
        regs.execute(code.epilogue)


class Registers:
    """Register values of a chunk.

    Attributes:
        values: images by operand number (constants and scalars too), and by the names of `kernel_code`.
        where: the positions that memory operations are at.
        ends: carried registers after the last inner iteration.
    """

    def __init__(self, run: Run, where: Positions) -> None:
        self.run = run
        self.where = where
        self.values: dict[int, Bits] = dict(run.operands)
        self.ends: dict[int, Bits] = {}

    def execute(self, steps: tuple[Step, ...]) -> None:
        """Run steps in order."""
        values = self.values
        for step in steps:
            try:
                args = [values[s] for s in step.srcs]
            except KeyError as e:
                name = self.run.code.kernel.name
                raise self.run.machine.error(f"kernel {name}: {step.op} reads operand {e} that nothing wrote") from None
            for i in step.clean:
                args[i] = canonical(args[i])
            if step.function is not None:
                out = step.function(*args)
                values[step.dst] = canonical(out) if step.finish else out
            elif step.op == "st":
                self._store(step, args[0])
            else:
                values[step.dst] = self._fetch(step)
            for freed in step.frees:
                del values[freed]

    def _access(self, step: Step) -> Access:
        r, key = self.run, (step.stream, self.where)
        found = r.parts.get(key)
        if found is None:
            if step.stream >= len(r.accesses):
                raise r.machine.error(f"kernel {r.code.kernel.name}: no stream {step.stream}")
            starts, counts = zip(*self.where, strict=True) if self.where else ((), ())
            found = io.part(r.machine, r.accesses[step.stream], starts, counts)
            if len(r.parts) < _MAX_PARTS:
                r.parts[key] = found
        return found

    def _fetch(self, step: Step) -> Bits:
        machine, access = self.run.machine, self._access(step)
        fill = 0
        if step.op == "coord":
            bits = io.coordinate(machine, access, step.number)
        elif step.op == "inside":
            bits = io.inside(machine, access)
        else:
            fill = access.pattern.fill & 0xFFFFFFFF
            bits = io.read_bits(machine, access)
            bits = bits.copy() if self.run.code.copies else bits
        counts = access.pattern.counts
        if counts[-2:] != self.run.shape:
            missing = [(0, 0)] * (len(counts) - 2)
            missing += [(0, n - m) for n, m in zip(self.run.shape, counts[-2:], strict=True)]
            bits = np.pad(np.broadcast_to(bits, counts), missing, constant_values=fill)
        return bits

    def _store(self, step: Step, bits: Bits) -> None:
        access = self._access(step)
        s, n = access.pattern.counts[-2:]
        io.write_bits(self.run.machine, access, bits if bits.ndim < 2 else bits[..., :s, :n])

    def recur(self, counts: tuple[int, ...]) -> None:
        """Run the core over the inner loops in order; then every recorded register has all its values."""
        r, values, code = self.run, self.values, self.run.code
        outer, length = counts[: r.outer], prod(counts[r.outer :])

        def by_iteration(name: int) -> Bits:
            full = np.broadcast_to(values[name], counts + r.shape).reshape((*outer, length, *r.shape))
            return np.moveaxis(full, -3, 0)

        def at_entry(register: int) -> Bits:
            value = values[register]
            if value.ndim >= r.inner + 2:
                value = value.reshape(value.shape[: value.ndim - r.inner - 2] + value.shape[-2:])
            return np.broadcast_to(value, outer + r.shape)

        inputs = {name: by_iteration(name) for name in code.core_reads}
        state = {register: at_entry(register) for register in code.carried}
        step = sole_accumulation(code)
        if step is not None:
            state, record = accumulate(step, code, inputs, state, length)
        else:
            state, record = self._iterate(inputs, state, length)
        for name, history in record.items():
            values[name] = np.moveaxis(history, 0, -3).reshape(counts + r.shape)
        last = (*outer, *(1,) * r.inner, *r.shape)
        self.ends = {n: np.broadcast_to(v, outer + r.shape).reshape(last) for n, v in state.items()}

    def _iterate(
        self, inputs: dict[int, Bits], state: dict[int, Bits], length: int
    ) -> tuple[dict[int, Bits], dict[int, Bits]]:
        code = self.run.code
        local = Registers(self.run, self.where)
        shape = next(iter(state.values())).shape
        record: dict[int, Bits] = {n: np.empty((length, *shape), np.uint32) for n in code.recorded}
        for i in range(length):
            local.values.update(state)
            local.values.update((name, v[i]) for name, v in inputs.items())
            local.execute(code.core)
            for name, history in record.items():
                history[i] = local.values[name]
            state = {register: local.values[next_name(register)] for register in code.carried}
        return state, record

    def keep_last(self, outer: int) -> None:
        """Leave of each register its value after the last inner iteration."""
        values, inner = self.values, self.run.inner
        for name, value in list(values.items()):
            if 0 <= name < CONST0 and value.ndim >= inner + 2:
                lead = value.ndim - inner - 2
                values[name] = value[(slice(None),) * lead + (slice(-1, None),) * inner]
        values.update(self.ends)
