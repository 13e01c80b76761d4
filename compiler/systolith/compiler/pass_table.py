"""Every pass by name, over each form that a module has: what `systolith opt` runs.

    HLO -> HLO              `passes/registry.py`
    HLO -> grouped HLO      `tiling/pipeline.py`, and `GROUPED_PASSES`, which lower it
    tile IR -> tile IR      `TILE_PASSES`
    tile IR -> text         what ends a list of passes: addresses, assembly

A pass may take options: `prefetch{bytes=4096 loads=2}`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any

from systolith.compiler.driver import fit_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.legality import check_legality
from systolith.compiler.lower.block_bodies import BlockBodies
from systolith.compiler.lower.installed import register_installed
from systolith.compiler.lower.module import lower_module
from systolith.compiler.memory.hbm import buffer_table, share_temporaries
from systolith.compiler.memory.shares import Shares
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.ops.group import read_groups
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.registry import find_pass, first_sentence, names, spelled, summary
from systolith.compiler.pressure import Lowered
from systolith.compiler.schedule.early_kernels import last_parts, start_early
from systolith.compiler.schedule.fitting import Fitted
from systolith.compiler.schedule.group_loops import NO_LOOPS
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.schedule.program import complete, planned, program_of
from systolith.compiler.schedule.reroll import reroll
from systolith.compiler.tile.ir import GroupRecord, TileModule, TileOp
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_ir, verify_tile_module
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.compiler.vmem_pressure import fit_in_vmem
from systolith.isa.asm import disassemble
from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Role

ITEM = re.compile(r"\s*([\w-]+)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")
OPTION = re.compile(r"(\w+)=(-?\d{1,18})$")


class Form(StrEnum):
    """Forms of a module that passes take and give."""

    HLO = "HLO"
    GROUPED = "grouped HLO"
    TILE = "tile IR"
    TEXT = "text"


PRINTERS: dict[Form, Callable[[Any], str]] = {
    Form.HLO: print_hlo,
    Form.GROUPED: print_hlo,
    Form.TILE: print_tile_ir,
    Form.TEXT: str,
}
"""The text of each form."""


@dataclass(frozen=True)
class NamedPass:
    """A pass.

    Attributes:
        name: of it.
        takes, gives: forms.
        run: makes one of the other; its first argument is what it takes, a second one, `chip`, if it needs one, is the
            target; the rest are its options, numbers.
    """

    name: str
    takes: Form
    gives: Form
    run: Callable[..., Any]

    @property
    def needs_chip(self) -> bool:
        """Whether it is for a chip."""
        return "chip" in inspect.signature(self.run).parameters

    @property
    def options(self) -> dict[str, int]:
        """Its options and what they are by default."""
        return {
            name: p.default
            for name, p in inspect.signature(self.run).parameters.items()
            if p.default is not inspect.Parameter.empty
        }

    @property
    def summary(self) -> str:
        """One line for help texts."""
        if self.takes is Form.HLO and self.name != CANONICALIZE.name:
            return summary(self.name)
        if self.name in GROUPING:
            return first_sentence(type(GROUPING[self.name](load_chip("tiny"), Options())).__doc__)
        return first_sentence(self.run.__doc__)


@dataclass(frozen=True)
class PassCall:
    """A pass with its options."""

    of: NamedPass
    options: dict[str, int]

    def __call__(self, value: Any, chip: Chip | None) -> Any:
        """Run it.

        Raises:
            CompileError: it needs a chip and has none; or as the pass does.
        """
        if not self.of.needs_chip:
            return self.of.run(value, **self.options)
        if chip is None:
            raise CompileError(f"pass {self.of.name!r} is for a chip: say which by --chip")
        return self.of.run(value, chip, **self.options)


def _canonicalize(module: Module) -> Module:
    """Bring a module into canonical form: all passes that every compilation runs before it makes groups."""
    return canonicalise(module)


CANONICALIZE = NamedPass("canonicalize", Form.HLO, Form.HLO, _canonicalize)


# Grouped HLO.


def _grouping(name: str, module: Module, chip: Chip) -> Module:
    run_pass(module, GROUPING[name](chip, Options()))
    return module


def _split(module: Module, chip: Chip) -> Module:
    """Split groups that no instruction can hold."""
    fit_in_vmem(module, chip, Options())
    return module


def _rematerialize(module: Module, chip: Chip) -> Module:
    """Order groups, and compute values again, so that the module fits in HBM (after it was split)."""
    return fit_module(module, chip, Options())[0].module


def _lower(module: Module, chip: Chip, share: int = 40) -> TileModule:
    """Lower groups, in tiles that take so many percent of the free VMEM, loads where they are used."""
    lowering, _ = lower_module(module, BlockBodies(chip), Options(), set(), Shares((), share / 100), loops=NO_LOOPS)
    if lowering.oversized:
        raise lowering.oversized[0].problem
    verify_tile_ir(lowering.ctx.block)
    return Lowered(module, lowering, Fitted(lowering.ctx.block, set(), MemoryPlan(), 0.0)).tile(records=True)


def _schedule(module: Module, chip: Chip) -> TileModule:
    """Lower groups so that all fits, with loads ahead of their use: the whole way from grouped HLO to tile IR."""
    return fit_module(module, chip, Options())[0].tile(records=True)


_GROUPED: list[tuple[str, Form, Callable[..., Any]]] = [
    *((name, Form.GROUPED, partial(_grouping, name)) for name in GROUPING),
    ("split", Form.GROUPED, _split),
    ("rematerialization", Form.GROUPED, _rematerialize),
    ("lower", Form.TILE, _lower),
    ("schedule", Form.TILE, _schedule),
]
GROUPED_PASSES = {name: NamedPass(name, Form.GROUPED, gives, run) for name, gives, run in _GROUPED}


# Tile IR.


def _reroll(tile: TileModule, chip: Chip, smallest: int = 0) -> TileModule:
    """Make loops of what repeats in groups of at least so many operations (0: of those that are worth it)."""
    loops = reroll(tile.block, tile.whole, chip.vmem.bytes, chip, smallest=smallest)
    kept = {*loops.block.ops()}
    records = [
        replace(r, first=loops.now.get(r.first, r.first), last=loops.now.get(r.last, r.last)) for r in tile.records
    ]
    return replace(tile, block=loops.block, records=[r for r in records if {r.first, r.last} <= kept])


def _prefetch(tile: TileModule, chip: Chip, bytes: int = 0, loads: int = 0) -> TileModule:
    """Move loads ahead of their use, by at most so many bytes (0: half of VMEM) and loads (0: as the queue is deep)."""
    moved: set[TileOp] = set()
    ahead = Lookahead(bytes or chip.vmem.bytes // 2, loads or max(1, chip.fifo.depth - 2))
    order = list(tile.block.ops())
    place = {op: n for n, op in enumerate(order)}
    block = prefetch(tile.block, ahead, moved)
    records: list[GroupRecord] = []
    for record in tile.records:
        own = order[place[record.first] : place[record.last] + 1]
        if kept := [op for op in own if op not in moved]:
            records.append(replace(record, first=kept[0], last=kept[-1]))
    return replace(tile, block=block, records=records)


def _early_kernels(tile: TileModule, chip: Chip) -> TileModule:
    """Cut kernels so that parts start before the product that they read is made."""
    block, cut = start_early(tile.block, chip)
    last = last_parts(cut)
    records = [replace(r, first=last.get(r.first, r.first), last=last.get(r.last, r.last)) for r in tile.records]
    return replace(tile, block=block, records=records)


def _share_temporaries(tile: TileModule, results: int = 0) -> TileModule:
    """Let temporaries in HBM share memory (1: and lie in the memory of results that are not made yet)."""
    hosts = [b for b in tile.buffers if results and b.decl is not None and b.decl.role is Role.RESULT]
    share_temporaries(tile.block, hosts, tile.records)
    return replace(tile, buffers=buffer_table(tile.buffers))


def _addresses(tile: TileModule, chip: Chip) -> str:
    """Addresses of buffers in VMEM and SMEM, with the positions of their first and last use."""
    return planned(tile, chip).text()


def _assembly(tile: TileModule, chip: Chip) -> str:
    """Assembly: addresses, registers, tokens."""
    program = program_of(tile, chip, planned(tile, chip), given=True).program
    complete(program, chip)
    return disassemble(program)


TILE_PASSES = {
    name: NamedPass(name, Form.TILE, gives, run)
    for name, gives, run in (
        ("reroll", Form.TILE, _reroll),
        ("early-kernels", Form.TILE, _early_kernels),
        ("prefetch", Form.TILE, _prefetch),
        ("hbm-sharing", Form.TILE, _share_temporaries),
        ("vmem-allocation", Form.TEXT, _addresses),
        ("emit", Form.TEXT, _assembly),
    )
}


def table() -> dict[str, NamedPass]:
    """Every pass, those of installed packages too."""
    register_installed()
    on_hlo = {name: NamedPass(name, Form.HLO, Form.HLO, partial(_run_hlo, name)) for name in names()}
    return on_hlo | {CANONICALIZE.name: CANONICALIZE} | GROUPED_PASSES | TILE_PASSES


def _run_hlo(name: str, module: Any) -> Any:
    return run_passes(module, [find_pass(name)])


def read_passes(text: str) -> list[PassCall]:
    """The passes of a list such as `algsimp,dce`.

    Raises:
        CompileError: no such pass, or option of it; one does not take what the one before gives.
    """
    steps: list[PassCall] = []
    at = 0
    while at < len(text.rstrip()):
        item = ITEM.match(text, at)
        if item is None:
            raise CompileError(f"--passes: {text[at:][:40]!r}: names are separated by commas, options are in braces")
        steps.append(_step(item[1], item[2] or ""))
        at = item.end()
    for before, after in pairwise(steps):
        if (before.of.gives, after.of.takes) not in {*((form, form) for form in Form), (Form.HLO, Form.GROUPED)}:
            raise CompileError(
                f"pass {after.of.name!r} takes {after.of.takes}, and {before.of.name!r} before it gives"
                f" {before.of.gives}"
            )
    return steps


def _step(name: str, options: str) -> PassCall:
    known = table()
    found = known[spelled(name, known)]
    given: dict[str, int] = {}
    for word in options.split():
        option = OPTION.match(word)
        if option is None or option[1] not in found.options:
            takes = " ".join(f"{n}={value}" for n, value in found.options.items())
            raise CompileError(f"pass {found.name!r} has no option {word!r}; it has {takes or 'none'}")
        given[option[1]] = int(option[2])
    return PassCall(found, given)


def run_steps(value: Any, steps: Sequence[PassCall], chip: Chip | None) -> tuple[Any, Form]:
    """Run passes on a value; gives what comes of it, and its form."""
    form = steps[0].of.takes if steps else Form.HLO
    if form is Form.GROUPED:
        value = read_groups(value)
        if chip is not None:
            check_legality(value, chip, "zeros")
    if form is Form.TILE:
        verify_tile_module(value, chip)
    for step in steps:
        if step.of.takes is Form.GROUPED and form is Form.HLO:
            value = read_groups(value)
        value, form = step(value, chip), step.of.gives
    return value, form
