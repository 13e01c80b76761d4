"""Kernels as machine code: one pass over memory, with every register of a block of lanes in the processor's.

Elements of a vector do not depend on each other, so the loops over sublanes and blocks of lanes go around the inner
loops: values of the prologue and carried ones stay in registers.  Iterations come in the order that `kernels.py`
documents for each element.  The micro-operations are traced from `isa/numerics/alu.py`.

The function's only argument is the address of a descriptor of 64-bit integers: the trip counts of the nest, sublanes
and lanes, the scalar operands, and for each stream its address, the bytes that each loop of the nest and the sublane
loop move it, and for each of its bounds: constant, coefficients (the same loops), lower and upper limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.dtypes import BF16
from systolith.isa.kernel import CONST0, NSCALARS, SCALAR0
from systolith.isa.native.library import I32, I64, loop, pointer
from systolith.isa.native.traced import Symbol, UntraceableError, constant
from systolith.isa.numerics.formats import round_to
from systolith.isa.numerics.images import U32, canonical
from systolith.sim.kernel_code import Code, Step

LANES = 32
_I16 = ir.IntType(16)
_VECTOR, _NARROW = ir.VectorType(I32, LANES), ir.VectorType(_I16, LANES)
_KINDS = {4: (I32, _VECTOR), 2: (_I16, _NARROW)}  # of an element in memory, and of a vector of them


class Form(NamedTuple):
    """Properties of a stream that its code depends on.

    Attributes:
        size: bytes of an element: 4, or 2 for bf16.
        spread: all lanes are one element.
        bounds: how many bounds there are; they are the same for all lanes.
        fill: the value that elements outside read as.
    """

    size: int
    spread: bool
    bounds: int
    fill: int


class Shape(NamedTuple):
    """Properties of a kernel that its code depends on, beside its micro-operations.

    Attributes:
        depth: loops of the nest.
        inner: how many of them are inner ones.
        tail: lanes are not a multiple of LANES.
        forms: of the streams.
    """

    depth: int
    inner: int
    tail: bool
    forms: tuple[Form, ...]


def recipe(code: Code, shape: Shape) -> str:
    """All that a kernel's machine code depends on."""
    sections = (code.prologue, code.body, code.epilogue)
    steps = [[(s.op, s.dst, s.srcs, s.clean, s.stream, s.finish) for s in steps] for steps in sections]
    return repr((steps, code.kernel.constants, code.carried, shape))


@dataclass
class _Stream:
    """Where a stream is: its address, and for each bound the value, at the current position of the loops."""

    form: Form
    address: Any
    values: list[Any]
    steps: list[Any]
    bound_steps: list[list[Any]]
    limits: list[tuple[Any, Any]]


class Emitter:
    """Emits a kernel.

    Args:
        code: the kernel.
        shape: its form.
    """

    def __init__(self, code: Code, shape: Shape) -> None:
        self._code = code
        self._shape = shape
        self._values: dict[int, Any] = {}
        self._lane: Any = None

    def body(self, b: ir.IRBuilder, descriptor: Any) -> None:
        """The function's body."""
        self._b = b
        words = self._words(descriptor)
        counts = [next(words) for _ in range(self._shape.depth)]
        sublanes, self._lanes = next(words), next(words)
        scalars = [next(words) for _ in range(NSCALARS)]
        self._streams = [self._stream(form, words) for form in self._shape.forms]
        self._slots = self._saved()
        outer, depth = self._shape.depth - self._shape.inner, self._shape.depth
        with ExitStack() as stack:
            for k in range(outer):
                stack.enter_context(self._moved(counts[k], k))
            stack.enter_context(self._moved(sublanes, depth))
            self._lane = stack.enter_context(loop(b, self._lanes, LANES))
            self._operands(scalars)
            self._run(self._code.prologue)
            self._save(self._code.carried)
            with ExitStack() as nest:
                for k in range(outer, depth):
                    nest.enter_context(self._moved(counts[k], k))
                self._restore(self._code.carried)
                self._run(self._code.body)
                self._save(self._slots)
            self._restore(self._slots)
            self._run(self._code.epilogue)

    def _words(self, descriptor: Any) -> Iterator[Any]:
        base, number = pointer(self._b, descriptor, I64), 0
        while True:
            yield self._b.load(self._b.gep(base, [I64(number)]))
            number += 1

    def _stream(self, form: Form, words: Iterator[Any]) -> _Stream:
        loops = self._shape.depth + 1
        stream = _Stream(form, next(words), [], [next(words) for _ in range(loops)], [], [])
        for _ in range(form.bounds):
            stream.values.append(next(words))
            stream.bound_steps.append([next(words) for _ in range(loops)])
            stream.limits.append((next(words), next(words)))
        return stream

    @contextmanager
    def _moved(self, count: Any, k: int) -> Iterator[None]:
        """A loop, with the streams where it puts them."""
        b, kept = self._b, [(s.address, s.values) for s in self._streams]
        with loop(b, count) as i:
            for s in self._streams:
                s.address = b.add(s.address, b.mul(i, s.steps[k]))
                s.values = [b.add(v, b.mul(i, t[k])) for v, t in zip(s.values, s.bound_steps, strict=True)]
            yield
        for s, (address, values) in zip(self._streams, kept, strict=True):
            s.address, s.values = address, values

    def _operands(self, scalars: Sequence[Any]) -> None:
        b = self._b
        self._values = {CONST0 + i: np.array(c, U32) for i, c in enumerate(self._code.kernel.constants)}
        for i, word in enumerate(scalars):
            self._values[SCALAR0 + i] = Symbol(b, self._spread(b.trunc(word, I32)), U32)

    def _spread(self, element: Any) -> Any:
        b, undefined = self._b, ir.Constant(_VECTOR, ir.Undefined)
        first = ir.Constant(_VECTOR, [0] * LANES)
        single = b.insert_element(undefined, element, I32(0))
        return b.shuffle_vector(single, single, first)

    def _saved(self) -> dict[int, Any]:
        """A place for each register that an iteration leaves for the next one or for the epilogue."""
        written = {s.dst for s in self._code.body if s.dst >= 0}
        later = {n for step in self._code.epilogue for n in step.srcs}
        return {n: self._b.alloca(_VECTOR) for n in sorted(written & later | set(self._code.carried))}

    def _save(self, names: Iterable[int]) -> None:
        for name in names:
            if name not in self._values:
                raise UntraceableError("a register that nothing wrote")
            self._b.store(self._vector(self._values[name]), self._slots[name])

    def _restore(self, names: Iterable[int]) -> None:
        for name in names:
            self._values[name] = Symbol(self._b, self._b.load(self._slots[name]), U32)

    def _vector(self, value: Any) -> Any:
        return value.value if isinstance(value, Symbol) else constant(self._b, value, U32, LANES).value

    def _run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if any(s not in self._values for s in step.srcs):
                raise UntraceableError("a register that nothing wrote")
            args = [self._values[s] for s in step.srcs]
            for i in step.clean:
                args[i] = canonical(args[i])
            if step.function is not None:
                out = step.function(*args)
                self._values[step.dst] = canonical(out) if step.finish else out
            elif step.op == "st":
                self._store(self._streams[step.stream], args[0])
            elif step.op == "ld":
                self._values[step.dst] = self._load(self._streams[step.stream])
            else:
                raise UntraceableError(step.op)

    def _inside(self, s: _Stream) -> Any:
        """Whether the elements of the current row are inside."""
        b, inside = self._b, ir.Constant(ir.IntType(1), 1)
        for value, (lo, hi) in zip(s.values, s.limits, strict=True):
            within = b.and_(b.icmp_signed(">=", value, lo), b.icmp_signed("<", value, hi))
            inside = b.and_(inside, within)
        return inside

    def _whole_or_part(self, whole: Callable[[], object], part: Callable[[Any], object]) -> None:
        """A block of lanes at once, or (the last one) lane by lane."""
        b = self._b
        if not self._shape.tail:
            whole()
            return
        left = b.sub(self._lanes, self._lane)
        with b.if_else(b.icmp_signed(">=", left, I64(LANES))) as (yes, no):
            with yes:
                whole()
            with no, loop(b, left) as j:
                part(j)

    def _memory(self, s: _Stream, kind: ir.Type, lane: Any = None) -> Any:
        """The elements of the block in memory, or the one of a lane of it."""
        b, address = self._b, s.address
        if not s.form.spread:
            address = b.add(address, b.mul(self._lane if lane is None else b.add(self._lane, lane), I64(s.form.size)))
        return pointer(b, address, kind)

    def _slot(self, kind: ir.Type) -> Any:
        with self._b.goto_entry_block():
            return self._b.alloca(kind)

    def _lane_of(self, slot: Any, kind: ir.Type, j: Any) -> Any:
        return self._b.gep(self._b.bitcast(slot, kind.as_pointer()), [j])

    def _load(self, s: _Stream) -> Symbol:
        b, slot = self._b, self._slot(_VECTOR)
        element, vector = _KINDS[s.form.size]
        b.store(constant(b, s.form.fill, U32, LANES).value, slot)

        def get(kind: ir.Type, lane: Any = None) -> Any:
            return self._widened(b.load(self._memory(s, kind, lane), align=1))

        with b.if_then(self._inside(s)):
            if s.form.spread:
                b.store(self._spread(get(element)), slot)
            else:
                self._whole_or_part(
                    lambda: b.store(get(vector), slot),
                    lambda j: b.store(get(element, j), self._lane_of(slot, I32, j)),
                )
        return Symbol(b, b.load(slot), U32)

    def _widened(self, value: Any) -> Any:
        """f32 images of bf16; 32-bit elements as they are."""
        kind = {_I16: I32, _NARROW: _VECTOR}.get(value.type)
        if kind is None:
            return value
        shift = I32(16) if kind == I32 else ir.Constant(_VECTOR, [16] * LANES)
        return self._b.shl(self._b.zext(value, kind), shift)

    def _store(self, s: _Stream, value: Any) -> None:
        b = self._b
        element, vector = _KINDS[s.form.size]
        bits: Any = value if isinstance(value, Symbol) else constant(b, value, U32, LANES)
        if s.form.size == 2:
            bits = round_to(bits, BF16) >> np.uint32(16)
        out, slot = bits.value if s.form.size == 4 else b.trunc(bits.value, vector), self._slot(vector)
        b.store(out, slot)
        with b.if_then(self._inside(s)):
            self._whole_or_part(
                lambda: b.store(b.load(slot), self._memory(s, vector), align=1),
                lambda j: b.store(b.load(self._lane_of(slot, element, j)), self._memory(s, element, j), align=1),
            )
