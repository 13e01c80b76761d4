"""Cycles that a module takes at least on a chip, from its canonical HLO and the chip alone.

The largest of the least times of the units: the matrix units (`products.py`), the vector unit's arithmetic and
transcendental slots (`vector_work.py`), and HBM: arguments and results once, and values that have to leave VMEM and
come back (`live.py`).  Nothing here knows the compiler's groups, tiles or schedule.  Left out: that a product may be
computed again, and that a loop whose trip count nobody states may run more than once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from systolith.compiler.bounds.live import spilled_bytes
from systolith.compiler.bounds.products import PRODUCTS, Tiles, product_of, read_share, together
from systolith.compiler.bounds.vector_work import NOTHING, Slots, vector_slots
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.memory.aliasing import read_aliases
from systolith.compiler.passes.loop_values import free_products
from systolith.isa.chip import Chip

PARTS = ("slice", "dynamic-slice", "gather")
VIEWS = ("bitcast", "reshape", "transpose", "copy", "convert")


@dataclass(frozen=True)
class Bound:
    """Cycles that a module or an operation takes at least.

    Attributes:
        units: cycles of each unit: `mxu`, `alu`, `trans`, `hbm`.
        macs: multiply-accumulates of its products.
    """

    units: Mapping[str, float]
    macs: int = 0

    @property
    def cycles(self) -> float:
        return max(self.units.values())

    @property
    def unit(self) -> str:
        """The unit that takes longest."""
        return max(self.units, key=lambda u: self.units[u])


@dataclass(frozen=True)
class Work:
    """Work of instructions on the compute units."""

    tiles: tuple[Tiles, ...] = ()
    slots: Slots = NOTHING
    macs: int = 0

    def times(self, n: int) -> Work:
        return Work(tuple(t.times(n) for t in self.tiles), self.slots * n, self.macs * n)

    def cycles(self, chip: Chip) -> dict[str, float]:
        """By unit."""
        return {
            "mxu": together(self.tiles).cycles / chip.mxu.count,
            "alu": self.slots.alu_cycles(chip),
            "trans": self.slots.trans_cycles(chip),
        }


def bound(module: Module, chip: Chip, precision: str | None = None) -> Bound:
    """The bound of a canonical module; `precision`: of its products, in place of what they ask for."""
    works = _works(module.entry, chip, precision)
    total = _sum(works.values())
    ends = argument_bytes(module) + result_bytes(module)
    moved = ends + spilled_bytes(module.entry, chip.vmem.bytes)
    return Bound({**total.cycles(chip), "hbm": moved / _bandwidth(chip)}, total.macs)


def op_works(module: Module, chip: Chip, precision: str | None = None) -> dict[str, Work]:
    """The work of each operation, those in the bodies of loops included: of one execution."""
    found: dict[str, Work] = {}
    todo = [module.entry]
    while todo:
        computation = todo.pop()
        works = _works(computation, chip, precision)
        found |= {i.name: work for i, work in works.items() if i.opcode not in ("while", "conditional")}
        todo += [c for i in computation.instructions if i.opcode in ("while", "conditional") for c in i.called]
    return found


@dataclass(frozen=True)
class Bounds:
    """The bounds of a module and of its operations on a chip.

    Attributes:
        whole: of the module.
        works: of each operation, of one execution.
        ends: bytes of its operands and its result.
    """

    chip: Chip
    whole: Bound
    works: Mapping[str, Work]
    ends: Mapping[str, int]

    def of(self, names: Iterable[str], executions: int, moved: int) -> Bound:
        """The bound of some operations together; as for `group_bound`."""
        return group_bound(names, executions, moved, self.works, self.chip)


def bounds(module: Module, chip: Chip, precision: str | None = None) -> Bounds:
    """The bounds of a canonical module; `precision`: as for `bound`."""
    ends = {i.name: sum(v.shape.bytes for v in (i, *i.operands)) for i in module.instructions()}
    return Bounds(chip, bound(module, chip, precision), op_works(module, chip, precision), ends)


def group_bound(names: Iterable[str], executions: int, moved: int, works: Mapping[str, Work], chip: Chip) -> Bound:
    """The bound of some operations together, executed so many times, that moved so many bytes to and from HBM."""
    total = _sum(works[n] for n in names if n in works).times(executions)
    return Bound({**total.cycles(chip), "hbm": moved / _bandwidth(chip)}, total.macs)


def _bandwidth(chip: Chip) -> float:
    return chip.hbm.p / chip.hbm.q


def _sum(works: Iterable[Work]) -> Work:
    found = list(works)
    slots = sum((w.slots for w in found), NOTHING)
    return Work(tuple(t for w in found for t in w.tiles), slots, sum(w.macs for w in found))


def _works(computation: Computation, chip: Chip, precision: str | None) -> dict[Instruction, Work]:
    """The work of each instruction; of a loop all its iterations, of a conditional the least of its branches."""
    found = {i: Work(slots=slots) for i, slots in vector_slots(computation).items()}
    for i in computation.instructions:
        if i.opcode in PRODUCTS:
            found[i] = _product_work(i, chip, precision)
        elif i.opcode == "while":
            found[i] = _loop_work(i, chip, precision)
        elif i.opcode == "conditional":
            branches = [_sum(_works(b, chip, precision).values()) for b in i.called]
            found[i] = min(branches, key=lambda w: max(w.cycles(chip).values()))
    return found


def _loop_work(loop: Instruction, chip: Chip, precision: str | None) -> Work:
    """The work of all iterations; products that none has to wait for may be one."""
    works, n = _works(loop.computation("body"), chip, precision), trip_count(loop) or 1
    free = free_products(loop)
    total = [_sum(w for i, w in works.items() if i not in free).times(n)]
    for i, added in free.items():
        p = product_of(i, precision)
        ways = [
            works[i].times(n).tiles,
            *((q.tiles(chip),) for q in ([p.deeper(n)] if added else [p.longer(n), p.wider(n)])),
        ]
        least = min(ways, key=lambda tiles: together(tiles).cycles)
        total.append(replace(works[i].times(n), tiles=least))
    return _sum(total)


def _product_work(i: Instruction, chip: Chip, precision: str | None) -> Work:
    """On the matrix units, or on the vector unit where that takes fewer cycles (depthwise convolutions)."""
    p = product_of(i, precision)
    tiles, slots = p.tiles(chip), Slots(alu=2 * p.macs)
    if slots.alu_cycles(chip) < tiles.cycles / chip.mxu.count:
        return Work((), slots, p.macs)
    return Work((tiles,), NOTHING, p.macs)


def argument_bytes(module: Module) -> int:
    """Bytes of arguments that have to be read."""
    entry, users, kept = module.entry, module.entry.users(), _in_place(module)
    users[entry.result].append(entry.result)  # who runs the module reads it
    return sum(_read(p, users, kept) for p in entry.parameters if p.shape.is_array)


def _read(value: Instruction, users: Mapping[Instruction, list[Instruction]], kept: Container[Instruction]) -> int:
    """Bytes of a value that its users need: parts, where they take parts; nothing for a result in its own memory."""
    needed = 0
    for u in users[value]:
        if u is value or u.opcode == "tuple":
            if value not in kept:
                return value.shape.bytes
        elif value in u.operands[1:]:
            return value.shape.bytes
        elif u.opcode in PARTS:
            needed += u.shape.bytes
        elif u.opcode == "convolution":
            needed += ceil(value.shape.bytes * read_share(u))
        elif u.opcode == "dynamic-update-slice" and u in kept:
            needed += max(0, _read(u, users, kept) - u.operands[1].shape.bytes)
        elif u.opcode in VIEWS:
            needed += _read(u, users, kept) * value.shape.bytes // max(u.shape.bytes, 1)
        else:
            return value.shape.bytes
    return min(needed, value.shape.bytes)


def result_bytes(module: Module) -> int:
    """Bytes of results that have to be written: of a donated argument that is updated, the update."""
    kept, total = _in_place(module), 0
    for r in _results(module.entry):
        if r not in kept:
            total += r.shape.bytes
        elif r.opcode == "dynamic-update-slice":
            total += r.operands[1].shape.bytes
    return total


def _in_place(module: Module) -> set[Instruction]:
    """Results that are a donated argument, or one with a part of it replaced."""
    results = _results(module.entry)
    donated = [results[a.result] for a in read_aliases(module)]
    return {r for r in donated if r.opcode in ("parameter", "dynamic-update-slice")}


def _results(computation: Computation) -> list[Instruction]:
    result = computation.result
    return result.operands if result.opcode == "tuple" else [result]
