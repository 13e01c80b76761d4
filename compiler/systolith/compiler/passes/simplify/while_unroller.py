"""Short loops of elementwise operations, written out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.while_trip_count import known_trip_count

_FREE = frozenset({"broadcast", "constant", "get-tuple-element", "iota", "parameter", "reshape", "slice", "tuple"})
"""What a kernel does by addresses."""


@dataclass(frozen=True)
class UnrollShortLoops:
    """Write loops of known trip counts out, as calls of their bodies, where those only compute element by element.

    In a loop each iteration loads its state and stores it; written out, all of them are one kernel.  JAX's Threefry is
    such a loop: 5 iterations of 35 operations.

    Attributes:
        most: elementwise operations of all iterations together.
        least: elements of the largest array that an iteration computes; a loop of smaller ones stays.
    """

    most: int = 256
    least: int = 1024

    def run(self, module: Module) -> bool:
        return rewrite(module, partial(self._unrolled, Effects()), ("while",))

    def _unrolled(self, effects: Effects, r: Rewriter, i: Instruction) -> Instruction | None:
        if i.opcode != "while" or effects.of(i):
            return None
        count = known_trip_count(i)
        if count is None or not self._short(i.computation("body"), count):
            return None
        state = i.operands[0]
        for _ in range(count):
            state = r.emit("call", state, shape=i.shape, name=i.name, to_apply=i.computation("body"))
        return state

    def _short(self, body: Computation, count: int) -> bool:
        work = [j for j in body.instructions if j.opcode in ELEMENTWISE]
        large = [j for j in work if j.shape.size >= self.least]
        plain = all(j.opcode in ELEMENTWISE or j.opcode in _FREE for j in body.instructions)
        narrow = all(j.shape.dtype.bits <= 32 for j in large)  # others become many operations each
        return bool(large) and plain and narrow and len(work) * count <= self.most
