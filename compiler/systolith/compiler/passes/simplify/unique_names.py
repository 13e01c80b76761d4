"""Names that are unique in a module: groups are named after instructions, in reports, probes and `explain`."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Module
from systolith.compiler.passes.rewrite import Names


@dataclass(frozen=True)
class UniqueNames:
    """Give every instruction of a module a name of its own.  The entry keeps its names."""

    def run(self, module: Module) -> bool:
        taken, changed = Names([]), False
        for computation in (module.entry, *(c for c in module.computations if c is not module.entry)):
            for i in computation.instructions:
                name = taken.fresh(i.name)
                changed |= name != i.name
                i.name = name
        return changed
