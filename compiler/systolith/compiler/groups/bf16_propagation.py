"""bf16 propagation: what several products read is stored as they read it.

In one pass the matrix units round an f32 operand to bf16.  A value that is rounded where it is made has the same
products, each to the bit, and takes half of the memory and of the transfers: activations that a product reads, then the
gradient of its weights; gradients that two products read.  Data movement between a value and its products, such as that
of the heads of attention, is of bf16, too.  What is small stays in VMEM in any case, and is left as it is; so is what
lies in memory already, and what one product reads: most such values wait in VMEM, where room for them is taken from
tiles of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

from systolith.compiler.explain import Decision
from systolith.compiler.groups.bf16_reads import Bf16Reads, Use, as_bf16
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.memory.residency import LONG, running
from systolith.compiler.ops.table import Family, family
from systolith.compiler.passes.base import Outcome
from systolith.isa.chip import Chip
from systolith.isa.dtypes import F32

READERS = 2
"""Products that have to read each element of a value.

With one BERT-base at 8 x 128 takes 0.7 % longer, ResNet-50 at batch 32 0.5 %, a prefill of GPT-2 small of 512 positions
0.7 % less, a layer of BERT of 1,024 0.6 %.
"""


@dataclass(frozen=True)
class PropagateBf16:
    """Store large values that several products read in one pass as bf16.

    Attributes:
        chip: the target.
        precision: of products, instead of their own.
        wait: products that have to come between a value, or a product that reads it, and the next that does.
    """

    chip: Chip
    precision: str | None = None
    wait: ClassVar[int] = 0

    def run(self, module: Module) -> Outcome:
        least = self.chip.vmem.bytes // LARGE
        decisions: list[Decision] = []
        for computation in running(module.entry):
            reads = Bf16Reads(computation, self.precision)
            decisions += _Values(reads, least, self.wait).rounded()
        return Outcome(bool(decisions), tuple(decisions))


@dataclass(frozen=True)
class RoundResiduals(PropagateBf16):
    """Store large values that wait for eight products and more, and that several read in one pass, as bf16."""

    wait: ClassVar[int] = LONG


class _Values:
    """The values of a computation, which is changed in place.

    Args:
        reads: what reads them as bf16.
        least: bytes of a large value.
        wait: as for the pass.
    """

    def __init__(self, reads: Bf16Reads, least: int, wait: int) -> None:
        self.reads, self.least, self.wait = reads, least, wait
        self.computation = reads.computation
        products = accumulate(family(i) is Family.CONTRACTION for i in self.computation.instructions)
        self.before = dict(zip(self.computation.instructions, products, strict=True))

    def rounded(self) -> list[Decision]:
        """Round what several products read, and nothing else, or reductions."""
        found = [i for i in self.computation.instructions if self._is_candidate(i)]
        return [self._round(i, uses) for i in found if (uses := self._narrow_uses(i))]

    def _is_candidate(self, i: Instruction) -> bool:
        """Whether it is a large value that is computed, and not moved."""
        if not i.shape.is_array or i.shape.dtype is not F32 or i.shape.bytes < self.least:
            return False
        return family(i) in (Family.ELEMENTWISE, Family.CONTRACTION)

    def _narrow_uses(self, i: Instruction) -> list[Use]:
        """The uses that are to be of a rounded value; none: it stays as it is."""
        uses = self.reads.uses(i)
        found = [use for use in uses if self.reads.rounds(use)]
        others = {u for u, _ in uses} - {u for u, _ in found}
        only = i is not self.computation.result and all(family(u) is Family.REDUCTION for u in others)
        return found if only and self.reads.count(found) >= READERS and self._waits(i, found) else []

    def _waits(self, i: Instruction, uses: list[Use]) -> bool:
        """Whether many products come between two that read a value, or before the first."""
        at = sorted(self.before[user] for user in self.reads.reached(uses) if user not in self.reads.narrow)
        return any(later - earlier >= self.wait for earlier, later in pairwise([self.before[i], *at]))

    def _round(self, i: Instruction, uses: list[Use]) -> Decision:
        made = as_bf16(i, self.computation.fresh_name(f"{i.name}.bf16"))
        self.computation.instructions.insert(self.computation.instructions.index(i) + 1, made)
        self.reads.narrowed(uses, made)
        names = ", ".join(dict.fromkeys(user.name for user, _ in uses))
        return Decision("bf16", "", f"{i.name} as bf16 for {names}", "they round it", {"bytes": made.shape.bytes})
