"""Rows that one loop leaves to another, and that other rows give: they are computed again there, not stored.

The backward pass of layers in a loop reads what each layer of the forward pass has left it (`jax.lax.scan` under
`jax.grad`): of a GELU the sum, its cube, the tangent and more, each as large as the product's result that all of them
are elementwise in.  As for layers that are written out (`recomputation.py`), to compute them again takes less than to
store and load them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from systolith.compiler.explain import Decision
from systolith.compiler.groups.cones import cone_again, moves_no_more
from systolith.compiler.groups.loop_rows import row_of, row_update, row_updates
from systolith.compiler.groups.loop_state import kept, plain, space
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import element, keeps
from systolith.isa.chip import Chip

TIDY = (SimplifyWhileLoops(), DeadCode(), SimplifyWhileLoops(), SimplifyTuples(), MergeCommon(), DeadCode())
"""Take away what nothing reads any more: in the reader first, then in the writer."""


@dataclass(frozen=True)
class RecomputeRows:
    """Compute rows that loops leave to others again, from other rows, where they are read.

    Attributes:
        chip: rows of a part of its VMEM and more are.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        names = Names(i.name for i in module.instructions())
        decisions: list[Decision] = []
        for computation in list(module.computations):
            loops = [i for i in computation.instructions if i.opcode == "while"]
            for n, reader in enumerate(loops):
                for writer in filter(partial(_feeds, reader), loops[:n]):
                    pair = _Pair(computation, writer, reader, names, self.chip)
                    for name, size in pair.again(self.chip.vmem.bytes // LARGE):
                        what = f"rows of {name} are computed again in {reader.name}"
                        decisions.append(Decision("recompute", writer.name, what, "", {"bytes of a row": size}))
        if decisions:
            for tidy in TIDY:
                tidy.run(module)
        return Outcome(bool(decisions), tuple(decisions))


def _feeds(reader: Instruction, writer: Instruction) -> bool:
    """Whether a loop begins with an element of what another one leaves."""
    return any(i.opcode == "get-tuple-element" and i.operands[0] is writer for i in reader.operands[0].operands)


class _Pair:
    """A loop that writes rows, and one that reads them.

    Args:
        outer: their computation.
        writer, reader: the loops.
        names: those that are taken.
        chip: the target.

    Attributes:
        rows: updates of arrays of whose rows the writer writes every one, by their number in its state.
        got: these arrays, after the writer, if only the reader and slices that take one row use them.
        taken: where the reader has each of them, in its state.
    """

    def __init__(self, outer: Computation, writer: Instruction, reader: Instruction, names: Names, chip: Chip) -> None:
        self.outer, self.writer, self.reader, self.names, self.chip = outer, writer, reader, names, chip
        self.made, self.body = writer.computation("body"), reader.computation("body")
        self.rows = dict(row_updates(writer))
        self.got: dict[int, Instruction] = {}
        self.taken: dict[int, int] = {}
        if not plain(outer, reader) or not plain(outer, writer):
            return
        start, users = reader.operands[0], outer.users()
        of_writer = {u: u.integer("index") for u in users[writer] if u.opcode == "get-tuple-element"}
        for at, given in enumerate(start.operands):
            number = of_writer.get(given)
            others = [u for u in users[given] if u is not start]
            once = start.operands.count(given) == 1 and keeps(reader, at)
            if number in self.rows and once and given is not outer.result and all(map(_takes_row, others)):
                self.got[number], self.taken[number] = given, at

    def again(self, least: int) -> Iterator[tuple[str, int]]:
        """Compute rows again; gives their names and bytes, in the order in which they are made."""
        if not self.taken:
            return
        users, after = self.body.users(), self.outer.users()
        slices = {number: self._slices(at, users) for number, at in self.taken.items()}
        outside = {number: [u for u in after[got] if u.opcode == "slice"] for number, got in self.got.items()}
        place = {i: n for n, i in enumerate(self.made.instructions)}
        values = {number: row_of(self.rows[number]) for number in self.taken if slices[number] is not None}
        stored: dict[Instruction, int] = {}
        for number, value in sorted(values.items(), key=lambda each: place[each[1]]):
            update = self.rows[number]
            alike = {v: n for v, n in stored.items() if _index(self.rows[n]) is _index(update)}
            large = value.shape.bytes >= least
            given = alike.__contains__ if outside[number] else self._is_given(alike, update)
            cone = cone_again(value, given, self.chip) if large else None
            if cone is not None and moves_no_more(value, alike.keys() & cone):
                cone = None
            if cone is None and large and (turned := _turned(value)):
                cone = turned
                stored[cone[0]] = alike[cone[0]] = self._row(cone[0], update)
            if cone is None:
                stored[value] = number
                continue
            for read in [*(slices[number] or []), *outside[number]]:
                self._compute(read, cone, alike)
            yield value.name, value.shape.bytes

    def _slices(self, at: int, users: Mapping[Instruction, list[Instruction]]) -> list[Instruction] | None:
        """What takes rows of an element of the reader's state; None: something else reads it."""
        found: list[Instruction] = []
        root = self.body.result
        for i in self.body.instructions:
            if element(i, self.body) != at:
                continue
            for user in users[i]:
                if user is root and root.operands.count(i) == 1:
                    continue
                if user.opcode != "dynamic-slice" or user.operands[0] is not i or user.dims[1:] != i.dims[1:]:
                    return None
                if user.dims[0] != 1 or len(user.operands) != 1 + len(i.dims):
                    return None
                found.append(user)
        return found

    def _is_given(self, stored: Mapping[Instruction, int], update: Instruction) -> Callable[[Instruction], bool]:
        """Whether the reader can have a value of the writer's body: a row, what stays the same, a row of that."""

        def stays(i: Instruction) -> bool:
            number = element(i, self.made)
            return number is not None and keeps(self.writer, number)

        def given(i: Instruction) -> bool:
            if i in stored or stays(i):
                return True
            if i.opcode != "dynamic-slice" or not stays(i.operands[0]) or len(i.operands) != 1 + len(i.dims):
                return False
            rows = update.dims[0], *i.operands[0].dims[1:]  # as many, or indices that are out of bounds mean others
            return i.operands[1] is _index(update) and i.operands[0].dims == rows and i.dims == (1, *rows[1:])

        return given

    def _compute(self, read: Instruction, cone: list[Instruction], stored: Mapping[Instruction, int]) -> None:
        """Let a slice, of the reader's body or after the writer, be what the operations of a cone make of others."""
        at = _Place(self, read)
        values: dict[Instruction, Instruction] = {}
        for i in cone:
            if i in stored:
                values[i] = at.row(at.left(stored[i]), i.dims)
            elif i.opcode == "dynamic-slice":
                values[i] = at.row(at.kept(i.operands[0]), i.dims)
            elif element(i, self.made) is not None:
                values[i] = at.kept(i)
            else:
                values[i] = i.copy([values[o] for o in i.operands], dict(i.attributes))
                values[i].name = self.names.fresh(f"{i.name}.again")
                at.out.append(values[i])
        at.replace(values[cone[-1]])

    def _row(self, value: Instruction, like: Instruction) -> int:
        """Let the writer leave rows of another value where an update puts its own, for the reader; their number."""
        shape = array(value.shape.dtype, (like.dims[0], *value.dims))
        number = space(self.outer, self.writer, shape, self.names)
        part = next(i for i in self.made.instructions if element(i, self.made) == number)
        self.made.root = root = self.made.result
        wide, put = row_update(part, value, _index(like), like.operands[3], self.names)
        at = self.made.instructions.index(root)
        self.made.instructions[at:at] = [wide, put]
        root.operands[number] = put
        got = Instruction(self.names.fresh("rows"), "get-tuple-element", shape, [self.writer], {"index": number})
        self.outer.instructions.insert(self.outer.instructions.index(self.writer) + 1, got)
        self.rows[number], self.got[number] = put, got
        self.taken[number] = kept(self.outer, self.reader, got, self.names)
        return number

    def carried(self, i: Instruction) -> int:
        """Where the reader has what the writer's state keeps; it is added to its state if it is not there."""
        number = element(i, self.made)
        assert number is not None
        return kept(self.outer, self.reader, self.writer.operands[0].operands[number], self.names)


class _Place:
    """Where a slice takes a row: in the reader's body, or after the loops.

    Args:
        pair: the loops.
        read: the slice.

    Attributes:
        out: what is made there in its stead.
    """

    def __init__(self, pair: _Pair, read: Instruction) -> None:
        self._pair, self._read, self._inside = pair, read, read.opcode == "dynamic-slice"
        self.out: list[Instruction] = []

    def _add(self, opcode: str, shape: Shape, operands: list[Instruction], **attributes: Attribute) -> Instruction:
        name = self._pair.names.fresh(f"{self._read.name}.{opcode}")
        self.out.append(Instruction(name, opcode, shape, operands, attributes))
        return self.out[-1]

    def _element(self, shape: Shape, number: int) -> Instruction:
        return self._add("get-tuple-element", shape, [self._pair.body.first_parameter], index=number)

    def kept(self, i: Instruction) -> Instruction:
        """What the writer's state keeps, in the reader; what that changes is not there after it."""
        assert self._inside
        return self._element(i.shape, self._pair.carried(i))

    def left(self, number: int) -> Instruction:
        """An array that the writer leaves."""
        pair = self._pair
        return self._element(pair.rows[number].shape, pair.taken[number]) if self._inside else pair.got[number]

    def row(self, whole: Instruction, dims: tuple[int, ...]) -> Instruction:
        """The row of an array that the slice takes of its own."""
        sizes = (1, *whole.dims[1:])
        shape = array(whole.shape.dtype, sizes)
        if self._inside:
            starts = [self._read.operands[1], *(self._read.operands[-1] for _ in sizes[1:])]
            part = self._add("dynamic-slice", shape, [whole, *starts], dynamic_slice_sizes=sizes)
        else:
            cut = (self._read.slices[0], *(SliceDim(0, size) for size in sizes[1:]))
            part = self._add("slice", shape, [whole], slice=cut)
        return self._add("reshape", array(shape.dtype, dims), [part])

    def replace(self, value: Instruction) -> None:
        """Let the slice be a value, after what was made for it."""
        read, pair = self._read, self._pair
        read.opcode, read.operands = "reshape", [value]
        read.attributes = {k: v for k, v in read.attributes.items() if k == "metadata"}
        instructions = (pair.body if self._inside else pair.outer).instructions
        at = instructions.index(read)
        instructions[at:at] = self.out


def _takes_row(i: Instruction) -> bool:
    """Whether an instruction is a slice of one row."""
    whole = i.operands[0].dims
    return i.opcode == "slice" and i.dims == (1, *whole[1:])


def _turned(value: Instruction) -> list[Instruction]:
    """A product, or a slice, of which a value is the transpose, and how; nothing: it is another value.

    q, k and v of attention are left transposed. Products store them as they are made, and each block takes its heads of
    that.
    """
    chain = [value]
    while chain[0].opcode in ("reshape", "transpose"):
        chain.insert(0, chain[0].operands[0])
    product = chain[0].opcode == "dot" and not chain[0].ints("lhs_batch_dims", ())
    turned = any(i.opcode == "transpose" for i in chain[1:])
    return chain if turned and (product or chain[0].opcode == "slice") else []


def _index(update: Instruction) -> Instruction:
    """The number of the row that an update writes."""
    return update.operands[2]
