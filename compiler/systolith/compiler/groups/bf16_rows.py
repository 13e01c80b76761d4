"""Rows that a loop leaves to products of another one are bf16, as these read them: half of the memory and transfers.

The backward pass of layers in a loop (`jax.lax.scan` under `jax.grad`) reads activations that the forward pass leaves
it for the gradients of weights: the products round them in any case (`bf16_reads.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from systolith.compiler.explain import Decision
from systolith.compiler.groups.bf16_reads import Bf16Reads, as_bf16
from systolith.compiler.groups.loop_pairs import Pair, Place, pairs_of, tidy
from systolith.compiler.groups.loop_rows import row_of
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip
from systolith.isa.dtypes import BF16, F32


@dataclass(frozen=True)
class Bf16Rows:
    """Leave large rows that only products in one pass read as bf16.

    Attributes:
        chip: the target.
        precision: of products, instead of their own.
    """

    chip: Chip
    precision: str | None = None

    def run(self, module: Module) -> Outcome:
        names = Names(i.name for i in module.instructions())
        decisions = [d for pair in pairs_of(module, names) for d in self._narrowed(pair)]
        if decisions:
            tidy(module)
        return Outcome(bool(decisions), tuple(decisions))

    def _narrowed(self, pair: Pair) -> Iterator[Decision]:
        """Leave rows of a pair of loops as bf16."""
        if not pair.taken:
            return
        inside, outside = (Bf16Reads(c, self.precision) for c in (pair.body, pair.outer))
        for number, reads in pair.reads().items():
            value = row_of(pair.rows[number])
            by = [(outside if read.opcode == "slice" else inside, read) for read in reads]
            large = value.shape.dtype is F32 and value.shape.bytes >= self.chip.vmem.bytes // LARGE
            if large and reads and all(each.alone(read) for each, read in by):
                self._narrow(pair, number, value, by)
                what = f"rows of {value.name} are bf16"
                yield Decision("bf16", pair.writer.name, what, f"products of {pair.reader.name} round them")

    def _narrow(self, pair: Pair, number: int, value: Instruction, reads: list[tuple[Bf16Reads, Instruction]]) -> None:
        """Leave the rows of a value as bf16, and let what reads it, in each computation, have that."""
        rows = pair.rows[number]
        made = as_bf16(value, pair.names.fresh(f"{value.name}.bf16"))
        row = Instruction(pair.names.fresh(f"{value.name}.row"), "reshape", array(BF16, rows.dims[1:]), [made])
        at = pair.made.instructions.index(value) + 1
        pair.made.instructions[at:at] = [made, row]
        left = pair.leave(row, rows)
        for each, read in reads:
            place = Place(pair, read)
            place.replace(place.row(place.left(left), row.dims))
            read.shape = replace(read.shape, element=BF16)
            each.narrowed(each.uses(read), read)
