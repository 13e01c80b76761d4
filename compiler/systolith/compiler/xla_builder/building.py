"""From a builder's operations to a computation."""

from __future__ import annotations

from systolith.compiler.hlo.attributes import Alias
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, ProgramShape
from systolith.compiler.xla_builder.arguments import Ints, integer, ints
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.core import Core, PoisonedError
from systolith.compiler.xla_builder.names import clean_name
from systolith.compiler.xla_builder.op import XlaOp


class Building(Core):
    """Results, building, and a module's attributes beside its computations."""

    def set_return_value(self, operand: XlaOp) -> None:
        """The result of the computation, in place of the last operation.

        Raises:
            HloError: the value is another builder's.
        """
        if operand.instruction is not None or self.first_error is None:
            self._root = self._instruction(operand)

    def trace(self, tag: str, operand: XlaOp) -> None:
        """Ask for a value to be logged: by `XlaComputation.evaluate`, as HLO has no such operation."""
        try:
            instruction = self._instruction(operand)
        except PoisonedError:
            return
        self._traces.append((tag, instruction))

    def set_up_alias(self, output_index: Ints, param_number: int, param_index: Ints, kind: str = "may-alias") -> None:
        """A part of the result may (`may-alias`) or must (`must-alias`) take the memory of a part of a parameter."""
        output, number = ints(output_index, "output_index"), integer(param_number, "param_number")
        self._aliases.append(Alias(output, number, ints(param_index, "param_index"), kind))

    def add_buffer_donor(self, param_number: int, param_index: Ints) -> None:
        """The result may take the memory of a part of a parameter, wherever it fits."""
        self._donors.append((integer(param_number, "param_number"), ints(param_index, "param_index")))

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """Shapes of the parameters so far and of the result (the last operation, unless a root is given or set).

        Raises:
            HloError: the first error, or there is no operation yet.
        """
        return XlaComputation(self.name, self._computation(root)).program_shape

    def build(self, root: XlaOp | bool | None = None, remove_dynamic_dimensions: bool = False) -> XlaComputation:
        """The computation; its result is `root`, else the value that was set, else the last operation.

        Args:
            root: the result.
            remove_dynamic_dimensions: shapes have only their bounds; refused where a dimension is dynamic.

        Raises:
            HloError: the first error, with the line that caused it; or the computation breaks a rule of HLO.
        """
        if isinstance(root, bool):  # Build(remove_dynamic_dimensions)
            return self.build(None, root)
        computation = self._computation(root)
        if remove_dynamic_dimensions and any(i.shape.is_dynamic for i in computation.instructions):
            raise HloError("build() does not remove dynamic sizes; call remove_dynamic_dimension where they arise")
        attributes: dict[str, Attribute] = {}
        if self._aliases:
            attributes["input_output_alias"] = tuple(self._aliases)
        if self._donors:
            attributes["buffer_donor"] = tuple(self._donors)
        built = XlaComputation(self.name, computation, attributes, tuple(self._traces))
        built.check()
        return built

    def build_and_note_error(self) -> XlaComputation:
        """The computation, for the parent builder only; an error is the parent's, which then fails to build.

        Raises:
            HloError: this builder is no sub-builder, or is to die immediately.
        """
        if self.parent is None:
            raise HloError(f"{self.name!r} is no sub-builder: build() raises the error itself")
        try:
            return self.build()
        except HloError as problem:
            self.parent.report_error(problem)
            return XlaComputation(self.name, Computation(self.name))

    def _computation(self, root: XlaOp | None) -> Computation:
        if self.first_error is not None:
            raise self.first_error
        if root is not None:
            result = self._instruction(root)
        elif self._root is not None:
            result = self._root
        elif self._instructions:
            result = self._instructions[-1]
        else:
            raise HloError(f"computation {self.name!r} has no operations")
        return Computation(clean_name(self.name), list(self._instructions), result)
