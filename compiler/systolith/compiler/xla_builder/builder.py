"""The builder: operations of all themes under all of their names, and values that are known when it builds."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import Layout
from systolith.compiler.hlo.values.evaluator import evaluate_computation
from systolith.compiler.xla_builder.asynchronous import Asynchronous
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.literal import Literal
from systolith.compiler.xla_builder.names import cpp_names
from systolith.compiler.xla_builder.op import XlaOp

_NOT_CONSTANT = frozenset(
    """parameter infeed outfeed send send-done recv recv-done all-reduce all-gather all-to-all collective-permute
    collective-broadcast reduce-scatter ragged-all-to-all replica-id partition-id rng-get-and-update-state custom-call
    """.split()
)


class XlaBuilder(Asynchronous):
    """Builds one computation.

    Methods have the names of both generations of XLA's builder: `conv_with_general_padding` is also
    `ConvWithGeneralPadding`.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def is_constant(self, operand: XlaOp) -> bool:
        """Whether a value depends on no parameter, nor on other devices, the host or code outside of the module.

        Raises:
            HloError: the first error, if the value is invalid.
        """
        self.get_shape(operand)
        return all(_is_known(i) for i in _needed(self._instruction(operand)))

    def build_constant_sub_graph(self, root_op: XlaOp) -> XlaComputation:
        """A computation of a constant value.

        Raises:
            HloError: the value is none; names the instruction that it depends on.
        """
        self.get_shape(root_op)
        result = self._instruction(root_op)
        needed = _needed(result)
        for instruction in needed:
            if not _is_known(instruction):
                raise HloError(
                    f"{result.name} is no constant: it depends on {instruction.opcode} {instruction.name!r} "
                    f"({instruction.shape})"
                )
        return XlaComputation(f"{self.name}-constant", Computation(f"{self.name}-constant", needed, result))

    def compute_constant(self, operand: XlaOp, output_layout: Layout | None = None) -> Literal:
        """The value of a constant; random numbers count as constants.

        Args:
            operand: a value of this builder, before or after `build()`.
            output_layout: layout of the literal; the value's own if None.

        Raises:
            HloError: the value depends on a parameter or the like, or cannot be evaluated.
        """
        entry = self.build_constant_sub_graph(operand).entry
        literal = Literal.of_shape(evaluate_computation(entry, []), entry.result.shape)
        return literal.relayout(output_layout) if output_layout else literal


def _needed(root: Instruction) -> list[Instruction]:
    """All instructions on which one depends, operands first."""
    done: dict[Instruction, None] = {}
    stack = [(root, False)]
    while stack:
        instruction, ready = stack.pop()
        if instruction in done:
            continue
        if ready:
            done[instruction] = None
            continue
        stack.append((instruction, True))
        stack.extend((operand, False) for operand in reversed(instruction.operands) if operand not in done)
    return list(done)


def _is_known(instruction: Instruction) -> bool:
    """Whether an instruction's value follows from its operands'; its own computations' parameters do."""
    if instruction.opcode in _NOT_CONSTANT:
        return False
    pending = instruction.called
    while pending:
        computation = pending.pop()
        for inner in computation.instructions:
            if inner.opcode in _NOT_CONSTANT and inner.opcode != "parameter":
                return False
            pending.extend(inner.called)
    return True


_CONV_DIMENSIONS = {
    "kConvBatchDimension": 0,
    "kConvFeatureDimension": 1,
    "kConvFirstSpatialDimension": 2,
    "kConvSecondSpatialDimension": 3,
    "kConvKernelOutputDimension": 0,
    "kConvKernelInputDimension": 1,
    "kConvKernelFirstSpatialDimension": 2,
    "kConvKernelSecondSpatialDimension": 3,
}
"""Default dimension numbers of a convolution, under the names that C++ gives them."""


def _add_cpp_names() -> None:
    for name in dir(XlaBuilder):
        if not name.startswith("_"):
            for spelled in cpp_names(name):
                setattr(XlaBuilder, spelled, getattr_static(XlaBuilder, name))
    for name, number in _CONV_DIMENSIONS.items():
        setattr(XlaBuilder, name, number)


_add_cpp_names()
