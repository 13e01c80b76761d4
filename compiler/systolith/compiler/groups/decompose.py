"""One operation as several, each of which asks less of an instruction than it.

pad                 in more dimensions than an address generator has bounds: some dimensions after the others
reduce-window,      with padding or a dilated base: a pad, and the operation without them
convolution
reduce-window       by a general computation: its operations on a slice for each element of the window
dot                 in other than canonical form: transposes and reshapes around one that is (`dot_canonical.py`)
map                 the operations of its computation, on arrays
reduce              by a general computation: halves of the operands combined by its operations, until one is left
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from systolith.compiler.groups.dot_canonical import canonical_dot
from systolith.compiler.hlo.attributes import PadDim, SliceDim, Window, WindowDim
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.values.evaluator import in_any_order
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.pattern import MAX_COORDS


def decomposed(body: Computation) -> list[Instruction] | None:
    """Write the operations of a group as several where that is possible, in place.

    Returns:
        The values on the way that have to be stored; None: nothing changed.
    """
    steps = _Steps()
    if not Rewriter(body).sweep(steps.rule):
        return None
    return [i for i in steps.stored if i in set(body.instructions) and i is not body.result]


Rule = Callable[["_Steps", Rewriter, Instruction], "Instruction | None"]


@dataclass
class _Steps:
    """The instructions that the rules made, and those of them to be stored."""

    stored: list[Instruction] = field(default_factory=list)
    done: set[Instruction] = field(default_factory=set)

    def rule(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """The replacement of an instruction; those that a rule made are not rewritten again."""
        if i in self.done or i.opcode not in _RULES:
            return None
        made = _RULES[i.opcode](self, r, i)
        if made is not None:
            self.done.add(made)
        return made

    def store(self, i: Instruction) -> Instruction:
        self.stored.append(i)
        self.done.add(i)
        return i

    def padded(self, r: Rewriter, x: Instruction, fill: Instruction, padding: Sequence[PadDim]) -> Instruction:
        """An operand with its padding, stored."""
        return self.store(r.emit("pad", x, fill, padding=tuple(padding)))


def _pad(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    padding: tuple[PadDim, ...] = i.attributes["padding"]  # type: ignore[assignment]
    padded = [d for d, p in enumerate(padding) if p != PadDim(0, 0)]
    if len(padded) <= MAX_COORDS:
        return None
    x, fill = i.operands
    for start in range(0, len(padded), MAX_COORDS):
        some = padded[start : start + MAX_COORDS]
        x = steps.padded(r, x, fill, [p if d in some else PadDim(0, 0) for d, p in enumerate(padding)])
    return x


def _plain(window: Window) -> Window:
    """The window without padding and dilation of the base."""
    return Window(tuple(replace(w, low=0, high=0, base_dilation=1) for w in window.dims))


def _padding(w: WindowDim) -> PadDim:
    return PadDim(w.low, w.high, w.base_dilation - 1)


def _reduce_window(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    plain = _plain(i.window)
    half = len(i.operands) // 2
    operands, inits = i.operands[:half], i.operands[half:]
    if plain == i.window:
        return _windows(steps, r, i) if _general(i) else None
    padding = [_padding(w) for w in i.window.dims]
    padded = [steps.padded(r, x, init, padding) for x, init in zip(operands, inits, strict=True)]
    made = r.like(i, [*padded, *inits], i.shape)
    made.attributes["window"] = plain
    return made


def _windows(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction:
    """A reduce-window without padding, by slices of its operands."""
    half = len(i.operands) // 2
    shapes = list(i.shape.leaves())
    values = _repeated(r, i.operands[half:], shapes)
    for tap in product(*(range(w.size) for w in i.window.dims)):
        parts = []
        for t, w, n in zip(tap, i.window.dims, shapes[0].dims, strict=True):
            first = t * w.window_dilation
            parts.append(SliceDim(first, first + (n - 1) * w.stride + 1, w.stride))
        some = [r.emit("slice", x, slice=tuple(parts)) for x in i.operands[:half]]
        values = [steps.store(x) for x in _inlined(r, i.computation(), [*values, *some])]
    return values[0] if i.shape.is_array else r.emit("tuple", *values)


def _general(i: Instruction) -> bool:
    """Whether a reduction is of several operands, or by more than one operation; the others fit.

    Not of floats that are to be rounded once, at the end.
    """
    if any(s.dtype.is_float and s.dtype.bits < 32 for s in i.shape.leaves()):
        return False
    return not i.shape.is_array or plain_operation(i.computation()) is None


def _repeated(r: Rewriter, scalars: Sequence[Instruction], shapes: Sequence[Shape]) -> list[Instruction]:
    """Scalars as arrays."""
    return [
        r.emit("broadcast", x, shape=s, dimensions=()) if s.rank else x for x, s in zip(scalars, shapes, strict=True)
    ]


def _convolution(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    plain = _plain(i.window)
    if plain == i.window:
        return None
    x, weights = i.operands
    spatial = dict(zip(i.conv_dims.input_spatial, i.window.dims, strict=True))
    padding = [_padding(spatial[d]) if d in spatial else PadDim(0, 0) for d in range(x.shape.rank)]
    padded = steps.padded(r, x, r.constant(0, x.shape.dtype), padding)
    made = r.like(i, [padded, weights], i.shape)
    made.attributes["window"] = plain
    return made


def _dot(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    made = canonical_dot(r, i)
    if made is not None:
        product = made if made.opcode == "dot" else made.operands[0]
        for value in (product, *product.operands):
            if value not in i.operands:
                steps.store(value)
    return made


def _inlined(r: Rewriter, computation: Computation, arguments: Sequence[Instruction]) -> list[Instruction]:
    """The results of a scalar computation, element by element of arrays."""
    dims = arguments[0].dims
    values = dict(zip(computation.parameters, arguments, strict=True))
    for j in computation.instructions:
        if j in values or j.opcode == "tuple":
            continue
        operands = [values[o] for o in j.operands]
        if j.opcode == "constant":
            values[j] = r.full(j.literal, array(j.shape.dtype, dims))
        elif j.opcode in ("broadcast", "reshape"):
            values[j] = operands[0]
        elif j.opcode in ("call", "map"):
            values[j] = _inlined(r, j.computation(), operands)[0]
        else:
            values[j] = r.like(j, operands, array(j.shape.dtype, dims))
    root = computation.result
    return [values[o] for o in (root.operands if root.opcode == "tuple" else [root])]


def _map(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    (made,) = _inlined(r, i.computation(), i.operands)
    return made


def _reduce(steps: _Steps, r: Rewriter, i: Instruction) -> Instruction | None:
    half = len(i.operands) // 2
    values, inits = i.operands[:half], i.operands[half:]
    if not _general(i) or not values[0].shape.size or not in_any_order(i.computation()):
        return None
    for d in i.ints("dimensions"):
        while (n := values[0].dims[d]) > 1:
            some = n // 2
            a, b, rest = (
                [r.narrowed(x, d, first, end) for x in values]
                for first, end in ((0, some), (some, 2 * some), (2 * some, n))
            )
            values = [steps.store(x) for x in _inlined(r, i.computation(), [*a, *b])]
            if n % 2:
                values = [
                    steps.store(r.emit("concatenate", x, y, dimensions=(d,))) for x, y in zip(values, rest, strict=True)
                ]
    shapes = list(i.shape.leaves())
    kept = [r.emit("reshape", x, shape=s) for x, s in zip(values, shapes, strict=True)]
    results = [steps.store(x) for x in _inlined(r, i.computation(), [*_repeated(r, inits, shapes), *kept])]
    return results[0] if i.shape.is_array else r.emit("tuple", *results)


_RULES: Mapping[str, Rule] = {
    "pad": _pad,
    "reduce-window": _reduce_window,
    "convolution": _convolution,
    "dot": _dot,
    "map": _map,
    "reduce": _reduce,
}
