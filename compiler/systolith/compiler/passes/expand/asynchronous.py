"""Asynchronous calls and copies, and what orders operations by tokens, as the operations themselves.

One core runs a program in order, so that a start may as well do all of it, and a done take the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class RunInOrder:
    """Replace `async-start` by its call, `copy-start` by a copy, and their ends, `add-dependency` and `domain`."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _RULES[i.opcode](r, i) if i.opcode in _RULES else None)


def started(r: Rewriter, i: Instruction, *parts: Instruction) -> Instruction | None:
    """The tuple that a start gives: `parts`, and contexts, which nothing looks into."""
    contexts = i.shape.elements[len(parts) :]
    if any(not s.is_array for s in contexts):
        return None
    return r.emit("tuple", *parts, *(r.full(0, s) for s in contexts), shape=i.shape)


def _async_start(r: Rewriter, i: Instruction) -> Instruction | None:
    operands = r.emit("tuple", *i.operands, shape=i.shape.elements[0])
    made = r.emit("call", *i.operands, shape=i.shape.elements[1], name=i.name, to_apply=i.computation("calls"))
    return started(r, i, operands, made)


def _copy_start(r: Rewriter, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    copy = r.emit("copy", x, shape=i.shape.elements[0])
    return started(r, i, copy, x)


def _element(index: int) -> Callable[[Rewriter, Instruction], Instruction | None]:
    return lambda r, i: r.emit("get-tuple-element", i.operands[0], shape=i.shape, index=index)


def _operand(r: Rewriter, i: Instruction) -> Instruction | None:
    return i.operands[0]


_RULES: dict[str, Callable[[Rewriter, Instruction], Instruction | None]] = {
    "async-start": _async_start,
    "async-update": _operand,
    "async-done": _element(1),
    "copy-start": _copy_start,
    "copy-done": _element(0),
    "add-dependency": _operand,
    "domain": _operand,
}
"""By opcode; starts and ends of collectives are in `passes/expand/one_device.py`."""
