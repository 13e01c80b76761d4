"""Copies of instructions as a computation of their own, with parameters for the values that they take from outside."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.passes.rewrite import Names


class Outline:
    """A computation in the making.

    Attributes:
        copies: what stands for an instruction: a copy of it, or a parameter.
        body: the copies, operands first.
    """

    def __init__(self) -> None:
        self.copies: dict[Instruction, Instruction] = {}
        self.body: list[Instruction] = []
        self._parameters: dict[tuple[Instruction, Hashable], Instruction] = {}

    @property
    def values(self) -> list[Instruction]:
        """The values outside that the parameters stand for, in order."""
        return [value for value, _ in self._parameters]

    @property
    def parameters(self) -> list[Instruction]:
        """The parameters, in order."""
        return list(self._parameters.values())

    def parameter(self, value: Instruction, part: Hashable = ()) -> Instruction:
        """The parameter that stands for a value, or, where a value is several parameters, for a part of it."""
        key = value, part
        if key not in self._parameters:
            number = len(self._parameters)
            made = Instruction(f"p{number}.{value.name}", "parameter", value.shape, number=number)
            self._parameters[key] = made
            if part == ():
                self.copies[value] = made
        return self._parameters[key]

    def take(self, i: Instruction) -> Instruction:
        """A copy of an instruction on what stands for its operands, which stands for it from then on."""
        self.copies[i] = self.add(i, [self.copies[o] for o in i.operands])
        return self.copies[i]

    def add(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """A copy of an instruction on other operands."""
        self.body.append(i.copy(list(operands), dict(i.attributes)))
        return self.body[-1]

    def computation(self, name: str, results: Sequence[Instruction], root: str = "outputs") -> Computation:
        """The computation of one result, or of a tuple called `root`; names in it are made unique."""
        result = results[0]
        if len(results) > 1:
            result = Instruction(root, "tuple", tuple_of([r.shape for r in results]), list(results))
            self.body.append(result)
        names = Names(p.name for p in self.parameters)
        for i in self.body:
            i.name = names.fresh(i.name)
        return Computation(name, [*self.parameters, *self.body], result)
