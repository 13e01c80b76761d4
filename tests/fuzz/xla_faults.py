"""Where XLA's CPU backend gives other values than the operations' semantics, or none: not asked there."""

from __future__ import annotations

from collections.abc import Callable

from systolith.compiler.hlo.ir import Instruction, Module

SUMS = ("reduce", "reduce-window", "dot", "convolution")


def known_fault(module: Module) -> str | None:
    """The first reason not to ask XLA about a module; None: there is none."""
    for i in module.instructions():
        for reason, applies in FAULTS.items():
            if applies(i):
                return f"{i.opcode} {i.name}: {reason}"
    return None


def _narrow(i: Instruction) -> bool:
    return any(leaf.is_array and leaf.dtype.is_float and leaf.dtype.bits < 32 for leaf in i.shape.leaves())


def _keeps_size(i: Instruction) -> bool:
    return i.opcode == "reduce" and i.operands[0].shape.size == next(i.shape.leaves()).size


def _of_parts(i: Instruction) -> bool:
    """A reduction of a concatenation, perhaps reshaped: XLA reduces the parts one by one."""
    if i.opcode != "reduce":
        return False
    source = i.operands[0]
    while source.opcode in ("reshape", "bitcast", "copy"):
        source = source.operands[0]
    return source.opcode == "concatenate"


def _again(i: Instruction) -> bool:
    """A reduction of a reduction from the same initial value, other than 0: XLA makes one of both."""
    if i.opcode != "reduce" or i.operands[0].opcode != "reduce":
        return False
    inner, outer = (r.operands[-1].literal for r in (i.operands[0], i))
    return inner is not None and outer is not None and bool(inner == outer != 0)


def _one_padded(i: Instruction) -> bool:
    """A window of one element that leaves some out, or adds some."""
    return (
        i.opcode == "reduce-window"
        and all(w.size == 1 for w in i.window.dims)
        and any(w.low or w.high for w in i.window.dims)
    )


def _strides(i: Instruction) -> bool:
    """A loop whose first state counts by more than one."""
    if i.opcode != "while":
        return False
    step = i.computation("body").result.operands[0]
    return step.opcode == "add" and any(o.opcode == "constant" and o.literal != 1 for o in step.operands)


FAULTS: dict[str, Callable[[Instruction], bool]] = {
    "it rounds each step of a sum in a narrow type": lambda i: i.opcode in SUMS and _narrow(i),
    "it takes a reduction of dimensions of size 1 for a reshape, without the initial value": _keeps_size,
    "it reduces the parts of a concatenation one by one, those of size 1 without the initial value": _of_parts,
    "it makes one reduction of two from the same initial value, which then counts once": _again,
    "it takes windows of one element for the array, whatever the padding, and crashes": _one_padded,
    "it takes the limit of a loop for the last value of a counter that steps past it": _strides,
    "layouts of a module's text are assigned anew before it runs": lambda i: i.opcode == "bitcast",
}
"""Reasons, and the instructions that they apply to."""
