"""New computations for a module, with names of their own."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Names
from systolith.isa.dtypes import DType


class Callees:
    """Makes computations; `place` puts them into the module, before all that may call them.

    Attributes:
        name: makes a name that no computation has, from a stem.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.name = Names(c.name for c in module.computations).fresh
        self._adders: dict[DType, Computation] = {}
        self._made: list[Computation] = []

    def adder(self, dtype: DType) -> Computation:
        """A computation that adds two scalars; one a type."""
        if dtype not in self._adders:
            a, b = (Instruction(name, "parameter", array(dtype), number=k) for k, name in enumerate("ab"))
            total = Instruction("sum", "add", array(dtype), [a, b])
            self._adders[dtype] = made = Computation(self.name(f"add.{dtype}"), [a, b, total], total)
            self._made.append(made)
        return self._adders[dtype]

    def place(self) -> None:
        """Put what was made to the front of the module."""
        self._module.computations[:0] = self._made
        self._made = []
