"""A builder's computation, which can run as a module, or be a part of other computations."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Literal, Module, ProgramShape
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.xla_builder.names import Names, clean_name

_TRACE = logging.getLogger("systolith.trace")


class XlaComputation:
    """A built computation.

    Its instructions do not change any more; computations that use it refer to them, so that one that is used often is
    in the module once.

    Attributes:
        name: its name, and that of its module.
        entry: its instructions.
        traces: tag and instruction of each value to trace.
    """

    def __init__(
        self,
        name: str,
        entry: Computation,
        attributes: dict[str, Attribute] | None = None,
        traces: tuple[tuple[str, Instruction], ...] = (),
    ) -> None:
        self.name = name
        self.entry = entry
        self.traces = traces
        self._attributes = attributes or {}
        self._module: Module | None = None

    @classmethod
    def of(cls, computation: XlaComputation | Module) -> XlaComputation:
        """A computation from itself or from a module.

        Raises:
            HloError: it is neither.
        """
        if isinstance(computation, Module):
            return cls(computation.name, computation.entry)
        if isinstance(computation, XlaComputation):
            return computation
        raise HloError(f"a computation (what build() gives) is needed, got {type(computation).__name__}")

    def __repr__(self) -> str:
        return f"<XlaComputation {self.name}, {len(self.entry.instructions)} instructions>"

    def __bool__(self) -> bool:
        """Whether it is valid, and not the result of `build_and_note_error` for an error."""
        return bool(self.entry.instructions)

    @property
    def program_shape(self) -> ProgramShape:
        """Shapes of the parameters and of the result."""
        return ProgramShape(tuple(p.shape for p in self.entry.parameters), self.entry.result.shape)

    def module(self) -> Module:
        """The verified module of which this is the entry; a new one each time.

        Raises:
            HloError: a rule of HLO is broken, or the computation is that of a builder with an error.
        """
        return clone(self._checked())

    def check(self) -> None:
        """Nothing, if the computation keeps the rules of HLO.

        Raises:
            HloError: as `module()`.
        """
        self._checked()

    def _checked(self) -> Module:
        if self._module is None:
            self._module = self._make_module()
        return self._module

    def _make_module(self) -> Module:
        if not self:
            raise HloError(f"computation {self.name!r} could not be built; its builder's parent has the error")
        shared = Module(clean_name(self.name), list(_called(self.entry)), self.entry)
        module = clone(shared)
        names = Names()
        module.entry.name = names.unique(self.entry.name)
        for computation in module.computations:
            if computation is not module.entry:
                computation.name = names.unique(computation.name)
        module.attributes = {"entry_computation_layout": self.program_shape, **self._attributes}
        verify(module)
        return module

    def hlo_text(self) -> str:
        """The module as HLO text."""
        return print_hlo(self.module())

    def evaluate(self, *arrays: np.ndarray, max_iterations: int | None = None) -> list[np.ndarray]:
        """Results of the reference evaluator; traced values are logged (`systolith.trace`, level INFO).

        Args:
            arrays, max_iterations: as `systolith.api.evaluate` takes them.

        Raises:
            HloError: arguments do not fit, an operation cannot be evaluated, or loops take too many iterations.
        """
        tags = {instruction.name: tag for tag, instruction in self.traces}

        def log(instruction: Instruction, value: Literal) -> None:
            if instruction.name in tags:
                _TRACE.info("%s = %s", tags[instruction.name], value)

        return evaluate(self.module(), *arrays, observe=log if tags else None, max_iterations=max_iterations)


def _called(entry: Computation) -> Iterator[Computation]:
    """Every computation that `entry` needs, callees first, itself last."""
    done: set[Computation] = set()
    stack = [(entry, False)]
    while stack:
        computation, ready = stack.pop()
        if computation in done:
            continue
        if ready:
            done.add(computation)
            yield computation
            continue
        stack.append((computation, True))
        callees = [c for i in computation.instructions if i.attributes for c in i.called]
        stack.extend((c, False) for c in reversed(callees) if c not in done)
