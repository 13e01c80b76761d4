"""The verifier of the invariants that passes rely on; an error names instruction, shapes, line and rule.

Source: XLA's `hlo_verifier.cc`, as it is run by default (no mixed precision, layouts not compared).
"""

from __future__ import annotations

from math import prod

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Literal, Module
from systolith.compiler.hlo.opcodes import operand_limits
from systolith.compiler.hlo.rules.module_rules import check_module
from systolith.compiler.hlo.rules.shape_rules import INT64_MAX, Infer, agree, parameter_shapes, signatures_kept
from systolith.compiler.hlo.rules.shapes import rule_of
from systolith.compiler.hlo.shape import MAX_ELEMENTS, MAX_RANK, Shape
from systolith.isa.checked import checked
from systolith.isa.dtypes import DType


@checked
def verify(module: Module, mixed_precision: bool = True) -> None:
    """Check a module.

    Operand counts, definition before use, unique names, numbered parameters, roots, callees that are in the module and
    not recursive, literals of their shape, every declared shape against inference, and the rules of `module_rules.py`.

    Args:
        module: the module.
        mixed_precision: floats of different precision may meet in any operation, as XLA's shape inference and most of
            its tests have it; its compiler's input may not have that.

    Raises:
        HloError: the first rule that is broken.
    """
    known = set(module.computations)
    if module.entry not in known:
        raise HloError(f"module {module.name!r}: the entry computation is not one of its computations")
    check = _Check(module, known, mixed_precision)
    with signatures_kept():
        for computation in module.computations:
            check.computation(computation)
        check_module(module)


# Operations that pass values through, in tuples or otherwise, or that convert: operands may have different float types.
_MIXED = frozenset(
    """call conditional constant convolution dot ragged-dot scaled-dot all-reduce all-reduce-start all-reduce-done
    all-gather all-gather-start all-gather-done async-start async-update async-done collective-permute
    collective-permute-start collective-permute-done copy-start copy-done custom-call domain fusion get-tuple-element
    opt-barrier infeed outfeed parameter recv recv-done reduce-precision reduce-window scan send send-done sort tuple
    while""".split()
)

# Operations whose computation takes the operands' element types exactly, but in mixed precision.
_EXACT_PARAMETERS = frozenset(("reduce", "reduce-window", "map"))

# Operations that keep every value's type, in mixed precision too.
_EXACT = frozenset(
    """bitcast call conditional constant copy-done copy-start custom-call get-tuple-element infeed outfeed opt-barrier
    parameter recv recv-done send send-done tuple while dynamic-update-slice""".split()
)


class _Check:
    """The checks of single instructions, with the facts of the module that they need."""

    def __init__(self, module: Module, known: set[Computation], mixed_precision: bool) -> None:
        self.module = module
        self.known = known
        self.mixed_precision = mixed_precision
        self.rules: dict[str, Infer] = {}
        self.orders: set[tuple[int, ...]] = set()

    def computation(self, computation: Computation) -> None:
        seen: set[Instruction] = set()
        names: set[str] = set()
        for instruction in computation.instructions:
            try:
                self.structure(instruction, seen, names)
                self.shape(instruction)
            except HloError as problem:
                message = f"{problem.message}{_operands_text(instruction)}"
                raise self.module.error(instruction, message) from None
            seen.add(instruction)
            names.add(instruction.name)
        if computation.result not in seen:
            name = computation.result.name
            raise HloError(f"the root {name!r} of {computation.name!r} is not one of its instructions")
        numbers = [p.number for p in computation.parameters]
        if numbers != list(range(len(numbers))):
            shown = ", ".join(map(str, numbers))
            raise HloError(f"parameters of {computation.name!r} are numbered from 0 without gaps, got {shown}")

    def structure(self, i: Instruction, seen: set[Instruction], names: set[str]) -> None:
        if i.opcode not in self.rules:
            self.rules[i.opcode] = rule_of(i.opcode)
        if i.name in names:
            raise HloError("its name is there already")
        fewest, most = operand_limits(i.opcode)
        count = len(i.operands)
        if count < fewest or (most is not None and count > most):
            wanted = fewest if most == fewest else f"{fewest} or more" if most is None else f"{fewest} to {most}"
            raise HloError(f"takes {wanted} operands, got {count}")
        for operand in i.operands:
            if operand not in seen:
                raise HloError(f"operand {operand.name!r} is not defined before it in this computation")
        if i.attributes:
            self.references(i, names)

    def references(self, i: Instruction, names: set[str]) -> None:
        for callee in i.called:
            if callee not in self.known:
                raise HloError(f"computation {callee.name!r} is not in the module")
        if "control-predecessors" in i.attributes:
            for name in i.words("control-predecessors"):
                if name not in names:
                    raise HloError(f"control predecessor {name!r} is not defined before it in this computation")

    def shape(self, i: Instruction) -> None:
        declared = i.shape
        if declared.dims or declared.elements:
            self.form(declared)
        inferred = self.rules[i.opcode](i)
        if inferred is not declared and not agree(
            declared, inferred, any_float=self.mixed_precision and i.opcode not in _EXACT
        ):
            raise HloError(f"is declared {declared}, its operands give {inferred}")
        if not self.mixed_precision:
            _check_precision(i)
        if i.literal is not None and not _fits(i.literal, declared):
            raise HloError("the constant's value does not have its shape")

    def form(self, shape: Shape) -> None:
        """Sizes whose product is a number of bytes, and a layout that names each dimension once."""
        if shape.element is None:
            if len(shape.elements) > MAX_ELEMENTS:
                raise HloError(f"a tuple has at most {MAX_ELEMENTS} elements, this one {len(shape.elements)}")
            for part in shape.elements:
                self.form(part)
            return
        dims, layout = shape.dims, shape.layout
        if len(dims) > MAX_RANK:
            raise HloError(f"an array has at most {MAX_RANK} dimensions, this one {len(dims)}")
        sizes = [n for n in dims if n]  # a size without bound is -1, and leaves the rest
        if prod(sizes) * shape.element.bits >> 3 > INT64_MAX:
            raise HloError(f"{shape} has more than 2**63 - 1 bytes, dimensions of size 0 left out")
        if layout is None or (len(layout.minor_to_major) == len(dims) and layout.minor_to_major in self.orders):
            return
        if sorted(layout.minor_to_major) != list(range(len(dims))):
            raise HloError(f"layout {layout} of {shape} names each dimension once")
        self.orders.add(layout.minor_to_major)


def _check_precision(i: Instruction) -> None:
    """Floats that meet in an operation have one type."""
    if i.opcode not in _MIXED:
        found: DType | None = None
        for operand in i.operands:
            element = operand.shape.element
            if element is None or element is found or not element.is_float:
                continue
            if found is not None:
                raise HloError(f"floats have one precision, got {found} and {element}; convert one of them")
            found = element
    if i.opcode in _EXACT_PARAMETERS:
        computation = i.computation()
        for k, (operand, parameter) in enumerate(zip(i.operands, parameter_shapes(computation), strict=True)):
            if operand.shape.element != parameter.element:
                raise HloError(
                    f"parameter {k} of {computation.name!r} has the element type of {operand.shape}, got {parameter}; "
                    "convert one of them"
                )


def _operands_text(i: Instruction) -> str:
    if not i.operands:
        return ""
    shown = ", ".join(f"{o.name}: {o.shape}" for o in i.operands[:6])
    return f" [operands {shown}{', ...' if len(i.operands) > 6 else ''}]"


def _fits(literal: Literal, shape: Shape) -> bool:
    if isinstance(literal, tuple):
        count = len(literal) == len(shape.elements)
        return count and all(_fits(v, s) for v, s in zip(literal, shape.elements, strict=True))
    return shape.is_array and literal.shape == shape.dims and literal.dtype == shape.dtype.stored
