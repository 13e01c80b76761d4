"""Control dependencies: orders that no operand states."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Module


@dataclass(frozen=True)
class RemoveControlDependencies:
    """Drop `control-predecessors`.

    The other passes let instructions that have or give one be, so it comes first where only values count: XLA orders
    copies so that buffers can be shared, and this compiler plans its buffers itself.
    """

    def run(self, module: Module) -> bool:
        found = [i.attributes.pop("control-predecessors", None) for i in module.instructions()]
        return any(before is not None for before in found)
