"""Coverage of a set of programs: points of the instruction set and of the machine's behaviour in time.

`python -m systolith.hw.fuzz.coverage [programs] [chip]` prints a table, and the goals missed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.generate import program
from systolith.hw.fuzz.goals import LEFT_OUT, goals
from systolith.hw.fuzz.points import Point, text_points
from systolith.hw.fuzz.timing_points import run_points
from systolith.isa.chip import Chip, load_chip


class Coverage:
    """Points of programs, counted once a program.

    Attributes:
        counts: programs that cover each point.
        programs: how many there are.
    """

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.goals = goals(chip)
        self.counts: Counter[Point] = Counter()
        self.programs = 0

    def add(self, case: Case) -> None:
        """Run a program and count the points that it covers."""
        result = case.run()
        self.counts.update({*text_points(case, result), *run_points(case, result)})
        self.programs += 1

    def missing(self) -> list[Point]:
        """Goals that no program covers."""
        return [p for p in self.goals if not self.counts[p]]

    def rows(self) -> Iterable[tuple[str, int, int, int]]:
        """(group, goals, covered, programs that cover the rarest covered one)."""
        groups = dict.fromkeys(group for group, _ in self.goals)
        for group in groups:
            seen = [self.counts[p] for p in self.goals if p[0] == group]
            covered = [n for n in seen if n]
            yield group, len(seen), len(covered), min(covered, default=0)

    def text(self) -> str:
        """The table, the goals missed, and the points that are no goals."""
        lines = [f"{self.programs} programs on {self.chip.name}"]
        lines.append(f"{'group':10} {'points':>7} {'covered':>8} {'rarest':>7}")
        total = done = 0
        for group, points, covered, rarest in self.rows():
            lines.append(f"{group:10} {points:7} {100 * covered / points:7.1f}% {rarest:7}")
            total, done = total + points, done + covered
        lines.append(f"{'all':10} {total:7} {100 * done / total:7.1f}%")
        lines += [f"missing: {group}: {point}" for group, point in self.missing()]
        lines += [f"not a goal: {what}: {why}" for what, why in LEFT_OUT.items()]
        return "\n".join(lines)


def cover(seeds: Iterable[int], chip: Chip) -> Coverage:
    """The coverage of random programs."""
    coverage = Coverage(chip)
    for seed in seeds:
        coverage.add(program(seed, chip))
    return coverage


def main(arguments: list[str]) -> int:
    """Print the coverage of the first programs."""
    count = int(arguments[0]) if arguments else 300
    coverage = cover(range(count), load_chip(arguments[1] if len(arguments) > 1 else "tiny"))
    print(coverage.text())
    return int(bool(coverage.missing()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
