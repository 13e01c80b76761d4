"""Shardings of a module that one device runs alone."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.values.custom_calls import is_marker
from systolith.compiler.passes.rewrite import Rewriter, rewrite, stands_for


@dataclass(frozen=True)
class RemoveShardings:
    """Drop `sharding`, and replace custom calls that give their operands as they are by these."""

    def run(self, module: Module) -> bool:
        dropped = [i.attributes.pop("sharding", None) for i in module.instructions()]
        return rewrite(module, _operands) or any(dropped)


def _operands(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "custom-call":
        return None
    if _is_unpinned(i):
        return i.operands[0].operands[0]
    return handed_on(r, i) if is_marker(i) else None


def handed_on(r: Rewriter, i: Instruction) -> Instruction:
    """The operands of an instruction as its result: one as it is, others as a tuple."""
    if len(i.operands) == 1 and i.operands[0].shape.same(i.shape):
        (x,) = i.operands
        return x if stands_for(i, x) else r.emit("copy", x, shape=i.shape)
    return r.emit("tuple", *(i.operands if i.shape.elements else ()), shape=i.shape)


def _is_unpinned(i: Instruction) -> bool:
    """Whether it is the value that was pinned: nothing writes into the memory in between."""
    targets = [x.attributes.get("custom_call_target") for x in (i, *i.operands[:1])]
    return targets == ["Unpin", "Pin"]
