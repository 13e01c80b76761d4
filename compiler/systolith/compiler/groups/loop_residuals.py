"""Rows that one loop leaves to another, and that other rows give: they are computed again there, not stored.

The backward pass of layers in a loop reads what each layer of the forward pass has left it (`jax.lax.scan` under
`jax.grad`): of a GELU the sum, its cube, the tangent and more, each as large as the product's result that all of them
are elementwise in.  As for layers that are written out (`recomputation.py`), to compute them again takes less than to
store and load them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from systolith.compiler.explain import Decision
from systolith.compiler.groups.cones import cone_again, moves_no_more
from systolith.compiler.groups.loop_pairs import Pair, Place, index_of, pairs_of, tidy
from systolith.compiler.groups.loop_rows import row_of
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.while_trip_count import element, keeps
from systolith.isa.chip import Chip


@dataclass(frozen=True)
class RecomputeRows:
    """Compute rows that loops leave to others again, from other rows, where they are read.

    Attributes:
        chip: rows of a part of its VMEM and more are.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        names = Names(i.name for i in module.instructions())
        decisions: list[Decision] = []
        for pair in pairs_of(module, names):
            for name, size in _Again(pair, self.chip).rows():
                what = f"rows of {name} are computed again in {pair.reader.name}"
                decisions.append(Decision("recompute", pair.writer.name, what, "", {"bytes of a row": size}))
        if decisions:
            tidy(module)
        return Outcome(bool(decisions), tuple(decisions))


class _Again:
    """Rows of a pair of loops that are computed again.

    Args:
        pair: the loops.
        chip: the target.
    """

    def __init__(self, pair: Pair, chip: Chip) -> None:
        self.pair, self.chip = pair, chip

    def rows(self) -> Iterator[tuple[str, int]]:
        """Compute rows again; gives their names and bytes, in the order in which they are made."""
        pair, least = self.pair, self.chip.vmem.bytes // LARGE
        if not pair.taken:
            return
        reads = pair.reads()
        place = {i: n for n, i in enumerate(pair.made.instructions)}
        values = {number: row_of(pair.rows[number]) for number in reads}
        stored: dict[Instruction, int] = {}
        for number, value in sorted(values.items(), key=lambda each: place[each[1]]):
            update = pair.rows[number]
            alike = {v: n for v, n in stored.items() if index_of(pair.rows[n]) is index_of(update)}
            large = value.shape.bytes >= least
            outside = any(read.opcode == "slice" for read in reads[number])
            given = alike.__contains__ if outside else self._is_given(alike, update)
            cone = cone_again(value, given, self.chip) if large else None
            if cone is not None and moves_no_more(value, alike.keys() & cone):
                cone = None
            if cone is None and large and (turned := _turned(value)):
                cone = turned
                stored[cone[0]] = alike[cone[0]] = pair.leave(cone[0], update)
            if cone is None:
                stored[value] = number
                continue
            for read in reads[number]:
                self._compute(read, cone, alike)
            yield value.name, value.shape.bytes

    def _is_given(self, stored: Mapping[Instruction, int], update: Instruction) -> Callable[[Instruction], bool]:
        """Whether the reader can have a value of the writer's body: a row, what stays the same, a row of that."""

        def stays(i: Instruction) -> bool:
            number = element(i, self.pair.made)
            return number is not None and keeps(self.pair.writer, number)

        def given(i: Instruction) -> bool:
            if i in stored or stays(i):
                return True
            if i.opcode != "dynamic-slice" or not stays(i.operands[0]) or len(i.operands) != 1 + len(i.dims):
                return False
            rows = update.dims[0], *i.operands[0].dims[1:]  # as many, or indices that are out of bounds mean others
            return i.operands[1] is index_of(update) and i.operands[0].dims == rows and i.dims == (1, *rows[1:])

        return given

    def _compute(self, read: Instruction, cone: list[Instruction], stored: Mapping[Instruction, int]) -> None:
        """Let a slice, of the reader's body or after the writer, be what the operations of a cone make of others."""
        at = Place(self.pair, read)
        values: dict[Instruction, Instruction] = {}
        for i in cone:
            if i in stored:
                values[i] = at.row(at.left(stored[i]), i.dims)
            elif i.opcode == "dynamic-slice":
                values[i] = at.row(at.kept(i.operands[0]), i.dims)
            elif element(i, self.pair.made) is not None:
                values[i] = at.kept(i)
            else:
                values[i] = i.copy([values[o] for o in i.operands], dict(i.attributes))
                values[i].name = self.pair.names.fresh(f"{i.name}.again")
                at.out.append(values[i])
        at.replace(values[cone[-1]])


def _turned(value: Instruction) -> list[Instruction]:
    """A product, or a slice, of which a value is the transpose, and how; nothing: it is another value.

    q, k and v of attention are left transposed. Products store them as they are made, and each block takes its heads of
    that.
    """
    chain = [value]
    while chain[0].opcode in ("reshape", "transpose"):
        chain.insert(0, chain[0].operands[0])
    product = chain[0].opcode == "dot" and not chain[0].ints("lhs_batch_dims", ())
    turned = any(i.opcode == "transpose" for i in chain[1:])
    return chain if turned and (product or chain[0].opcode == "slice") else []
