"""`select-and-scatter` (the gradient of max-pooling) as elementwise operations and data movement.

XLA's `select_and_scatter_expander` makes a `reduce-window` and a `scatter`; only large windows become these here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.turned_windows import LEAST, Turned
from systolith.compiler.passes.on_arrays import applied
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import PRED, S8, S32, DType

NONE = -1
"""As the number of an offset, or of an element: a window that sees nothing but padding chooses none."""


@dataclass(frozen=True)
class ExpandSelectAndScatter:
    """Write each `select-and-scatter` of static shapes as elementwise operations on the offsets in its window.

    First the offset that each window chooses; then, for each element, the source of the windows that chose it, in the
    order of the windows.  Elements whose coordinates have the same remainders by the strides are reached from the same
    offsets, and are computed beside each other.  Large windows choose by a `reduce-window`, and what they chose is the
    indices of a `scatter`.

    Attributes:
        most: offsets in a window, and its stride, up to which there are operations for each.
        least: elements of an operand from which on windows over its last dimension are turned.
    """

    most: int = 64
    least: int = LEAST

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        parts = {i.operands[0]: i for i in module.instructions() if _is_part(i)}

        def rule(r: Rewriter, i: Instruction) -> Instruction | None:
            whole = i.operands[0] if _is_part(i) else i
            if whole.opcode != "select-and-scatter" or any(o.shape.is_dynamic for o in (whole, *whole.operands)):
                return None
            part = parts.get(whole, whole)
            if r.uses[whole] > 1 or part in r.pinned:
                part = whole
            if part is not i:
                return None  # what is needed of it is expanded where it is cut out
            r.drop(whole)
            return self._expanded(r, whole, part, callees)

        changed = rewrite(module, rule)
        callees.place()
        return changed

    def _expanded(self, r: Rewriter, i: Instruction, part: Instruction, callees: Callees) -> Instruction:
        """A select-and-scatter, or the slice of it that alone is needed."""
        x, source, init = i.operands
        if not x.shape.size or not source.shape.size or not part.shape.size:
            return r.spread(init, part.shape)
        cut = [SliceDim(0, n) for n in i.dims] if part is i else part.slices
        unrolled = _Unrolled(r, i, cut)
        if max([len(unrolled.offsets), *(a.w.stride for a in unrolled.axes)]) > self.most:
            return _sliced(r, _scattered(r, i, callees), cut)
        turned = Turned.of(r, i, cut, self.least)
        return (
            unrolled.result()
            if turned is None
            else turned.back(_Unrolled(r, turned.operation(), turned.cut(cut)).result())
        )


def _is_part(i: Instruction) -> bool:
    """Whether an instruction is a slice, without strides, of a select-and-scatter."""
    return i.opcode == "slice" and i.operands[0].opcode == "select-and-scatter" and all(c.stride == 1 for c in i.slices)


def _scattered(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    """By the numbers of elements: each window's is reduced, and is an index into the result as a line."""
    x, source, init = i.operands
    line, windows = array(x.shape.dtype, (x.shape.size,)), source.shape.size
    number = r.emit("iota", shape=array(S32, line.dims), iota_dimension=0)
    chosen = r.emit(
        "reduce-window",
        x,
        r.emit("reshape", number, shape=array(S32, x.dims)),
        r.constant(0, x.shape.dtype),
        r.constant(NONE, S32),
        shape=tuple_of([array(t, source.dims) for t in (x.shape.dtype, S32)]),
        window=i.window,
        to_apply=callees.add(_chooser(callees.name("choose"), i.computation("select"), x.shape.dtype)),
    )
    indices = r.emit("get-tuple-element", chosen, shape=array(S32, source.dims), index=1)
    made = r.emit(
        "scatter",
        r.spread(init, line),
        r.emit("reshape", indices, shape=array(S32, (windows,))),
        r.emit("reshape", source, shape=array(x.shape.dtype, (windows,))),
        shape=line,
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        to_apply=i.computation("scatter"),
    )
    return r.emit("reshape", made, shape=i.shape)


def _chooser(name: str, select: Computation, dtype: DType) -> Computation:
    """Of two elements and their numbers those that a window keeps; nothing is kept of an element without number."""
    value, number, flag = array(dtype), array(S32), array(PRED)
    kinds = (value, number, value, number)
    a, m, b, n = parameters = [Instruction(f"p{k}", "parameter", s, number=k) for k, s in enumerate(kinds)]
    zero = Instruction("zero", "constant", number, literal=np.zeros((), np.int32))
    there = Instruction("there", "compare", flag, [m, zero], {"direction": "GE"})
    padding = Instruction("padding", "compare", flag, [n, zero], {"direction": "LT"})
    kept = Instruction("kept", "call", flag, [a, b], {"to_apply": select})
    first = Instruction("first", "and", flag, [there, kept])
    keep = Instruction("keep", "or", flag, [padding, first])
    values = [
        Instruction("value", "select", value, [keep, a, b]),
        Instruction("number", "select", number, [keep, m, n]),
    ]
    root = Instruction("chosen", "tuple", tuple_of([value, number]), values)
    return Computation(name, [*parameters, zero, there, padding, kept, first, keep, *values, root], root)


@dataclass(frozen=True)
class _Axis:
    """A dimension: what its window reads where.

    Attributes:
        w: its window.
        size: of the operand.
        count: positions of the window.
    """

    w: WindowDim
    size: int
    count: int

    @property
    def lines(self) -> int:
        """Elements of each remainder by the stride."""
        return -(-self.size // self.w.stride)

    def inside(self, o: int) -> np.ndarray:
        """Of each position, whether an element lies at offset `o` in the window there."""
        at = np.arange(self.count) * self.w.stride + o * self.w.window_dilation - self.w.low
        inside: np.ndarray = (at >= 0) & (at < self.size * self.w.base_dilation) & (at % self.w.base_dilation == 0)
        return inside

    def reaching(self, phase: int) -> list[tuple[int, int]]:
        """Offsets at which windows see elements of a remainder, and the position that sees the first of them; of the
        one `q` lines on it is `q` times the base dilation further.
        """
        found = []
        for o in range(self.w.size):
            first, rest = divmod(phase * self.w.base_dilation + self.w.low - o * self.w.window_dilation, self.w.stride)
            last = first + (self.lines - 1) * self.w.base_dilation
            if not rest and last >= 0 and first < self.count:
                found.append((o, first))
        return found


@dataclass(frozen=True)
class _Unrolled:
    """One operation, written out over the offsets in its window.

    Attributes:
        r: makes the instructions.
        i: the operation.
        cut: the part of the result that is needed.
    """

    r: Rewriter
    i: Instruction
    cut: Sequence[SliceDim]

    @cached_property
    def axes(self) -> list[_Axis]:
        x, source, _ = self.i.operands
        return [_Axis(*each) for each in zip(self.i.window.dims, x.dims, source.dims, strict=True)]

    @cached_property
    def parts(self) -> list[_Axis]:
        """The dimensions as if the operand were the part of it that lies under `cut`."""
        return [
            _Axis(replace(a.w, low=a.w.low + c.start * a.w.base_dilation), c.limit - c.start, a.count)
            for a, c in zip(self.axes, self.cut, strict=True)
        ]

    @cached_property
    def offsets(self) -> list[tuple[int, ...]]:
        """Offsets in the window at which some window sees an element, in row-major order."""
        seen = [[o for o in range(a.w.size) if a.inside(o).any()] for a in self.axes]
        return [o for o in np.ndindex(*(a.w.size for a in self.axes)) if all(map(list.__contains__, seen, o))]

    def chosen(self) -> Instruction:
        """The number of the offset that each window chooses."""
        r, shape = self.r, array(S8, self.i.operands[1].dims)
        best = chosen = r.full(NONE, shape)
        always = False
        for k, o in enumerate(self.offsets):
            seen, outside = self._seen(o), self._outside(o)
            if not k:
                best, keep = seen, outside
            else:
                keep = applied(r, self.i.computation("select"), best, seen)
                if not always:
                    keep = self._pred("and", keep, self._compare("NE", chosen, r.full(NONE, shape)))
                keep = keep if outside is None else self._pred("or", keep, outside)
            number = r.full(k, shape)
            chosen = number if keep is None else r.emit("select", keep, chosen, number, shape=shape)
            best = seen if keep is None or not k else r.emit("select", keep, best, seen, shape=seen.shape)
            always = always or outside is None
        return chosen

    @cached_property
    def _base(self) -> Instruction:
        """The operand with its padding; its values there do not matter."""
        x = self.i.operands[0]
        padding = tuple(PadDim(a.w.low, a.w.high, a.w.base_dilation - 1) for a in self.axes)
        return _padded(self.r, x, padding, 0)

    def _seen(self, o: tuple[int, ...]) -> Instruction:
        """The element at an offset in each window."""
        starts = [k * a.w.window_dilation for k, a in zip(o, self.axes, strict=True)]
        cut = [
            SliceDim(s, s + (a.count - 1) * a.w.stride + 1, a.w.stride) for s, a in zip(starts, self.axes, strict=True)
        ]
        return _sliced(self.r, self._base, cut)

    def _outside(self, o: tuple[int, ...]) -> Instruction | None:
        """Whether padding lies at an offset in each window; None: nowhere."""
        found = None
        for d, (k, a) in enumerate(zip(o, self.axes, strict=True)):
            there = a.inside(k)
            if not there.all():
                here = self._spread(~there, d)
                found = here if found is None else self._pred("or", found, here)
        return found

    def _spread(self, line: np.ndarray, d: int) -> Instruction:
        """A predicate of the index in one dimension: compared with where it begins or ends, if it does once."""
        r, dims = self.r, self.i.operands[1].dims
        (at,) = np.nonzero(np.diff(line))
        if len(at) > 1:
            vector = r.constant(line, PRED)
            return r.emit("broadcast", vector, shape=array(PRED, dims), dimensions=(d,))
        index = r.emit("iota", shape=array(S32, dims), iota_dimension=d)
        return self._compare("LE" if line[0] else "GT", index, r.full(at[0], index.shape))

    def _compare(self, direction: str, a: Instruction, b: Instruction) -> Instruction:
        return self.r.emit("compare", a, b, shape=array(PRED, a.dims), direction=direction)

    def _pred(self, opcode: str, a: Instruction, b: Instruction) -> Instruction:
        return self.r.emit(opcode, a, b, shape=a.shape)

    def result(self) -> Instruction:
        """Lines of each remainder by the strides, and these beside each other."""
        whole = self._interleaved(self.chosen(), [])
        dims = tuple(a.lines * a.w.stride for a in self.parts)
        whole = self.r.emit("reshape", whole, shape=array(self.i.shape.dtype, dims))
        return _sliced(self.r, whole, [SliceDim(0, a.size) for a in self.parts])

    def _interleaved(self, chosen: Instruction, phases: list[int]) -> Instruction:
        """The lines of which the first remainders are `phases`: a dimension of remainders after each of lines."""
        r, n = self.r, len(phases)
        dims = [(a.lines, 1 if d < n else a.w.stride) for d, a in enumerate(self.parts)]
        shape = array(self.i.shape.dtype, tuple(chain(*dims)))
        if not all(a.reaching(p) for a, p in zip(self.parts, phases, strict=False)):
            return r.spread(self.i.operands[2], shape)
        if n == len(dims):
            return r.emit("reshape", self._line(chosen, phases), shape=shape)
        pieces = [self._interleaved(chosen, [*phases, p]) for p in range(self.parts[n].w.stride)]
        return pieces[0] if len(pieces) == 1 else r.emit("concatenate", *pieces, dimensions=(2 * n + 1,))

    def _line(self, chosen: Instruction, phases: list[int]) -> Instruction:
        """The elements of one remainder in each dimension."""
        r, (_, source, init) = self.r, self.i.operands
        reaching = [dict(a.reaching(p)) for a, p in zip(self.parts, phases, strict=True)]
        total = r.spread(init, array(self.i.shape.dtype, tuple(a.lines for a in self.parts)))
        for k, o in reversed([*enumerate(self.offsets)]):  # so windows come in their order
            if all(map(dict.__contains__, reaching, o)):
                first = [positions[at] for positions, at in zip(reaching, o, strict=True)]
                number = self._shifted(chosen, first, NONE)
                here = self._compare("EQ", number, r.full(k, number.shape))
                combined = applied(r, self.i.computation("scatter"), total, self._shifted(source, first, 0))
                total = r.emit("select", here, combined, total, shape=total.shape)
        return total

    def _shifted(self, x: Instruction, first: Sequence[int], fill: int) -> Instruction:
        """Of each line the value of the window that reaches it, of which the first are given."""
        steps = [a.w.base_dilation for a in self.parts]
        ends = [(a.lines - 1) * s + 1 for a, s in zip(self.parts, steps, strict=True)]
        padding = tuple(PadDim(-f, f + e - a.count) for f, e, a in zip(first, ends, self.parts, strict=True))
        cut = [SliceDim(0, e, s) for e, s in zip(ends, steps, strict=True)]
        return _sliced(self.r, _padded(self.r, x, padding, fill), cut)


def _padded(r: Rewriter, x: Instruction, padding: tuple[PadDim, ...], fill: int) -> Instruction:
    if all(p == PadDim(0, 0) for p in padding):
        return x
    return r.emit("pad", x, r.constant(fill, x.shape.dtype), padding=padding)


def _sliced(r: Rewriter, x: Instruction, cut: Sequence[SliceDim]) -> Instruction:
    if all((c.start, c.limit, c.stride) == (0, n, 1) for c, n in zip(cut, x.dims, strict=True)):
        return x
    return r.emit("slice", x, slice=tuple(cut))
