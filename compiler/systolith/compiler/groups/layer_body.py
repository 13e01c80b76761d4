"""The body of a loop over layers: the second layer, on elements of the loop's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from systolith.compiler.groups.layers import Before, Layers, Rows, Same, Source, Stacked
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.rewrite import Names
from systolith.isa.dtypes import S32, DType

Stack = tuple[Instruction, ...]
"""The parameters of all layers, one of each."""


class Made:
    """Instructions in the making.

    Attributes:
        names: those that are taken.
        out: the instructions, in order.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.out: list[Instruction] = []

    def add(
        self, stem: str, opcode: str, shape: Shape, operands: Sequence[Instruction], **attributes: Attribute
    ) -> Instruction:
        """Another one, whose name begins with `stem`."""
        made = Instruction(self.names.fresh(stem), opcode, shape, list(operands), attributes)
        self.out.append(made)
        return made

    def scalar(self, stem: str, value: int) -> Instruction:
        """A constant of s32."""
        self.out.append(scalar(self.names.fresh(stem), value))
        return self.out[-1]


@dataclass(frozen=True)
class Parts:
    """The loop's state, after the number of the layer.

    Attributes:
        slots: numbers of the operations in a layer whose results are carried to the next one, or out of the loop.
        fixed: what stays the same.
        rows: numbers of the operations whose results are rows of arrays.
        stacks: the parameters of layers.
    """

    slots: Sequence[int]
    fixed: Sequence[Instruction]
    rows: Sequence[int]
    stacks: Sequence[Stack]

    @property
    def _begin(self) -> list[int]:
        return [*accumulate(map(len, (self.slots, self.fixed, self.rows)), initial=1)]

    @property
    def slots_at(self) -> enumerate[int]:
        """(number in the state, operation) of what is carried."""
        return enumerate(self.slots, self._begin[0])

    @property
    def fixed_at(self) -> enumerate[Instruction]:
        """Of what stays the same."""
        return enumerate(self.fixed, self._begin[1])

    @property
    def rows_at(self) -> enumerate[int]:
        """Of arrays of rows."""
        return enumerate(self.rows, self._begin[2])

    @property
    def stacks_at(self) -> enumerate[Stack]:
        """Of parameters."""
        return enumerate(self.stacks, self._begin[3])


class LayerBody:
    """Makes the body.

    Args:
        layers: they.
        updated: stacks that are updated in place, with the number of the operation that does so in a layer.
        parts: the loop's state.
        names: those that are taken.
    """

    def __init__(self, layers: Layers, updated: Mapping[Stack, int], parts: Parts, names: Names) -> None:
        self._layers, self._parts, self._out = layers, parts, Made(names)
        self._updates = {slot: stack for stack, slot in updated.items()}
        self._made: dict[int, Instruction] = {}
        self._own: dict[Stack | Rows, Instruction] = {}
        self._new: dict[Stack, Instruction] = {}
        self._numbers: dict[tuple[int, int], Instruction] = {}

    def made(self, name: str, state: Shape) -> Computation:
        """The computation of a name, on a state of a shape."""
        out, parts = self._out, self._parts
        given = Instruction(out.names.fresh("layers.state"), "parameter", state, number=0)
        out.out.append(given)
        elements = [
            out.add("layers.part", "get-tuple-element", shape, [given], index=k)
            for k, shape in enumerate(state.elements)
        ]
        self._layer, self._zero, one = elements[0], out.scalar("zero", 0), out.scalar("one", 1)
        self._before = {slot: elements[k] for k, slot in parts.slots_at}
        self._kept = {value: elements[k] for k, value in parts.fixed_at}
        self._rows = {slot: elements[k] for k, slot in parts.rows_at}
        self._given = {stack: elements[k] for k, stack in parts.stacks_at}
        self._stacks = dict(self._given)
        for slot, (i, sources) in enumerate(zip(self._layers.rows[1], self._layers.sources, strict=True)):
            self._operation(slot, i, sources)
        # A stack is one memory: it changes when nothing of the layer reads it any more.
        for stack, row in self._new.items():
            self._stacks[stack] = self._put(self._stacks[stack], row, [self._zero for _ in row.dims])
        after = out.add("layer.next", "add", array(S32, ()), [self._layer, one])
        carried = [self._made[slot] for slot in parts.slots]
        fixed = [self._kept[value] for value in parts.fixed]
        values = [after, *carried, *fixed, *self._rows.values(), *self._stacks.values()]
        return Computation(name, out.out, out.add("layers.after", "tuple", state, values))

    def _operation(self, slot: int, i: Instruction, sources: Sequence[Source]) -> None:
        """An operation of the layer, and what becomes of its result in stacks and arrays of rows."""
        stack = self._updates.get(slot)
        if stack is not None and i.opcode == "dynamic-update-slice" and sources[0] == Stacked(stack):
            update, *starts = map(self._operand, sources[1:])
            self._stacks[stack] = self._put(self._stacks[stack], update, starts)
            self._made[slot] = self._slice(self._stacks[stack], i.shape, self._layer)
            return
        made = self._made[slot] = i.copy([self._operand(s) for s in sources], dict(i.attributes))
        self._out.out.append(made)
        if stack is not None:
            self._new[stack] = made
        if slot in self._rows:
            self._rows[slot] = self._put(self._rows[slot], made, [self._zero for _ in made.dims])

    def _operand(self, source: Source) -> Instruction:
        if isinstance(source, Same):
            return self._made[source.slot]
        if isinstance(source, Before):
            return self._before[source.slot]
        if isinstance(source, Stacked):
            if source.values not in self._own:
                whole = self._given[source.values]
                self._own[source.values] = self._slice(whole, source.values[0].shape, self._layer)
            return self._own[source.values]
        if isinstance(source, Rows):
            if source not in self._own:
                like = array(source.array.shape.dtype, source.array.dims[1:])
                self._own[source] = self._slice(self._kept[source.array], like, self._number(source))
            return self._own[source]
        return self._again(source.value)

    def _again(self, value: Instruction) -> Instruction:
        """What layers have in common, made of what the state has of it."""
        if value not in self._kept:
            made = value.copy([self._again(o) for o in value.operands], dict(value.attributes))
            made.name = self._out.names.fresh(value.name)
            self._out.out.append(made)
            self._kept[value] = made
        return self._kept[value]

    def _number(self, source: Rows) -> Instruction:
        """The number of a layer's row."""
        key, out = (source.first, source.step), self._out
        if key not in self._numbers:
            first, far = out.scalar("row", source.first), self._layer
            if abs(source.step) != 1:
                far = out.add("row", "multiply", array(S32, ()), [far, out.scalar("row", abs(source.step))])
            opcode = "subtract" if source.step < 0 else "add"
            self._numbers[key] = out.add("row", opcode, array(S32, ()), [first, far])
        return self._numbers[key]

    def _slice(self, whole: Instruction, like: Shape, number: Instruction) -> Instruction:
        """One of the arrays that a stack or an array of rows is of."""
        sizes = (1, *like.dims)
        start = [number, *(self._zero for _ in like.dims)]
        shape = array(like.dtype, sizes)
        part = self._out.add("layers.slice", "dynamic-slice", shape, [whole, *start], dynamic_slice_sizes=sizes)
        return self._out.add("layers.own", "reshape", like, [part])

    def _put(self, whole: Instruction, part: Instruction, starts: Sequence[Instruction]) -> Instruction:
        """A stack, or an array of rows, with a part of a layer's changed."""
        layer = self._layer
        if starts and starts[0].shape.dtype is not S32:
            layer = self._out.add("layers.start", "convert", array(starts[0].shape.dtype, ()), [layer])
        wide = self._out.add("layers.update", "reshape", array(part.shape.dtype, (1, *part.dims)), [part])
        return self._out.add("stack.next", "dynamic-update-slice", whole.shape, [whole, wide, layer, *starts])


def stacked(shape: Shape, count: int) -> Shape:
    """That of so many arrays as one, with a new first dimension."""
    return array(shape.dtype, (count, *shape.dims))


def scalar(name: str, value: int, dtype: DType = S32) -> Instruction:
    """A constant of an integer type."""
    return Instruction(name, "constant", array(dtype, ()), literal=np.array(value, dtype.stored))
