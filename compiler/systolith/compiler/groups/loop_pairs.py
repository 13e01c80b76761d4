"""Pairs of loops of which one leaves rows, an array of what each iteration makes, that the other one reads.

`jax.lax.scan` under `jax.grad` is such a pair: its backward pass reads what each iteration of the forward pass has left
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from systolith.compiler.groups.loop_rows import row_update, row_updates
from systolith.compiler.groups.loop_state import kept, plain, space
from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import element, keeps

_TIDY = (SimplifyWhileLoops(), DeadCode(), SimplifyWhileLoops(), SimplifyTuples(), MergeCommon(), DeadCode())
"""In the reader first, then in the writer."""


class Pair:
    """A loop that writes rows, and one that reads them.

    Args:
        outer: their computation.
        writer, reader: the loops.
        names: those that are taken.

    Attributes:
        made, body: of the writer, of the reader.
        rows: updates of arrays of whose rows the writer writes every one, by their number in its state.
        got: these arrays, after the writer, if only the reader and slices that take one row use them.
        taken: where the reader has each of them, in its state.
    """

    def __init__(self, outer: Computation, writer: Instruction, reader: Instruction, names: Names) -> None:
        self.outer, self.writer, self.reader, self.names = outer, writer, reader, names
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

    def reads(self) -> dict[int, list[Instruction]]:
        """What takes rows of each array, in the reader's body and after the loops, if nothing else reads it."""
        users, after = self.body.users(), self.outer.users()
        slices = {number: self._slices(at, users) for number, at in self.taken.items()}
        outside = {number: [u for u in after[got] if u.opcode == "slice"] for number, got in self.got.items()}
        return {number: [*inside, *outside[number]] for number, inside in slices.items() if inside is not None}

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

    def leave(self, value: Instruction, like: Instruction) -> int:
        """Let the writer leave rows of another value where an update puts its own, for the reader; their number."""
        shape = array(value.shape.dtype, (like.dims[0], *value.dims))
        number = space(self.outer, self.writer, shape, self.names)
        part = next(i for i in self.made.instructions if element(i, self.made) == number)
        self.made.root = root = self.made.result
        wide, put = row_update(part, value, index_of(like), like.operands[3], self.names)
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


class Place:
    """Where a slice takes a row: in the reader's body, or after the loops.

    Args:
        pair: the loops.
        read: the slice.

    Attributes:
        out: what is made there in its stead.
    """

    def __init__(self, pair: Pair, read: Instruction) -> None:
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


def pairs_of(module: Module, names: Names) -> Iterator[Pair]:
    """All pairs of a module, which may be changed one after another."""
    for computation in list(module.computations):
        loops = [i for i in computation.instructions if i.opcode == "while"]
        for n, reader in enumerate(loops):
            for writer in filter(partial(_feeds, reader), loops[:n]):
                yield Pair(computation, writer, reader, names)


def _feeds(reader: Instruction, writer: Instruction) -> bool:
    """Whether a loop begins with an element of what another one leaves."""
    return any(i.opcode == "get-tuple-element" and i.operands[0] is writer for i in reader.operands[0].operands)


def tidy(module: Module) -> None:
    """Take away what nothing reads any more."""
    for each in _TIDY:
        each.run(module)


def index_of(update: Instruction) -> Instruction:
    """The number of the row that an update writes."""
    return update.operands[2]
