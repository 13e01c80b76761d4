"""Costs by instruction: its runs, and their operations and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from systolith.compiler.hlo.cost.analysis import HloCostAnalysis
from systolith.compiler.hlo.cost.keys import BYTES, FLOPS, TRANSCENDENTALS
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.trip_count import trip_count

PRODUCTS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
"""Opcodes whose operations are multiplications and additions of matrices."""

MOST_RUNS = 2**63 - 1
"""Of an instruction."""

_ENTERED = frozenset({"call", "while"})
_FREE = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"})


@dataclass(frozen=True)
class Row:
    """Costs of an instruction, or of all of one opcode, in all its runs.

    Attributes:
        name: the instruction's name, or an opcode.
        opcode: its opcode.
        runs: how often it runs (bodies of loops that do not state a trip count: once); of an opcode, summed.
        flops: operations that are not transcendentals.
        products: those of them that multiply matrices.
        transcendentals: exponentials, logarithms and the like.
        bytes: bytes read and written.
    """

    name: str
    opcode: str
    runs: int
    flops: float
    products: float
    transcendentals: float
    bytes: float

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None without bytes."""
        return (self.flops + self.transcendentals) / self.bytes if self.bytes > 0 else None

    def __add__(self, other: Row) -> Row:
        sums = (getattr(self, key) + getattr(other, key) for key in ("flops", "products", "transcendentals", "bytes"))
        return Row(self.name, self.opcode, self.runs + other.runs, *sums)


def rows(module: Module, analysis: HloCostAnalysis) -> list[Row]:
    """A row for each instruction that costs something; calls and loops show as their bodies, fusions as one.

    Unknown costs (of a custom call) count as 0.

    Raises:
        HloError: loops state that they run more often than can be counted; names the innermost.
    """
    runs: Counter[Computation] = Counter({module.entry: 1})
    order = module.post_order()
    products = _products(order, analysis)
    found: list[Row] = []
    for computation in reversed(order):
        for i in computation.instructions if runs[computation] else ():
            if i.opcode in _ENTERED:
                turns = (trip_count(i) if i.opcode == "while" and analysis.trip_counts else None) or 1
                if runs[computation] * turns > MOST_RUNS:
                    raise HloError(f"while {i.name!r} states that its body runs over 2^63 times", i.place)
                for callee in i.called:
                    runs[callee] += runs[computation] * turns
            elif i.opcode not in _FREE:
                found.append(_row(i, runs[computation], products, analysis))
    return found


def _row(i: Instruction, runs: int, products: dict[Instruction, float], analysis: HloCostAnalysis) -> Row:
    cost = analysis.of(i)
    flops, transcendentals, size = (runs * max(0.0, cost.get(key, 0.0)) for key in (FLOPS, TRANSCENDENTALS, BYTES))
    return Row(i.name, i.opcode, runs, flops, runs * products[i], transcendentals, size)


def _products(order: Iterable[Computation], analysis: HloCostAnalysis) -> dict[Instruction, float]:
    """Of each instruction, the operations that multiply matrices, in its callees too."""
    inside: dict[Computation, float] = {}
    found: dict[Instruction, float] = {}
    for computation in order:
        for i in computation.instructions:
            called = sum(inside[c] for c in i.called) if i.opcode in ("fusion", "conditional", "async-start") else 0.0
            found[i] = analysis.of(i).get(FLOPS, 0.0) if i.opcode in PRODUCTS else called
        inside[computation] = sum(found[i] for i in computation.instructions)
    return found


def by_opcode(found: Iterable[Row]) -> list[Row]:
    """A row for each opcode."""
    sums: dict[str, Row] = {}
    for row in found:
        named = replace(row, name=row.opcode)
        sums[row.opcode] = sums[row.opcode] + named if row.opcode in sums else named
    return list(sums.values())


def total(found: Iterable[Row]) -> Row:
    """The sum of all rows."""
    return sum(found, start=Row("total", "", 0, 0.0, 0.0, 0.0, 0.0))
