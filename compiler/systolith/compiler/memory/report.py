"""Memory report: what a program takes of HBM and VMEM, for whom, and how long each buffer lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from systolith.isa.access import memory_of
from systolith.isa.binary import to_bytes
from systolith.isa.instruction import Space
from systolith.isa.program import Program, Role

if TYPE_CHECKING:  # they take long to import, and binaries have no layout
    from systolith.compiler.memory.rematerialise import Remade
    from systolith.compiler.memory.vmem import MemoryPlan
    from systolith.compiler.tile.ir import Block, Buf, TileOp


@dataclass(frozen=True)
class LiveRange:
    """A buffer and the fusion groups in which it is used first and last (empty: outside of groups, or never).

    Attributes:
        role: of HBM: parameter, result, constant, temp; of VMEM: value (whole) or tile; of SMEM: scalar.
        shares: name of the buffer whose memory it uses; empty: it has its own.
    """

    name: str
    space: str
    role: str
    bytes: int
    first: str
    last: str
    shares: str = ""


@dataclass(frozen=True)
class Placed:
    """Memory that instructions use.

    Attributes:
        space: VMEM or HBM.
        role: as for `LiveRange`.
        address: in VMEM, in bytes; -1 in HBM, where every owner of memory has its own.
        bytes: size.
        used: indices of the instructions that use it, or what shares it.
    """

    space: Space
    role: str
    address: int
    bytes: int
    used: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The memory layout behind a program: operations in order, addresses, and whole values in VMEM.

    Attributes:
        made_of: for each instruction the operation that it was made of.
    """

    block: Block
    plan: MemoryPlan
    buffers: list[Buf]
    whole: set[Buf]
    made_of: Sequence[TileOp | None]

    def groups(self) -> dict[int, str]:
        """The group of the operation at each position."""
        from systolith.compiler.memory.vmem import positions

        return {position: op.origin.group for position, op in positions(self.block, [])}

    def role(self, buf: Buf) -> str:
        """The role of a buffer."""
        if buf.decl is not None:
            return str(buf.decl.role)
        if buf.space is Space.SMEM:
            return "scalar"
        return "value" if buf in self.whole else "tile"


class MemoryUse:
    """Memory that a program needs of a device, in bytes.

    Attributes:
        parameters, constants: their buffers in HBM; states count as constants.
        results: those that have memory of their own.
        aliased: results made in the memory of parameters.
        temporaries: spilled values in HBM, all together (they share memory where their lives allow).
        temporaries_unshared: the same if each had its own memory.
        hosted: temporaries in the memory of parameters that nothing reads any more or of results that are not made yet.
        remade: values that are computed again, or later, because HBM would not hold them until then; empty of a binary.
        vmem: the part of VMEM that is used at some time.
        instructions: of the program.
    """

    def __init__(self, program: Program, layout: Layout | None = None, remade: Sequence[Remade] = ()) -> None:
        """`layout`: None of a binary: it has no live ranges; `remade`: what is computed again so that it fits."""
        self._program, self._layout = program, layout
        self.remade = tuple(remade)
        own = Counter[Role]()
        shared = Counter[Role]()
        for b in program.buffers:
            (own if b.alias < 0 else shared)[b.role] += b.bytes
        self.parameters = own[Role.PARAMETER]
        self.results = own[Role.RESULT]
        self.aliased = shared[Role.RESULT]
        self.constants = own[Role.CONSTANT] + own[Role.STATE]
        self.temporaries = own[Role.TEMP]
        self.temporaries_unshared = own[Role.TEMP] + shared[Role.TEMP]
        roots = ((b, program.buffers[memory_of(n, program)]) for n, b in enumerate(program.buffers))
        self.hosted = sum(b.bytes for b, root in roots if b.role is Role.TEMP is not root.role)
        self.vmem = program.vmem_high_water
        self.instructions = len(program.code)

    @property
    def hbm(self) -> int:
        """HBM while it runs."""
        return self.parameters + self.results + self.constants + self.temporaries

    @cached_property
    def binary(self) -> int:
        """Size of the binary: code, tables, constants, debug map."""
        return len(to_bytes(self._program))

    @cached_property
    def vmem_peak(self) -> dict[str, int]:
        """Bytes of VMEM at the moment when most of it is alive, by the group that writes them; empty of a binary."""
        if self._layout is None:
            return {}
        lives = self._layout.plan.lives
        peak = lives.peak(lambda buf: buf.bytes if buf.space is Space.VMEM else 0)
        groups = self._layout.groups()
        found = Counter[str]()
        for buf in lives.alive(peak):
            if buf.space is Space.VMEM:
                found[groups.get(lives.first[buf], "")] += buf.bytes
        return dict(found.most_common())

    @cached_property
    def ranges(self) -> tuple[LiveRange, ...]:
        """Every buffer: HBM in the order of the buffer table, then VMEM and SMEM by first use; empty of a binary."""
        if self._layout is None:
            return ()
        layout, groups = self._layout, self._layout.groups()
        from systolith.compiler.memory.vmem import lives

        in_hbm = {v.value: v for v in lives(layout.block, (Space.HBM,))}
        found = []
        for buf, live in [(b, in_hbm.get(b)) for b in layout.buffers] + [(v.value, v) for v in layout.plan.lives]:
            first, last = (groups.get(live.first, ""), groups.get(live.last, "")) if live else ("", "")
            shares = "" if buf.shares is None else buf.memory.name
            found.append(LiveRange(buf.name, buf.space.name, layout.role(buf), buf.bytes, first, last, shares))
        return tuple(found)

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """Memory of VMEM and HBM, with the instructions that use it; empty of a binary."""
        if self._layout is None:
            return ()
        layout = self._layout
        used: dict[Buf, list[int]] = {b.memory: [] for b in layout.buffers}
        for index, op in enumerate(layout.made_of):
            for buf in op.buffers if op is not None else ():
                if buf.space in (Space.VMEM, Space.HBM):
                    used.setdefault(buf.memory, []).append(index)
        return tuple(
            Placed(buf.space, layout.role(buf), layout.plan.address.get(buf, -1), buf.bytes, tuple(at))
            for buf, at in used.items()
        )

    def to_json(self) -> dict[str, int | dict[str, int]]:
        """For the record of a run (which need not encode the program to tell the binary's size)."""
        return {
            "parameters": self.parameters,
            "results": self.results,
            "aliased": self.aliased,
            "constants": self.constants,
            "temporaries": self.temporaries,
            "temporaries_unshared": self.temporaries_unshared,
            "hosted": self.hosted,
            "remade": sum(r.bytes for r in self.remade),
            "remade_cycles": sum(r.cycles for r in self.remade),
            "vmem": self.vmem,
            "vmem_peak": self.vmem_peak,
            "instructions": self.instructions,
        }

    def __repr__(self) -> str:
        return f"<MemoryUse: {self.hbm:,} bytes of HBM, {self.vmem:,} of VMEM>"

    def __str__(self) -> str:
        """A table: one line a kind of memory."""
        peak = list(self.vmem_peak.items())[:_SHOWN]
        hosted = f", {self.hosted:,} in memory of parameters and results" if self.hosted else ""
        saved, again = sum(r.bytes for r in self.remade), sum(r.cycles for r in self.remade)
        rows = [
            ("HBM", self.hbm, ""),
            ("  parameters", self.parameters, f"{self.aliased:,} of them aliased with results" if self.aliased else ""),
            ("  results", self.results, ""),
            ("  constants", self.constants, ""),
            ("  temporaries", self.temporaries, f"{self.temporaries_unshared:,} without sharing{hosted}"),
            *([("  computed again", saved, f"less at the peaks; about {again:,} cycles more")] if saved else []),
            ("VMEM", self.vmem, f"{sum(self.vmem_peak.values()):,} alive at once" if self.vmem_peak else ""),
            *((f"  {name or '(no group)'}", size, "of these") for name, size in peak),
            ("binary", self.binary, f"{self.instructions:,} instructions"),
        ]
        return _table([("", "bytes", ""), *((name, f"{size:,}", note) for name, size, note in rows)])

    def table(self) -> str:
        """The summary, and one line a buffer with its live range."""
        heading = ("buffer", "bytes", "space", "role", "first group", "last group", "memory of")
        lines = [(r.name, f"{r.bytes:,}", r.space, r.role, r.first, r.last, r.shares) for r in self.ranges]
        again = ("computed again", "bytes less at the peak", "before", "groups", "cycles")
        remade = [(r.group, f"{r.bytes:,}", r.before, str(r.groups), f"{r.cycles:,}") for r in self.remade]
        tables = [_table([again, *remade])] if remade else []
        return "\n\n".join([str(self), *tables, _table([heading, *lines])]) + "\n"


_SHOWN = 5
"""Groups in the summary."""


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns, the second one (numbers) flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, number, *rest in rows:
        cells = [f"{first:<{widths[0]}}", f"{number:>{widths[1]}}"]
        cells += [f"{cell:<{w}}" for cell, w in zip(rest, widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
