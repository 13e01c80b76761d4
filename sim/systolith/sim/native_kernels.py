"""vpu.run in machine code, where its streams allow it.

A kernel that has worked enough to be worth it is compiled, once for each form of its streams; until then, and where
its form does not allow it, numpy runs it (`kernels.py`).  Both give the same bits.  Not compiled are: serial runs,
index lists, divided coordinates, bounds along lanes, `coord` and `inside`, elements other than those of 4 bytes and
bf16, lanes at strides other than 0 and their size, vectors of different sizes, stores of which two may go to one
address, what overlaps a store without being the same elements, and micro-operations that cannot be traced (integer
division, sines, ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from systolith.isa.dtypes import BF16
from systolith.isa.kernel import NSCALARS, SCALAR0, Kernel
from systolith.isa.numerics.native import Function, Library
from systolith.isa.numerics.traced import UntraceableError
from systolith.sim import streams as io
from systolith.sim.kernel_code import Code
from systolith.sim.kernel_emit import LANES, Emitter, Form, Shape
from systolith.sim.kernels import Run
from systolith.sim.memory import Machine
from systolith.sim.plans import Affine, Array, affine, injective
from systolith.sim.streams import Access

WORTH = 1 << 22
"""Elements times micro-operations that numpy runs before a kernel is compiled: 2 to 8 ms; compiling takes 10 to 40 ms,
once a processor (`native.py` keeps it), after that 3 ms a process."""


@dataclass
class _Kernel:
    """What a process knows of a kernel: how much it has worked, and its functions by form (None: there is none)."""

    work: int = 0
    functions: dict[Shape, Function | None] = field(default_factory=dict)


class _Placed(NamedTuple):
    """A stream in the host's memory.

    Attributes:
        form, words: its part of the kernel's form and descriptor; the first `moves` words say where elements are.
        low, high: addresses of its first byte, and beyond its last.
        whole: the body uses it, not the prologue or the epilogue.
    """

    form: Form
    words: list[int]
    low: int
    high: int
    whole: bool
    moves: int


@lru_cache(maxsize=4096)
def _known(kernel: Kernel) -> _Kernel:
    return _Kernel()


def call(r: Run) -> bool:
    """Make the native call of a run; False: there is none."""
    if r.native is None:
        r.native = _prepare(r)
    if not r.native:
        return False
    function, descriptor = r.native
    r.machine.calls(function, (descriptor.ctypes.data,), descriptor)
    return True


def _prepare(r: Run) -> tuple[Function, Array] | tuple[()] | None:
    """The function and its descriptor; (): there is none, None: nor is there yet."""
    known = _known(r.code.kernel)
    known.work += prod(r.counts) * prod(r.shape) * len(r.code.body)
    if known.work < WORTH:
        return None
    placed = None if r.code.in_order else _place(r)
    if placed is None:
        return ()
    shape = Shape(len(r.counts), r.inner, bool(r.shape[1] % LANES), tuple(p.form for p in placed))
    if shape not in known.functions:
        known.functions[shape] = _compile(r.code, shape)
    function = known.functions[shape]
    if function is None:
        return ()
    scalars = [int(r.operands.get(SCALAR0 + i, 0)) for i in range(NSCALARS)]
    words = [*r.counts, *r.shape, *scalars, *(w for p in placed for w in p.words)]
    return function, np.array(words, np.int64)


def _compile(code: Code, shape: Shape) -> Function | None:
    try:
        return Library({"kernel": (1, Emitter(code, shape).body)})["kernel"]
    except UntraceableError:
        return None


def _place(r: Run) -> list[_Placed] | None:
    """The streams, if native code can run over them.

    Raises:
        SimulationError: out of bounds.
    """
    code = r.code
    body = {(s.stream, s.op) for s in code.body if s.stream >= 0}
    ends = {(s.stream, s.op) for s in (*code.prologue, *code.epilogue) if s.stream >= 0}
    uses = body | ends
    ours, others = {n for n, _ in body}, {n for n, _ in ends}
    if ours & others or any(op not in ("ld", "st") or n >= len(r.accesses) for n, op in uses):
        return None
    placed = []
    for number, a in enumerate(r.accesses):
        one = _placed(r, a, (number, "st") in uses, number in ours)
        if one is None:
            return None
        placed.append(one)
    stored = [n for n, op in uses if op == "st"]
    if any(_clash(placed[n], placed[m]) for n in stored for m in ours | others if m != n):
        return None
    return placed


def _placed(r: Run, a: Access, stored: bool, whole: bool) -> _Placed | None:
    pattern = a.pattern
    fits = pattern.dtype.size == 4 or pattern.dtype is BF16
    if not fits or not io.is_memory(a.stream) or pattern.counts[-2:] != r.shape:
        return None
    found = _affine(r.machine, a)
    if found is None:
        return None
    size, lanes = pattern.dtype.size, pattern.counts[-1]
    step = found.strides[-1] if lanes > 1 else size
    if step not in (0, size) or (lanes > 1 and any(b[1][-1] for b in found.bounds)):
        return None
    if stored and not _apart(r, found, pattern.counts, size, whole):
        return None
    p = io.plan(r.machine, a)
    place = io.locate(r.machine, a, p)
    words = [place.address(found.offset), *found.strides[:-1]]
    for const, coefs, lo, hi in found.bounds:
        words += [const, *coefs[:-1], lo, hi]
    form = Form(size, step == 0, len(found.bounds), pattern.fill & 0xFFFFFFFF)
    return _Placed(form, words, place.address(p.low), place.address(p.high) + size, whole, len(found.strides))


def _affine(machine: Machine, a: Access) -> Affine | None:
    key = ("affine", id(a.pattern), a.bias)
    found = machine.cache.get(key)
    if found is None:
        found = (affine(a.pattern, a.bias), a.pattern)  # the pattern is kept, so that its id stays its own
        machine.remember(key, found)
    result: Affine | None = found[0]
    return result


def _apart(r: Run, found: Affine, counts: tuple[int, ...], size: int, whole: bool) -> bool:
    """Whether no two elements that are stored share a byte."""
    loops = [k for k in range(len(counts)) if whole or not r.outer <= k < len(r.counts)]
    return injective([found.strides[k] for k in loops], [counts[k] for k in loops], size)


def _clash(a: _Placed, b: _Placed) -> bool:
    """Whether a store and another stream overlap, and not just element by element."""
    if a.low >= b.high or b.low >= a.high:
        return False
    alike = a.form.size == b.form.size and not b.form.spread and a.whole == b.whole
    return not (alike and a.words[: a.moves] == b.words[: b.moves])
