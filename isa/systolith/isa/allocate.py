"""Register allocation for scheduled sections.

A value takes its register from the cycle its write lands to its last read.  In iteration i rotating register v is
physical register (v + i) mod R, so value a in v and value b in u clash if for some k = v - u (mod R) the life of a
meets that of b of k iterations later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from systolith.isa.dependence import Flow, latency_of
from systolith.isa.kernel import MicroOp

if TYPE_CHECKING:
    from systolith.isa.chip import Chip


class Life(NamedTuple):
    """Cycles of one iteration: issue of the write, landing, last read (at least the landing)."""

    issue: int
    first: int
    last: int


def allocate_rotating(
    ops: Sequence[MicroOp],
    flow: Flow,
    regs: Sequence[int],
    times: Sequence[int],
    ii: int,
    rotating: int,
    chip: Chip,
) -> dict[int, int] | None:
    """A rotating register for each of `regs`; None if `rotating` of them do not do."""
    lives = {}
    for r in regs:
        w = flow.writer[r]
        land = times[w] + latency_of(ops[w].op, chip)
        lives[r] = Life(times[w], land, max([land, *(times[k] for k in flow.new_reads[r])]))
    placed: dict[int, int] = {}
    for r in sorted(regs, key=lambda r: (lives[r].first, r)):
        if (lives[r].last - lives[r].first) // ii >= rotating:
            return None
        taken = _taken(lives[r], placed, lives, ii, rotating)
        free = next((v for v in range(rotating) if not taken >> v & 1), None)
        if free is None:
            return None
        placed[r] = free
    return placed


def _taken(a: Life, placed: Mapping[int, int], lives: Mapping[int, Life], ii: int, rotating: int) -> int:
    """The registers, a bit each, of which some iteration's value clashes with a life.

    Within one iteration (k = 0) a register is taken from the issue of its write on, so that running the section's
    operations one after another gives the pipeline's values.
    """
    issue, first, last = a
    taken, every = 0, (1 << rotating) - 1
    for other, u in placed.items():
        b = lives[other]
        lo, hi = -((b.last - first) // ii), (last - b.first) // ii
        if issue <= b.last and b.issue <= last:
            lo, hi = min(lo, 0), max(hi, 0)
        if lo <= hi:
            found = (1 << min(hi - lo + 1, rotating)) - 1 << (u + lo) % rotating
            taken |= (found | found >> rotating) & every
    return taken


def allocate_straight(
    ops: Sequence[MicroOp], flow: Flow, regs: Sequence[int], times: Sequence[int], free: int, chip: Chip
) -> dict[int, int] | None:
    """A register below `free` for each of `regs` in a section that runs once; None if they do not do."""
    ends: dict[int, int] = {}
    placed: dict[int, int] = {}
    for r in sorted(regs, key=lambda r: (times[flow.writer[r]], flow.writer[r])):
        w = flow.writer[r]
        issue = times[w]
        v = next((v for v in range(free) if ends.get(v, -1) < issue), None)
        if v is None:
            return None
        placed[r] = v
        ends[v] = max([issue + latency_of(ops[w].op, chip), *(times[k] for k in flow.new_reads[r])])
    return placed
