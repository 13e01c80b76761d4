"""HLO in memory: shapes, instructions, computations, modules.

Plain and mutable, so that passes build new ones with little ceremony: `builder.py` infers shapes while building.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

import numpy as np

from systolith.compiler.hlo.attributes import ConvDims, Fields, Raw, SliceDim, Structures, Values, Window
from systolith.compiler.hlo.errors import HloError, Line, Place
from systolith.compiler.hlo.shape import Shape
from systolith.isa.checked import checked

Literal: TypeAlias = "np.ndarray | tuple[Literal, ...]"
"""A value: an array, or a tuple of values; a token is the empty tuple."""

_References: TypeAlias = "Shape | tuple[Shape, ...] | ProgramShape | Computation | tuple[Computation, ...]"
Attribute: TypeAlias = "Values | Fields | Structures | _References"
"""The value of an attribute; `text/codecs.py` says which attribute has which."""

T = TypeVar("T")


@dataclass(eq=False)
class Instruction:
    """One HLO instruction.

    Attributes:
        name: unique in its computation, without `%`.
        opcode: XLA's name, as in the text.
        shape: shape of the result.
        operands: the instructions whose results it takes.
        attributes: `dimensions`, `window`, `to_apply`, ... in the order they are printed; `attributes.py` gives types.
        literal: the value of a `constant`; None where its text leaves it out (`{...}`).
        number: the number of a `parameter`.
        line: line in the HLO text (a `Line`, which knows the text), 0 for an instruction that a pass made.
    """

    name: str
    opcode: str
    shape: Shape
    operands: list[Instruction] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    literal: Literal | None = None
    number: int | None = None
    line: int = 0

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}({', '.join(o.name for o in self.operands)})>"

    def copy(
        self, operands: list[Instruction], attributes: dict[str, Attribute], shape: Shape | None = None
    ) -> Instruction:
        """The same instruction, of the same class, with other operands and attributes, which it takes over."""
        made = object.__new__(type(self))  # whole modules are copied: `dataclasses.replace` takes four times as long
        vars(made).update(vars(self))
        made.operands, made.attributes = operands, attributes
        if shape is not None:
            made.shape = shape
        return made

    def _attribute(self, key: str, default: T | None) -> T:
        value = self.attributes.get(key, default)
        if value is None:
            raise HloError(f"{self.opcode} {self.name!r} has no attribute {key!r}, which it needs")
        return cast(T, value)

    def ints(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers, such as `dimensions`."""
        return self._attribute(key, default)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer, such as `index`."""
        return self._attribute(key, default)

    def word(self, key: str, default: str | None = None) -> str:
        """A word or a string, such as `direction` or `custom_call_target`."""
        return self._attribute(key, default)

    def words(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of words, such as `operand_precision`."""
        return self._attribute(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean, such as `is_stable`."""
        return self._attribute(key, default)

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return self.shape.dims

    @property
    def window(self) -> Window:
        """The `window` attribute; none at all is a window without dimensions."""
        return self._attribute("window", Window(()))

    @property
    def conv_dims(self) -> ConvDims:
        """The `dim_labels` of a convolution."""
        return self._attribute("dim_labels", None)

    @property
    def slices(self) -> tuple[SliceDim, ...]:
        """The `slice` attribute."""
        return self._attribute("slice", None)

    def computation(self, key: str = "to_apply") -> Computation:
        """The computation that an attribute names."""
        value = self._attribute(key, cast("Computation | None", None))
        if not isinstance(value, Computation):
            raise HloError(f"{self.opcode} {self.name!r}: attribute {key!r} is not one computation")
        return value

    @property
    def called(self) -> list[Computation]:
        """Every computation that the attributes name, in their order."""
        found: list[Computation] = []
        if not self.attributes:
            return found
        for value in self.attributes.values():
            if isinstance(value, Computation):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                found.extend(value)
        return found

    @property
    def place(self) -> Place | None:
        """Where it stands in the text; None for one that a pass made of nothing."""
        return self.line.place if isinstance(self.line, Line) else None

    @property
    def metadata(self) -> dict[str, str | int | Raw]:
        """`metadata={...}`: `op_name`, `source_file`, `source_line`, `stack_frame_id`, ..."""
        return self._attribute("metadata", {})


@dataclass(eq=False)
class Computation:
    """A list of instructions in an order in which operands come before users, and the one whose result it returns."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    root: Instruction | None = None
    attributes: dict[str, Attribute] = field(default_factory=dict)
    line: int = 0

    def __repr__(self) -> str:
        return f"<computation {self.name}, {len(self.instructions)} instructions>"

    @property
    def parameters(self) -> list[Instruction]:
        """The parameters in the order of their numbers."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return sorted(found, key=lambda i: -1 if i.number is None else i.number)

    @property
    def first_parameter(self) -> Instruction:
        """The parameter of number 0, which stands near the beginning: this is much faster than all of `parameters`."""
        return next(i for i in self.instructions if i.opcode == "parameter" and i.number == 0)

    @property
    def result(self) -> Instruction:
        """The root, or the last instruction where none is marked.

        Raises:
            HloError: the computation is empty.
        """
        if self.root is not None:
            return self.root
        if not self.instructions:
            raise HloError(f"computation {self.name!r} has no instructions")
        return self.instructions[-1]

    def users(self) -> dict[Instruction, list[Instruction]]:
        """For each instruction, those that take it as an operand (once per user)."""
        found: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                found[operand].append(instruction)
        return found

    def fresh_name(self, stem: str) -> str:
        """`stem`, or `stem.N` with the first N that makes it unique here."""
        taken = {i.name for i in self.instructions}
        if stem not in taken:
            return stem
        number = 1
        while f"{stem}.{number}" in taken:
            number += 1
        return f"{stem}.{number}"

    def replace(self, old: Instruction, new: Instruction) -> None:
        """Let every user of `old` in this computation, and the root, take `new`; `old` stays in the list."""
        for instruction in self.instructions:
            instruction.operands = [new if o is old else o for o in instruction.operands]
        if self.root is old:
            self.root = new


@dataclass(frozen=True)
class ProgramShape:
    """Shapes of a computation's parameters and result, as in `entry_computation_layout`."""

    parameters: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True)
class Style:
    """How a text is written, so that printing gives it back.

    Attributes:
        percent: names carry a `%`.
        signatures: computations state the shapes of their parameters and result.
        operand_shapes: operands are written with their shapes.
        operand_comments: every fifth operand has its number before it, `/*index=5*/`.
        short_async: asynchronous calls of one operation are written as `slice-start`, not as `async-start`.
    """

    percent: bool = True
    signatures: bool = True
    operand_shapes: bool = False
    operand_comments: bool = True
    short_async: bool = True


@dataclass(eq=False)
class Module:
    """An HLO module.

    Attributes:
        name: its name in the text.
        computations: all of them, callees before callers in printed text.
        entry: the one that runs.
        attributes: `entry_computation_layout`, `is_scheduled`, ... in the order they are printed.
        preamble: the tables of files and stack frames that stand before the computations, as text.
        style: how the text was written.
    """

    name: str
    computations: list[Computation] = field(default_factory=list)
    entry: Computation = field(default_factory=lambda: Computation("main"))
    attributes: dict[str, Attribute] = field(default_factory=dict)
    preamble: str = ""
    style: Style = Style()

    def __repr__(self) -> str:
        return f"<module {self.name}, {len(self.computations)} computations>"

    @checked
    def computation(self, name: str) -> Computation:
        """The computation called `name`.

        Raises:
            HloError: there is none.
        """
        for computation in self.computations:
            if computation.name == name:
                return computation
        raise HloError(f"module {self.name!r} has no computation {name!r}")

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations:
            yield from computation.instructions

    @checked
    def error(self, instruction: Instruction, message: str) -> HloError:
        """An error about an instruction: it names the opcode, the instruction, its shape and its line."""
        text = f"{instruction.opcode} {instruction.name!r} ({instruction.shape}): {message}"
        return HloError(text, instruction.place)

    def post_order(self) -> list[Computation]:
        """Computations with callees before callers, the order of the list otherwise kept."""
        done: dict[Computation, None] = {}
        for computation in self.computations:
            stack = [(computation, False)]
            while stack:
                item, ready = stack.pop()
                if item in done:
                    continue
                if ready:
                    done[item] = None
                    continue
                stack.append((item, True))
                called = [c for i in item.instructions for c in i.called]
                stack.extend((c, False) for c in reversed(called) if c not in done)
        return list(done)
