"""The verifier: what passes rely on holds, or an error names instruction, shapes, line and rule."""

from __future__ import annotations

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Literal, Module, ProgramShape
from systolith.compiler.hlo.opcodes import is_known, operand_limits, suggestion
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.shapes import infer


def verify(module: Module) -> None:
    """Check a module.

    Operand counts, definition before use, unique names, numbered parameters, roots, callees that are in the module and
    not recursive, literals of their shape, and every declared shape against inference.

    Raises:
        HloError: the first rule that is broken.
    """
    known = set(module.computations)
    if module.entry not in known:
        raise HloError(f"module {module.name!r}: the entry computation is not one of its computations")
    _check_recursion(module)
    for computation in module.computations:
        _verify_computation(module, computation, known)
    _check_entry_layout(module)


def _verify_computation(module: Module, computation: Computation, known: set[Computation]) -> None:
    seen: set[Instruction] = set()
    names: set[str] = set()
    for instruction in computation.instructions:
        try:
            _check_structure(instruction, seen, names, known)
            inferred = infer(instruction)
            if not inferred.same(instruction.shape):
                raise HloError(f"is declared {instruction.shape}, its operands give {inferred}")
        except HloError as problem:
            message = f"{problem.message}{_operands_text(instruction)}"
            raise module.error(instruction, message) from None
        seen.add(instruction)
        names.add(instruction.name)
    if computation.result not in seen:
        raise HloError(f"the root {computation.result.name!r} of {computation.name!r} is not one of its instructions")
    numbers = [p.number for p in computation.parameters]
    if numbers != list(range(len(numbers))):
        shown = ", ".join(map(str, numbers))
        raise HloError(f"parameters of {computation.name!r} are numbered from 0 without gaps, got {shown}")


def _operands_text(instruction: Instruction) -> str:
    if not instruction.operands:
        return ""
    shown = ", ".join(f"{o.name}: {o.shape}" for o in instruction.operands[:6])
    return f" [operands {shown}{', ...' if len(instruction.operands) > 6 else ''}]"


def _check_structure(
    instruction: Instruction, seen: set[Instruction], names: set[str], known: set[Computation]
) -> None:
    if not is_known(instruction.opcode):
        raise HloError(f"XLA has no operation {instruction.opcode!r}{suggestion(instruction.opcode)}")
    if instruction.name in names:
        raise HloError("its name is there already")
    fewest, most = operand_limits(instruction.opcode)
    if len(instruction.operands) < fewest or (most is not None and len(instruction.operands) > most):
        count = len(instruction.operands)
        raise HloError(f"takes {fewest}{'' if most == fewest else ' or more'} operands, got {count}")
    for operand in instruction.operands:
        if operand not in seen:
            raise HloError(f"operand {operand.name!r} is not defined before it in this computation")
    for callee in instruction.called:
        if callee not in known:
            raise HloError(f"computation {callee.name!r} is not in the module")
    if instruction.literal is not None and not _fits(instruction.literal, instruction.shape):
        raise HloError("the constant's value does not have its shape")


def _fits(literal: Literal, shape: Shape) -> bool:
    if isinstance(literal, tuple):
        count = len(literal) == len(shape.elements)
        return count and all(_fits(v, s) for v, s in zip(literal, shape.elements, strict=True))
    return shape.is_array and literal.shape == shape.dims and literal.dtype == shape.dtype.stored


def _check_recursion(module: Module) -> None:
    """No computation calls itself, directly or through others."""
    done: set[Computation] = set()
    active: set[Computation] = set()
    for start in module.computations:
        stack = [(start, False)]
        while stack:
            computation, leaving = stack.pop()
            if leaving:
                active.discard(computation)
                done.add(computation)
                continue
            if computation in done:
                continue
            if computation in active:
                raise HloError(f"computation {computation.name!r} calls itself")
            active.add(computation)
            stack.append((computation, True))
            for callee in {c for i in computation.instructions for c in i.called}:
                if callee in active:
                    raise HloError(f"computation {callee.name!r} calls itself, through {computation.name!r}")
                stack.append((callee, False))


def _check_entry_layout(module: Module) -> None:
    """`entry_computation_layout`, where it is given, states the entry's parameters and result."""
    stated = module.attributes.get("entry_computation_layout")
    if not isinstance(stated, ProgramShape):
        return
    parameters = [p.shape for p in module.entry.parameters]
    result = module.entry.result.shape
    if len(parameters) != len(stated.parameters):
        raise HloError(
            f"entry_computation_layout states {len(stated.parameters)} parameters, "
            f"{module.entry.name!r} has {len(parameters)}"
        )
    for index, (actual, wanted) in enumerate(zip(parameters, stated.parameters, strict=True)):
        if not actual.same(wanted):
            raise HloError(f"entry_computation_layout states {wanted} for parameter {index}, which has {actual}")
    if not result.same(stated.result):
        raise HloError(f"entry_computation_layout states result {stated.result}, the root has {result}")
