"""A call graph that is a tree: each caller of a computation gets a copy of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone_computation
from systolith.compiler.hlo.ir import Attribute, Computation, Module
from systolith.compiler.passes.callees import Callees

SEQUENTIAL = frozenset({"call", "while", "conditional", "async-start"})
"""Opcodes whose callees run as the program does, not for each element."""

MOST_COMPUTATIONS = 100_000
"""Computations that a call graph is flattened to; calls that double at each level ask for more."""


@dataclass(frozen=True)
class FlattenCallGraph:
    """Copy the callees of `call`, `while`, `conditional` and `async-start` that something else calls too."""

    def run(self, module: Module) -> bool:
        copies = _Copies(Callees(module))
        order = [module.entry]
        for computation in order:
            for i in computation.instructions:
                if i.opcode in SEQUENTIAL and i.called:
                    i.attributes = {key: copies.own(value) for key, value in i.attributes.items()}
                    order.extend(i.called)
            if len(order) > MOST_COMPUTATIONS:
                raise CompileError(
                    f"the call graph of {module.name!r} flattens to more than {MOST_COMPUTATIONS} computations: "
                    "call less often"
                )
        if copies.made:
            module.computations = module.post_order()
        return copies.made


@dataclass
class _Copies:
    """Which computations have a caller already."""

    callees: Callees
    called: set[Computation] = field(default_factory=set)
    made: bool = False

    def own(self, value: Attribute) -> Attribute:
        """The attribute with computations that nothing else calls."""
        if isinstance(value, tuple) and any(isinstance(item, Computation) for item in value):
            return tuple(self._own(item) for item in value if isinstance(item, Computation))
        return self._own(value) if isinstance(value, Computation) else value

    def _own(self, computation: Computation) -> Computation:
        if computation not in self.called:
            self.called.add(computation)
            return computation
        self.made = True
        return clone_computation(computation, self.callees.name(f"{computation.name}.clone"))
