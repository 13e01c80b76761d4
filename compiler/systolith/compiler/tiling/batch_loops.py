"""Batch loops: segments of a module that run on a few indices of one dimension at a time, in a `while` loop.

Where activations do not fit in VMEM every group writes its result to HBM and the next one reads it.  If the groups of a
segment all keep a dimension (the batch), the segment can run on part of it at a time, so that what lies between its
groups stays in VMEM: a chain of products, their epilogues and normalisations, tiled together.  Its weights are moved
once for each part.  The program does not grow with the number of parts.

Which segments, along which dimension and in how many parts: the cheapest way through the module's groups by the
estimates of `tiling/batch_cost.py` (Viterbi's algorithm: a group after another, a state for each split).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.producer_fusion import FusePrologues
from systolith.compiler.groups.unit_assignment import MATRIX_UNITS, UnitAssignment
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.memory.residency import VALUES_SHARE
from systolith.compiler.ops.group import Unit
from systolith.compiler.ops.table import ROOTS, family
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.effects import Effects, moves_for_host
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.passes.simplify.dead_code import drop_dead
from systolith.compiler.plan import WHY, ForcedPlan, PlanError
from systolith.compiler.tiling.batch_cost import Estimate, Split, Step, Trial
from systolith.compiler.tiling.batch_rewrite import to_loop
from systolith.compiler.tiling.blocking import BlockNormalisations, Region
from systolith.compiler.tiling.dim_classes import DimClass, classes
from systolith.isa.chip import Chip

MOST_ITERATIONS = 64
"""Parts that a dimension is cut into at most."""

MOST_CLASSES = 4
"""Dimensions that are tried: those that most instructions keep."""

ITERATION_LATENCIES = 8
"""An iteration costs as many latencies of HBM besides its work: nothing runs ahead from one iteration into the next."""

WORTH = 0.95
"""A loop has to take less than this part of the cycles of its groups without it."""

NO_LOOP = "no loop"

SHOWN = 3
"""Splits that were not chosen, and are explained."""


@dataclass(frozen=True)
class BatchLoops:
    """Run segments on part of the batch at a time, in loops, where that takes fewer cycles.

    Attributes:
        chip: the target.
        unit: of each operation.
        options: as for lowering; with a plan that says which, if it has loops.
    """

    chip: Chip
    unit: UnitAssignment = MATRIX_UNITS
    options: Options = field(default_factory=Options)

    def run(self, module: Module) -> Outcome:
        entry = module.entry
        if moves_for_host(module) or not self._overflows(entry):
            return Outcome(False)
        found = sorted(classes(entry), key=lambda of: -len(of.kept))[:MOST_CLASSES]
        trial = Trial(entry, self._grouped(module), self.chip)
        path = _Path(trial, [Split(DimClass(1), 1), *(Split(of, n) for of in found for n in _divisors(of.size))])
        taken = Names(c.name for c in module.computations)
        decisions, loops, why = list[Decision](), path.loops(), "the least cycles"
        plan = self.options.plan
        if plan is not None and (wanted := plan.of_kind("loop")):
            loops, why = path.planned(plan, wanted), WHY
            decisions += [Decision("loop", group, NO_LOOP, WHY) for group, text in wanted if text == NO_LOOP]
        for split, first, last in loops:
            made = to_loop(entry, *path.region(split, first, last), split.blocks, taken)
            at = module.computations.index(entry)
            module.computations[at:at] = made
            decisions.append(path.decision(split, first, last, why))
        if loops:
            drop_dead(entry, Effects())
        return Outcome(bool(loops), tuple(decisions))

    def _overflows(self, entry: Computation) -> bool:
        """Whether what a product reads and makes is too much to stay in VMEM."""
        room = self.chip.vmem.bytes * VALUES_SHARE
        return any(
            i.shape.bytes + sum(o.shape.bytes for o in i.operands if o.opcode != "parameter") > room
            for i in entry.instructions
            if self.unit(i) is Unit.MXU
        )

    def _grouped(self, module: Module) -> Computation:
        """The entry in groups, as it would be without loops."""
        trial = clone(module)
        BlockNormalisations(self.chip).run(trial)
        Fuse(unit=self.unit).run(trial)
        FusePrologues(self.chip, self.options, blocks=True).run(trial)
        return trial.entry


def _divisors(size: int) -> list[int]:
    return [n for n in range(2, min(size, MOST_ITERATIONS) + 1) if size % n == 0]


class _Path:
    """The cheapest way through a module's groups.

    Args:
        trial: the groups.
        splits: to choose from; the first is none at all.
    """

    def __init__(self, trial: Trial, splits: Sequence[Split]) -> None:
        self.trial, self.splits = trial, splits
        self.estimates = [Estimate(trial, s) for s in splits]
        self.stored = {v.of for step in trial.steps for v in step.makes}
        classes = {id(s.of): s.of for s in splits}
        regions = {key: [self._region(of, step) for step in trial.steps] for key, of in classes.items()}
        self.regions = [regions[id(s.of)] for s in splits]
        self.changes = self._changes()
        self.cycles = [
            [self._cycles(n, step, region) for step, region in zip(trial.steps, regions, strict=True)]
            for n, regions in enumerate(self.regions)
        ]
        self.chosen = self._viterbi()

    def _region(self, of: DimClass, step: Step) -> Region | None:
        """The instructions of a group that keep a dimension; None: what they are computed from needs all of it."""
        found: Region = {}
        todo = [v.of for v in step.makes]
        while todo:
            i = todo.pop()
            if of.lost(i) or (family(i) in ROOTS and i not in of.kept):
                return None
            if i in of.kept and i not in found:
                found[i] = of.dims[i]
                todo += [o for o in i.operands if o not in self.stored]
        return found

    def _cycles(self, n: int, step: Step, region: Region | None) -> float:
        """Of a group with a split; what does not have the dimension runs outside."""
        alone = n == 0 or (region is not None and not region)
        return inf if region is None and n else self.estimates[0 if alone else n].cycles(step)

    def _changes(self) -> list[list[tuple[float, float]]]:
        """Before each group, and after the last, for each split, cycles of starting its loop and of ending one."""
        latency = ITERATION_LATENCIES * self.trial.chip.hbm.latency
        found: list[list[tuple[float, float]]] = [[(0, 0)] for _ in range(len(self.trial.steps) + 1)]
        for split, estimate in zip(self.splits[1:], self.estimates[1:], strict=True):
            for change, moved in zip(found, estimate.ends(), strict=True):
                change.append((moved + split.blocks * latency, moved))
        return found

    def _viterbi(self) -> list[int]:
        """The split of each group."""
        steps = len(self.trial.steps)
        total: list[float] = [0, *(inf for _ in self.splits[1:])]
        back: list[list[int]] = []
        for position in range(steps):
            change = self.changes[position]
            source = min(range(len(total)), key=lambda s: total[s] + change[s][1])
            left = total[source] + change[source][1]
            came = [s if total[s] <= left + change[s][0] else source for s in range(len(total))]
            total = [
                min(t, left + c[0]) + self.cycles[s][position]
                for s, (t, c) in enumerate(zip(total, change, strict=True))
            ]
            back.append(came)
        ended = self.changes[steps]
        state = min(range(len(total)), key=lambda s: total[s] + ended[s][1])
        chosen = []
        for came in reversed(back):
            chosen.append(state)
            state = came[state]
        return chosen[::-1]

    def region(self, split: Split, first: int, last: int) -> tuple[Region, set[Instruction]]:
        """The instructions of a segment, and those whose values it stores."""
        regions = self.regions[self.splits.index(split)][first:last]
        region = {i: d for part in regions if part for i, d in part.items()}
        return region, {v.of for step in self.trial.steps[first:last] for v in step.makes if v.of in region}

    def planned(self, plan: ForcedPlan, wanted: Sequence[tuple[str, str]]) -> list[tuple[Split, int, int]]:
        """The segments that a plan has in loops; `wanted`: pairs of a group and a text.

        Raises:
            PlanError: there is no such segment or split, or two are not apart.
        """
        names = {step.root.name: n for n, step in enumerate(self.trial.steps)}
        found: list[tuple[Split, int, int]] = []
        for group, text in wanted:
            if text == NO_LOOP and group in names:
                continue
            number = next((n for n in range(1, len(self.splits)) if text.endswith(f": {self._iterations(n)}")), 0)
            first, _, last = text.partition(": ")[0].partition(" to ")
            start, end = names.get(first, 0), names.get(last, -1) + 1
            possible = number and start < end and last == group and self._between(number, start, end) < inf
            if not possible or any(start < b and a < end for _, a, b in found):
                raise PlanError(f"{plan.name}: loop of {group!r}: {text!r} is not possible")
            found.append((self.splits[number], start, end))
        return sorted(found, key=lambda loop: loop[1])

    def decision(self, split: Split, first: int, last: int, why: str) -> Decision:
        """The decision for a loop: its estimate, and that of its groups without it."""
        number = self.splits.index(split)

        def cycles(n: int) -> float:
            return self._between(n, first, last)

        others = sorted((n for n in range(1, len(self.splits)) if n != number and cycles(n) < inf), key=cycles)
        roots = [step.root.name for step in self.trial.steps[first:last]]
        segment = f"{roots[0]} to {roots[-1]}: "
        rejected = [(NO_LOOP, 0), *((segment + self._iterations(n), n) for n in others[:SHOWN])]
        return Decision(
            "loop",
            roots[-1],
            f"{roots[0]} to {roots[-1]}: {self._iterations(number)}",
            why,
            {"cycles": round(cycles(number)), "groups": last - first},
            tuple(Alternative(what, "", {"cycles": round(cycles(n))}) for what, n in rejected),
        )

    def _iterations(self, number: int) -> str:
        split = self.splits[number]
        size = split.of.size // split.blocks
        return f"{split.blocks} iterations of {size} of {split.of.size} indices along {split.of}"

    def loops(self) -> list[tuple[Split, int, int]]:
        """Segments in loops: the split, the first group, and the one after the last."""
        runs = [(s, [n for n, _ in same]) for s, same in groupby(enumerate(self.chosen), key=lambda pair: pair[1])]
        return [(self.splits[s], p[0], p[-1] + 1) for s, p in runs if s and self._is_worth(s, p[0], p[-1] + 1)]

    def _is_worth(self, number: int, first: int, last: int) -> bool:
        """Whether a segment is a chain, and much faster in a loop.

        An elementwise group and the product that reads it are none: it is computed in the product's tiles
        (`groups/producer_fusion.py`).
        """
        inside = [n for n in range(first, last) if self.regions[number][n]]
        steps = [self.trial.steps[n] for n in inside]
        chain = sum(step.has_root for step in steps) > 1 and any(step.products for step in steps)
        return chain and self._between(number, first, last) < WORTH * self._between(0, first, last)

    def _between(self, n: int, first: int, last: int) -> float:
        """Cycles of a segment with a split."""
        ends = 0 if not n else self.changes[first][n][0] + self.changes[last][n][1]
        return ends + sum(self.cycles[n][first:last])
