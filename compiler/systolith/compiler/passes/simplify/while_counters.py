"""What follows from the numbers that a loop counts: outcomes of comparisons, and indices that are inside arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.hlo.visiting import through
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.algebraic_arithmetic import value_range
from systolith.compiler.passes.simplify.while_trip_count import element, initial, known_trip_count, scalar, step_of
from systolith.isa.dtypes import PRED

Count = tuple[int, int]
"""A number in the first iteration, and by what it changes in each."""


@dataclass(frozen=True)
class FoldCounters:
    """Fold comparisons with what a loop counts, and scatters of one window at such an index.

    Comparisons with constants that come out alike in every iteration are constants; scatters whose index is inside the
    array in every iteration are updates.  JAX adds the size of an array to an index below 0, and its `at[i]` drops
    updates outside; the index of a `fori_loop` needs neither.
    """

    def run(self, module: Module) -> bool:
        callers = Counter(c for i in module.instructions() for c in i.called)
        loops = [i for i in module.instructions() if i.opcode == "while"]
        alone = [i for i in loops if callers[i.computation("body")] == 1]
        folded = [_Counts(i, count).fold() for i in alone if (count := known_trip_count(i))]
        return any(folded)


class _Counts:
    """What the body of a loop counts.

    Attributes:
        loop: it.
        count: its iterations.
    """

    def __init__(self, loop: Instruction, count: int) -> None:
        self.loop, self.count = loop, count
        self._known: dict[Instruction, Count | None] = {}

    @property
    def body(self) -> Computation:
        return self.loop.computation("body")

    def fold(self) -> bool:
        """Replace comparisons and scatters in the body; whether there were any."""
        found = [i for i in self.body.instructions if i.opcode in ("compare", "scatter")]
        if not found:
            return False
        for i in self.body.instructions:
            self._known[i] = self._value(i)
        outcomes = {i: outcome for i in found if (outcome := self._outcome(i)) is not None}
        inside = {i for i in found if self._is_inside(i)}

        def folded(r: Rewriter, i: Instruction) -> Instruction | None:
            if i in outcomes:
                return r.constant(outcomes[i], PRED)
            return _update(r, i) if i in inside else None

        return bool(outcomes or inside) and Rewriter(self.body).sweep(folded)

    def _value(self, i: Instruction) -> Count | None:
        """What an integer is, if it never leaves the values of its type; its operands are known."""
        if not i.shape.is_array or i.dims or not i.shape.dtype.is_integer:
            return None
        found = self._computed(i)
        if found is None:
            return None
        ends = found[0], found[0] + found[1] * (self.count - 1)
        least, most = value_range(i.shape.dtype)
        return found if least <= min(ends) and max(ends) <= most else None

    def _computed(self, i: Instruction) -> Count | None:
        if (known := scalar(i)) is not None:
            return known, 0
        if (number := element(i, self.body)) is not None:
            first, step = initial(self.loop, number), step_of(self.body, number)
            return None if first is None or step is None else (first, step)
        if i.opcode not in ("add", "subtract", "multiply"):
            return None
        a, b = (self._known.get(o) for o in i.operands)
        if a is None or b is None:
            return None
        if i.opcode == "multiply":
            fixed, other = (a, b) if a[1] == 0 else (b, a)
            return None if fixed[1] else (fixed[0] * other[0], fixed[0] * other[1])
        sign = 1 if i.opcode == "add" else -1
        return a[0] + sign * b[0], a[1] + sign * b[1]

    def _outcome(self, i: Instruction) -> bool | None:
        """What a comparison gives in every iteration; None: it is none, or that is not known."""
        if i.opcode != "compare" or i.dims:
            return None
        a, b = (self._known.get(o) for o in i.operands)
        if a is None or b is None:
            return None
        first = a[0] - b[0]
        ends = first, first + (a[1] - b[1]) * (self.count - 1)
        least, most = min(ends), max(ends)
        below, above = most < 0, least > 0
        always = {"LT": below, "LE": most <= 0, "GT": above, "GE": least >= 0, "EQ": least == most == 0}
        always["NE"] = below or above
        never = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
        direction = i.word("direction")
        return True if always[direction] else False if always[never[direction]] else None

    def _is_inside(self, i: Instruction) -> bool:
        """Whether an instruction is a scatter of one window, with one index, that is inside the array."""
        if i.opcode != "scatter" or len(i.operands) != 3 or not _combines_simply(i):
            return False
        x, indices, _ = i.operands
        along = i.ints("scatter_dims_to_operand_dims")
        if indices.shape.size != 1 or along != i.ints("inserted_window_dims") or len(along) != 1:
            return False
        index = self._known.get(through(indices, "reshape"))
        if index is None or i.ints("input_batching_dims", ()):
            return False
        ends = index[0], index[0] + index[1] * (self.count - 1)
        return min(ends) >= 0 and max(ends) < x.dims[along[0]]


def _combines_simply(i: Instruction) -> bool:
    """Whether a scatter's computation gives its second parameter, or is one operation."""
    return i.computation().result.number == 1 or plain_operation(i.computation()) is not None


def _update(r: Rewriter, i: Instruction) -> Instruction:
    """A scatter of one window inside the array as an update of a slice; of what the array is a reshape of, if that
    differs in dimensions of size 1.
    """
    x, indices, updates = i.operands
    (along,) = i.ints("inserted_window_dims")
    given = iter(updates.dims[d] for d in i.ints("update_window_dims"))
    window = [1 if d == along else next(given) for d in range(x.shape.rank)]
    index, zero = r.reshaped(indices, ()), r.constant(0, indices.shape.dtype)
    starts = [index if d == along else zero for d in range(x.shape.rank)]
    if x.opcode == "reshape" and _longer(x.dims) == _longer(x.operands[0].dims):
        kept = iter(d for d, n in enumerate(x.dims) if n > 1)
        x = x.operands[0]
        places = [next(kept) if n > 1 else None for n in x.dims]
        window = [1 if d is None else window[d] for d in places]
        starts = [zero if d is None else starts[d] for d in places]
    new, opcode = r.reshaped(updates, window), plain_operation(i.computation())
    if opcode is not None:
        old = r.emit("dynamic-slice", x, *starts, dynamic_slice_sizes=tuple(window))
        new = r.emit(opcode, old, new)
    return r.reshaped(r.emit("dynamic-update-slice", x, new, *starts), i.dims)


def _longer(dims: Sequence[int]) -> list[int]:
    """Sizes but for those that are 1."""
    return [n for n in dims if n > 1]
