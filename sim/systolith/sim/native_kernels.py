"""vpu.run in machine code, where its streams allow it.

A kernel that has worked enough to be worth it is compiled, once for each form of its streams; until then, and where
its form does not allow it, numpy runs it (`kernels.py`).  Both give the same bits.  Not compiled are: serial runs,
index lists, divided coordinates, bounds along lanes, `coord` and `inside`, elements other than those of 4 bytes and
bf16, lanes at strides other than 0 and their size, vectors of different sizes, stores of which two may go to one
address, streams that overlap a store in other elements, and micro-operations that cannot be traced (integer
division, sines, ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from systolith.isa.dtypes import BF16
from systolith.isa.kernel import NSCALARS, Kernel
from systolith.isa.native.library import Function, Library
from systolith.isa.native.traced import UntraceableError
from systolith.isa.pattern import Pattern
from systolith.sim import kernel_emit
from systolith.sim import streams as io
from systolith.sim.kernel_code import Code
from systolith.sim.kernel_emit import LANES, Emitter, Form, Shape, recipe
from systolith.sim.kernels import Run
from systolith.sim.memory import Machine
from systolith.sim.plans import Array, affine, injective
from systolith.sim.streams import Access

WORTH = 1 << 22
"""Work that numpy does of a kernel before it is compiled: elements times micro-operations, and `_STEP` for each
micro-operation run, which is its cost beside its elements.  It takes numpy some 3 ms; compiling takes 10 to 40 ms,
once on a machine (`native.py` keeps it), and after that 3 ms in a process."""
_STEP = 1 << 14
_MAX_KERNELS = 1024  # that a process knows; each takes some 100 KiB


class _Uses(NamedTuple):
    """Streams by use: stored to, used in the body, used in the prologue or the epilogue."""

    stored: frozenset[int]
    body: frozenset[int]
    ends: frozenset[int]


@dataclass
class _Kernel:
    """The state of a kernel in this process.

    Attributes:
        uses: of its streams; None: it has no native code.
        work: how much it has worked.
        functions: by form; None: there is none.
    """

    uses: _Uses | None
    work: int = 0
    functions: dict[Shape, Function | None] = field(default_factory=dict)


class _Layout(NamedTuple):
    """A stream of a kernel wherever it is.

    Attributes:
        form: its part of the kernel's form.
        offset, moves: of its first element from the base, and of the loops (bytes).
        bounds: the descriptor's words for them.
        low, high: offsets of its first byte, and beyond its last, those of elements outside included.
        pattern: its pattern, kept so that its id stays its own.
    """

    form: Form
    offset: int
    moves: tuple[int, ...]
    bounds: tuple[int, ...]
    low: int
    high: int
    pattern: Pattern


_KERNELS: dict[Kernel, _Kernel] = {}


def call(r: Run) -> bool:
    """Make the native call of a run; False: there is none."""
    if r.native is None:
        r.native = _prepare(r)
    if not r.native:
        return False
    function, descriptor = r.native
    r.machine.calls(function, (descriptor.ctypes.data,), r.native)
    return True


def _prepare(r: Run) -> tuple[Function, Array] | tuple[()] | None:
    """The function and its descriptor; (): there is none, None: nor is there yet."""
    known = _known(r)
    if known.uses is None:
        return ()
    known.work += (prod(r.counts) * prod(r.shape) + _STEP) * len(r.code.body)
    if known.work < WORTH:
        return None
    streams = tuple((id(a.pattern), a.bias, a.stream.space) for a in r.accesses)
    key = ("form", id(r.code), r.counts, r.inner, streams)
    if key not in r.machine.cache:
        r.machine.remember(key, (*_formed(r, known, known.uses), r.code))  # kept, so that its id stays its own
    function, layouts, _ = r.machine.cache[key]
    if function is None:
        return ()
    stored = known.uses.stored
    places = [_place(r.machine, a, p, n in stored) for n, (a, p) in enumerate(zip(r.accesses, layouts, strict=True))]
    if any(_clash(r, places, layouts, known.uses, n) for n in stored):
        return ()
    words = [*r.counts, *r.shape, *(*r.scalars, 0, 0, 0, 0)[:NSCALARS]]
    for place, p in zip(places, layouts, strict=True):
        words += [place + p.offset, *p.moves, *p.bounds]
    return function, np.array(words, np.int64)


def _formed(r: Run, known: _Kernel, uses: _Uses) -> tuple[Function | None, list[_Layout]]:
    """The function for a run's streams wherever they are, compiled if it is new, and their layouts."""
    layouts = _layouts(r, uses)
    if layouts is None:
        return None, []
    shape = Shape(len(r.counts), r.inner, bool(r.shape[1] % LANES), tuple(p.form for p in layouts))
    if shape not in known.functions:
        known.functions[shape] = _compile(r.code, shape)
    return known.functions[shape], layouts


def _known(r: Run) -> _Kernel:
    key = ("native", id(r.code))
    found = r.machine.cache.get(key)
    if found is None:
        if len(_KERNELS) >= _MAX_KERNELS:
            _KERNELS.clear()
        known = _KERNELS.setdefault(r.code.kernel, _Kernel(_uses(r.code)))
        found = (known, r.code)  # kept, so that its id stays its own
        r.machine.remember(key, found)
    result: _Kernel = found[0]
    return result


def _uses(code: Code) -> _Uses | None:
    body, ends = ([s for s in steps if s.function is None] for steps in (code.body, (*code.prologue, *code.epilogue)))
    ours, others = frozenset(s.stream for s in body), frozenset(s.stream for s in ends)
    if code.in_order or ours & others or any(s.op not in ("ld", "st") for s in (*body, *ends)):
        return None
    return _Uses(frozenset(s.stream for s in (*body, *ends) if s.op == "st"), ours, others)


def _compile(code: Code, shape: Shape) -> Function | None:
    try:
        return Library({"kernel": (1, Emitter(code, shape).body)}, kernel_emit.__file__, recipe(code, shape))["kernel"]
    except UntraceableError:
        return None


def _layouts(r: Run, uses: _Uses) -> list[_Layout] | None:
    """The streams, if native code can run over them."""
    if any(n >= len(r.accesses) for n in uses.body | uses.ends):
        return None
    found = []
    for number, a in enumerate(r.accesses):
        loops = len(r.counts) if number in uses.body else r.outer
        layout = _layout(a, r.shape, number in uses.stored, loops) if io.is_memory(a.stream) else None
        if layout is None:
            return None
        found.append(layout)
    return found


def _layout(a: Access, shape: tuple[int, int], stored: bool, loops: int) -> _Layout | None:
    """A stream, the first `loops` loops of which move it, if its form allows native code."""
    pattern, counts = a.pattern, a.pattern.counts
    size, lanes = pattern.dtype.size, counts[-1]
    found = affine(pattern, a.bias)
    if found is None or counts[-2:] != shape or not (size == 4 or pattern.dtype is BF16):
        return None
    step = found.strides[-1] if lanes > 1 else size
    if step not in (0, size) or (lanes > 1 and any(b[1][-1] for b in found.bounds)):
        return None
    moving = [*range(loops), len(counts) - 2, len(counts) - 1]
    strides, trips = [found.strides[k] for k in moving], [counts[k] for k in moving]
    if stored and not injective(strides, trips, size):
        return None
    reach = [s * (n - 1) for s, n in zip(found.strides, counts, strict=True)]
    low, high = (found.offset + sum(pick(0, m) for m in reach) for pick in (min, max))
    bounds = tuple(w for const, coefs, lo, hi in found.bounds for w in (const, *coefs[:-1], lo, hi))
    form = Form(size, step == 0, len(found.bounds), pattern.fill & 0xFFFFFFFF)
    return _Layout(form, found.offset, found.strides[:-1], bounds, low, high + size, pattern)


def _place(machine: Machine, a: Access, p: _Layout, stored: bool) -> int:
    """The address of a stream's base.

    Raises:
        SimulationError: an element that exists is out of bounds, or is stored to and read-only.
    """
    region = machine.region(a.stream)
    if a.base + p.low < 0 or a.base + p.high > len(region.data) or (stored and not region.data.flags.writeable):
        return io.locate(machine, a, io.plan(machine, a), stored).address(0)
    return region.address + a.base


def _clash(r: Run, places: list[int], layouts: list[_Layout], uses: _Uses, stored: int) -> bool:
    """Whether a store and another stream overlap, and not just element by element."""
    a, at = layouts[stored], places[stored]
    for n in (uses.body | uses.ends) - {stored}:
        b, base = layouts[n], places[n]
        alike = a.form.size == b.form.size and not b.form.spread and (n in uses.body) == (stored in uses.body)
        gap = base + b.offset - at - a.offset
        if alike and a.moves == b.moves and (not gap or _alternate(r, a, gap, stored in uses.body)):
            continue
        if _overlap((at + a.low, at + a.high), (base + b.low, base + b.high)) and _overlap(
            _inside(r, stored, at), _inside(r, n, base)
        ):
            return True
    return False


def _alternate(r: Run, p: _Layout, gap: int, in_body: bool) -> bool:
    """Whether a stream of the same moves, `gap` bytes further, keeps to the gaps that this one leaves."""
    loops = r.counts if in_body else r.counts[: r.outer]
    return injective((*p.moves[: len(loops)], p.moves[-1], p.form.size, gap), (*loops, *r.shape, 2), p.form.size)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _inside(r: Run, stream: int, base: int) -> tuple[int, int]:
    """Addresses of the first byte and beyond the last one of the elements that exist."""
    plan = io.plan(r.machine, r.accesses[stream])
    return base + plan.low, base + plan.high + plan.raw.itemsize
