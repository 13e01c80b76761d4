"""Loops that read and write rows of arrays: what each iteration has of them, and what all have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.groups.all_steps import AllSteps
from systolith.compiler.groups.loop_rows import affine, row_updates
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter
from systolith.compiler.passes.simplify.while_trip_count import element, initial, keeps, scalar, step_of
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class RowLoop:
    """A loop of a known number of iterations, each of which reads and writes rows of arrays.

    Attributes:
        loop: the `while`; its state is a tuple.
        count: its iterations.
        rows: updates of a row in each iteration, by the element of the state.
        counters: elements that start at a constant, and change by one: both of them.
        carried: elements that each iteration makes of those before.
    """

    loop: Instruction
    count: int
    rows: dict[int, Instruction]
    counters: dict[int, tuple[int, int]]
    carried: list[int]

    @property
    def state(self) -> list[Instruction]:
        return self.loop.operands[0].operands

    @property
    def body(self) -> Computation:
        return self.loop.computation("body")

    @property
    def counter(self) -> tuple[int, tuple[int, int]] | None:
        """An element of the state that changes by 1 or -1, with what it starts at and that."""
        return next(((k, c) for k, c in self.counters.items() if abs(c[1]) == 1), None)

    @property
    def roots(self) -> list[Instruction]:
        """What the rows are."""
        return [u.operands[1] for u in self.rows.values()]

    def is_given(self, i: Instruction) -> bool:
        """Whether a value is a row of the state, or an element of it that depends on nothing carried."""
        number = element(i, self.body)
        return self.row(i) is not None or (number is not None and (number in self.counters or keeps(self.loop, number)))

    def index(self, i: Instruction) -> tuple[int, int] | None:
        """What an index is in the first iteration, and by what it changes; None: it is not known."""
        found = affine(i, self.body)
        if found is None or found[0] not in self.counters:
            return None
        (_number, factor, added), (first, step) = found, self.counters[found[0]]
        return factor * first + added, factor * step

    def row(self, i: Instruction) -> tuple[int, int, bool] | None:
        """The element of the state, kept, of which a value is a row, its first row in use, and whether that is read
        last; None: it is none.
        """
        if i.opcode != "dynamic-slice" or (number := element(i.operands[0], self.body)) is None:
            return None
        whole, index = i.operands[0].dims, self.index(i.operands[1])
        rest = all(scalar(o) == 0 for o in i.operands[2:])
        if not keeps(self.loop, number) or index is None or not rest or i.dims != (1, *whole[1:]):
            return None
        first, step = index
        least = min(first, first + step * (self.count - 1))
        inside = 0 <= least <= whole[0] - self.count
        return (number, least, step < 0) if inside and abs(step) == 1 else None

    def all_steps(self, r: Rewriter, callees: Callees, values: Sequence[Instruction], backwards: bool) -> AllSteps:
        """Makes values of the body for all iterations outside the loop; knows the rows and elements of the state that
        these are computed from.

        Args:
            r: makes instructions outside the loop.
            callees: has computations placed.
            values: of the body.
            backwards: whether the last row is that of the first iteration.
        """
        steps = AllSteps(r, callees, self.count)
        for i in body_cone(values, self.body, self.is_given):
            if (number := element(i, self.body)) is not None and keeps(self.loop, number):
                steps.alike[i] = self.state[number]
            elif self.is_given(i):
                steps.known[i] = self._row_or_count(r, i, backwards)
        return steps

    def _row_or_count(self, r: Rewriter, i: Instruction, backwards: bool) -> Instruction:
        """A row of the state, or what counts, for all iterations."""
        n = self.count
        if (row := self.row(i)) is not None:
            number, least, turned = row
            part = r.narrowed(self.state[number], 0, least, least + n)
            part = part if turned == backwards else r.emit("reverse", part, dimensions=(0,))
            return r.reshaped(part, (n, *i.dims))
        first, step = self.counters[i.integer("index")]
        if backwards:
            first, step = first + step * (n - 1), -step
        count = r.emit("iota", shape=array(S32, (n,)), iota_dimension=0)
        return r.emit("add", r.emit("multiply", count, r.full(step, count.shape)), r.full(first, count.shape))

    def state_after(self, steps: AllSteps, ends: dict[int, Instruction], backwards: bool) -> Instruction:
        """The state after the loop.

        Args:
            steps: make the rows.
            ends: the elements that are carried.
            backwards: as for `all_steps`.
        """
        r, values = steps.r, dict(ends)
        for k, (first, step) in self.counters.items():
            values[k] = r.constant(first + step * self.count, S32)
        for k, update in self.rows.items():
            whole = r.reshaped(steps.of(update.operands[1]), update.dims)
            turned = self.is_backwards(update) != backwards
            values[k] = r.emit("reverse", whole, dimensions=(0,)) if turned else whole
        return r.emit("tuple", *(values.get(k, x) for k, x in enumerate(self.state)), shape=self.loop.shape)

    def is_backwards(self, update: Instruction) -> bool:
        """Whether the last row of an array is written first."""
        index = self.index(update.operands[2])
        assert index is not None
        return index[1] < 0


def row_loop(i: Instruction) -> RowLoop | None:
    """A `while` as such a loop; None: it is none."""
    (state,), body, count = i.operands, i.computation("body"), trip_count(i)
    if not count or state.opcode != "tuple" or body.result.opcode != "tuple":
        return None
    counters: dict[int, tuple[int, int]] = {}
    for k, value in enumerate(state.operands):
        first, step = initial(i, k), step_of(body, k)
        if first is not None and step is not None and value.shape.same(array(S32)):
            counters[k] = first, step
    rows = dict(row_updates(i))
    carried = [k for k in range(len(state.operands)) if k not in counters and k not in rows and not keeps(i, k)]
    return RowLoop(i, count, rows, counters, carried)


def body_cone(
    roots: Sequence[Instruction], body: Computation, stop: Callable[[Instruction], bool]
) -> list[Instruction]:
    """What values are computed from, and they, in order; what stops is there, but not what it is computed from."""
    todo, found = [*roots], set(roots)
    while todo:
        i = todo.pop()
        if not stop(i) and element(i, body) is None:
            todo += [o for o in i.operands if o not in found]
            found |= {*i.operands}
    return [i for i in body.instructions if i in found]
