"""New computations for a module, with names of their own."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Names, Rewriter
from systolith.isa.dtypes import DType


class Callees:
    """Makes computations; `place` puts them into the module, before all that may call them.

    Attributes:
        name: makes a name that no computation has, from a stem.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.name = Names(c.name for c in module.computations).fresh
        self._reducers: dict[tuple[str, DType], Computation] = {}
        self._made: list[Computation] = []

    def reducer(self, opcode: str, dtype: DType) -> Computation:
        """A computation that is one operation on two scalars; one for each operation and type."""
        if (opcode, dtype) not in self._reducers:
            a, b = (Instruction(name, "parameter", array(dtype), number=k) for k, name in enumerate("ab"))
            total = Instruction("result", opcode, array(dtype), [a, b])
            name = self.name(f"{opcode}.{dtype}")
            self._reducers[opcode, dtype] = self.add(Computation(name, [a, b, total], total))
        return self._reducers[opcode, dtype]

    def reduced(self, r: Rewriter, opcode: str, x: Instruction, init: int, dims: tuple[int, ...]) -> Instruction:
        """An array combined over some dimensions by one operation, from a value on."""
        kept = array(x.shape.dtype, [n for d, n in enumerate(x.dims) if d not in dims])
        start, reducer = r.constant(init, x.shape.dtype), self.reducer(opcode, x.shape.dtype)
        return r.emit("reduce", x, start, shape=kept, dimensions=dims, to_apply=reducer)

    def add(self, made: Computation) -> Computation:
        """Have a computation placed, too."""
        self._made.append(made)
        return made

    def place(self) -> None:
        """Put what was made to the front of the module; what calls others of the module after them."""
        computations, front = self._module.computations, 0
        for made in self._made:
            called = [c for i in made.instructions for c in i.called]
            computations.insert(max((computations.index(c) + 1 for c in called), default=front), made)
            front += not called
        self._made = []
