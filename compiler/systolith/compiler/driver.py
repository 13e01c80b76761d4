"""The compiler: HLO module to program, and a dump of every stage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from systolith.compiler.errors import CompileError, DoesNotFitError, HbmError
from systolith.compiler.explain import Alternative, Decision, as_text, each_once
from systolith.compiler.groups.fusion import made_of
from systolith.compiler.groups.splitting import split
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.legality import check_legality
from systolith.compiler.lower.block_bodies import BlockBodies
from systolith.compiler.lower.installed import register_installed
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.module import lower_module
from systolith.compiler.memory.aliasing import most_in_place
from systolith.compiler.memory.rematerialise import Remade
from systolith.compiler.memory.report import Layout, MemoryUse
from systolith.compiler.memory.residency import Leaf, leaf_shapes
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.ops.group import Group
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise, legalise
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.plan import WHY, ForcedPlan
from systolith.compiler.plugins import LOWERINGS, installed
from systolith.compiler.pressure import Lowered, Relief, relieved
from systolith.compiler.schedule.fitting import AHEAD_SHARES, Fitted, schedule
from systolith.compiler.schedule.program import planned, program_of
from systolith.compiler.tile.ir import TileModule
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_ir, verify_tile_module
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.asm import disassemble
from systolith.isa.chip import Chip
from systolith.isa.collection import collection_paused
from systolith.isa.files import Fill, text_fill
from systolith.isa.program import Program

SHARES = (0.4, 0.25, 0.15, 0.08, 0.04)
"""Part of the free VMEM that one group's tiles may take: tried in turn (the rest is for what runs ahead)."""

MOST_ATTEMPTS = 40

OPTIONAL = {
    "producer-fusion": ("prologue", "all operands of products are stored", "some are computed in tiles"),
    "batch-loops": ("loop", "no loops", "segments in loops"),
    "blocking": ("fusion", "no blocks", "normalisations in blocks"),
}
"""Passes whose tiles may take more room than there is, in the order in which they are left out until the module fits;
for each the kind of decision, what is chosen then, and what is not."""


class Stages(Mapping[str, str]):
    """Texts of stages; each is made when it is asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], str]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> str:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __or__(self, later: Stages) -> Stages:
        return Stages({**self._makers, **later._makers})


@dataclass
class Assembled:
    """A program, and how it was made.

    Attributes:
        program: what runs.
        stages: text of each stage by name, in order, made when asked for: of `canonical.hlo`, `grouped.hlo`,
            `tile.txt`, `plan.txt`, `memory.txt`, `program.s` and `explain.txt` those that were gone through.
        memory: what it takes of HBM and VMEM.
        explain: what was chosen, in order.
    """

    program: Program
    stages: Stages
    memory: MemoryUse
    explain: list[Decision] = field(default_factory=list)

    def dumps(self, folder: Path) -> dict[Path, Fill]:
        """Every stage as a file of a folder, for `write_all`."""
        return {folder / name: text_fill(text) for name, text in self.stages.items()}


@dataclass
class Compiled(Assembled):
    """Result of a compilation.

    Attributes:
        module: the grouped module.
    """

    module: Module = field(kw_only=True)


@collection_paused()
def compile_module(module: Module, chip: Chip, options: Options | None = None) -> Compiled:
    """Compile a module (which is brought into canonical form in place).

    Raises:
        CompileError: the module cannot be compiled for this chip; says why and what to do.
    """
    _check_interface(module, chip)
    return Front(module).compile(chip, options)


class Front:
    """A module in canonical form, to be compiled for any number of chips: what does not depend on the chip, done once.

    Args:
        module: any module, which is changed in place here and left alone from then on.
        canonical: whether it is in canonical form already; what later stages rely on is seen to again.

    Attributes:
        canonical: the module.
    """

    def __init__(self, module: Module, canonical: bool = False) -> None:
        register_installed()
        self.canonical = legalise(module) if canonical else canonicalise(module)

    @collection_paused()
    def compile(self, chip: Chip, options: Options | None = None) -> Compiled:
        """Compile it; errors as for `compile_module`."""
        _check_interface(self.canonical, chip)
        options = options or Options()
        check_legality(self.canonical, chip, options.elided)
        left_out = {
            name: Decision(kind, "", chosen, WHY)
            for name, (kind, chosen, _) in OPTIONAL.items()
            if options.plan is not None and options.plan.has(kind, "", chosen)
        }
        while True:
            module, decisions, changed = self._grouped(chip, options, left_out)
            try:
                compiled = _compiled(module, chip, options, [*decisions, *left_out.values()])
                break
            except DoesNotFitError as problem:
                name = next((n for n in OPTIONAL if n in changed), None)
                if name is None:
                    raise
                kind, chosen, lost = OPTIONAL[name]
                left_out[name] = Decision(kind, "", chosen, "", {}, (Alternative(lost, str(problem)),))
        if options.plan is not None:
            compiled.explain += options.plan.unmet(compiled.explain)
        compiled.stages = Stages({"canonical.hlo": lambda: print_hlo(self.canonical)}) | compiled.stages
        return compiled

    def _grouped(
        self, chip: Chip, options: Options, left_out: Collection[str]
    ) -> tuple[Module, list[Decision], set[str]]:
        """The module in groups without some passes, what was decided, and the names of passes that changed it."""
        module = clone(self.canonical)
        passes = {name: make(chip, options) for name, make in GROUPING.items() if name not in left_out}
        outcomes = {name: run_pass(module, step) for name, step in passes.items()}
        decisions = [d for outcome in outcomes.values() for d in outcome.decisions]
        return module, decisions, {name for name, outcome in outcomes.items() if outcome.changed}


@collection_paused()
def compile_groups(module: Module, chip: Chip, options: Options | None = None) -> Compiled:
    """Compile a module of groups, as they were printed (`read_groups`); errors as for `compile_module`."""
    register_installed()
    _check_interface(module, chip)
    options = options or Options()
    check_legality(module, chip, options.elided, grouped=True)
    if options.plan is not None:
        raise CompileError("a plan has choices that were made before groups were: give it with the module itself")
    return _compiled(module, chip, options)


def _compiled(module: Module, chip: Chip, options: Options, decided: Sequence[Decision] = ()) -> Compiled:
    """Compile grouped HLO, autotuned if the options ask for it."""
    if options.autotune and options.tuner is None:
        raise CompileError("autotune needs a simulator; compile through systolith.api.Client, or give a tuner")
    return (compile_grouped if options.tuner is None else _tuned)(module, chip, options, decided)


def _tuned(module: Module, chip: Chip, options: Options, decided: Sequence[Decision]) -> Compiled:
    """With what autotuning found, unless the whole module is slower so: a group alone has nothing to overlap with."""
    assert options.tuner is not None
    plain = compile_grouped(clone(module), chip, replace(options, autotune=0, tuner=None), decided)
    tuned = compile_grouped(module, chip, options, decided)
    if options.tuner.problem:
        for compiled in (plain, tuned):
            compiled.explain.append(Decision("autotune", "", "results are not remembered", options.tuner.problem))
    before, after = (options.tuner.measure(c.program) for c in (plain, tuned))
    if before is None or after is None:
        return tuned
    fastest, estimated = "the plans that are fastest alone", "the plans of the estimate"
    if before < after:
        lost = Alternative(fastest, "slower together", {"cycles": after})
        plain.explain.append(Decision("autotune", "", estimated, "", {"cycles": before}, (lost,)))
        return plain
    tuned.explain.append(
        Decision("autotune", "", fastest, "", {"cycles": after}, (Alternative(estimated, "", {"cycles": before}),))
    )
    return tuned


@collection_paused()
def compile_grouped(module: Module, chip: Chip, options: Options, decided: Sequence[Decision] = ()) -> Compiled:
    """Compile grouped HLO: every operation that runs is in a `Group`; `decided`: what was on the way there."""
    lowered, relief = fit_module(module, chip, options)
    module = lowered.module
    tile = lowered.tile(records=options.probes)
    groups = [made_of(i) for i in module.instructions() if isinstance(i, Group)]
    made = _assembled(tile, lowered.fitted.plan, chip, relief.remade, given=bool(installed(LOWERINGS)))
    explain = each_once([*decided, *groups, *relief.decisions, *lowered.lowering.ctx.explain, *made.explain])
    before = Stages({"grouped.hlo": lambda: print_hlo(module)})
    after = Stages({"explain.txt": lambda: as_text(explain)})
    return Compiled(made.program, before | made.stages | after, made.memory, explain, module=module)


def fit_module(module: Module, chip: Chip, options: Options) -> tuple[Lowered, Relief]:
    """Lower grouped HLO, so that it fits in VMEM and HBM, and say what was done for that.

    What comes of the grouped module that it gives is the same.
    """

    def lower(module: Module) -> Lowered:
        lowered = Lowered(module, *fit_in_vmem(module, chip, options))
        lowered.share(into_results=False)
        return lowered

    lowered = lower(module)
    return relieved(lowered, chip, lower) if lowered.hbm > chip.hbm.bytes else (lowered, Relief())


@collection_paused()
def compile_tile(tile: TileModule, chip: Chip) -> Assembled:
    """Compile tile IR that was read as text, and so is checked.

    Raises:
        CompileError: it breaks a rule of tile IR, or asks for more memory, registers or tokens than there are.
        ProgramError: it breaks a rule of the instruction set.
    """
    verify_tile_module(tile, chip)
    return _assembled(tile, planned(tile, chip), chip, given=True)


def _assembled(
    tile: TileModule, plan: MemoryPlan, chip: Chip, remade: Sequence[Remade] = (), given: bool = False
) -> Assembled:
    """The program of tile IR, with its stages; `remade`: see `MemoryUse`; `given`: see `program_of`."""
    program, _, explain = program_of(tile, chip, plan, given)
    memory = MemoryUse(program, Layout(tile.block, plan, tile.buffers, tile.whole), remade)
    stages = Stages(
        {
            "tile.txt": lambda: print_tile_ir(tile),
            "plan.txt": plan.text,
            "memory.txt": memory.table,
            "program.s": lambda: disassemble(program),
            "explain.txt": lambda: as_text(explain),
        }
    )
    return Assembled(program, stages, memory, explain)


def fit_in_vmem(module: Module, chip: Chip, options: Options) -> tuple[Lowering, Fitted]:
    """Lower until everything fits, and split groups that no instruction can hold, in place.

    After a split everything is tried anew, so that what comes of it depends on the module alone.

    Raises:
        DoesNotFitError: it never does.
    """
    taken, splits = Names(c.name for c in module.computations), list[Decision]()
    while True:
        lowering, fitted = _fitted(module, chip, options)
        if not lowering.oversized:
            assert fitted is not None
            lowering.ctx.explain += splits
            return lowering, fitted
        splits += split(lowering.oversized, taken, module)


def _fitted(module: Module, chip: Chip, options: Options) -> tuple[Lowering, Fitted | None]:
    """Lower until everything fits: smaller tiles first, then values spilled to HBM, the largest first.

    None: there are groups that no instruction can hold.

    Raises:
        DoesNotFitError: it never does.
    """
    shares, spilled = _planned_memory(module, options.plan)
    share = 0
    before = ""
    lower = partial(lower_module, module, BlockBodies(chip), options, spilled)
    for _ in range(MOST_ATTEMPTS):
        lowering, owners = lower(shares[share])
        if lowering.oversized:
            return lowering, None
        verify_tile_ir(lowering.ctx.block)
        fitted = schedule(lowering.ctx, lowering.free)
        plan = fitted.plan
        if plan.failed is None:
            lowering.ctx.explain += _decided(lowering, fitted, shares[share], spilled)
            return lowering, fitted
        # Where smaller tiles do not help, still smaller ones will not.
        helpless, before = plan.failed.value.name == before, plan.failed.value.name
        if len(shares) == 1:
            break
        if share + 1 < len(shares) and not helpless:
            share += 1
            continue
        around = [buf for buf in plan.lives.alive(plan.failed.first) if buf in owners]
        if not around:
            break
        spilled.add(owners[max(around, key=lambda b: b.bytes)])
        share = 0
    raise DoesNotFitError(
        f"the module does not fit in the {chip.vmem.bytes} bytes of VMEM of chip {chip.name!r}: a buffer of"
        f" {plan.failed.value.bytes if plan.failed else 0} bytes has no place; use a chip with more VMEM"
    )


def _planned_memory(module: Module, plan: ForcedPlan | None) -> tuple[Sequence[float], set[Leaf]]:
    """The shares of VMEM to try, and what is spilled in any case: those of a plan, if it says so."""
    share = next((s for s in SHARES if plan is not None and plan.has("memory", "", _share_text(s))), None)
    if plan is None or share is None:
        return SHARES, set()
    leaves = (
        (i, k) for i in module.instructions() if i.opcode != "parameter" for k in range(len(leaf_shapes(i.shape)))
    )
    return (share,), {leaf for leaf in leaves if plan.has("memory", leaf[0].name, _spilled_text(leaf))}


def _share_text(share: float) -> str:
    return f"tiles of a group take up to {share:.0%} of the free VMEM"


def _spilled_text(leaf: Leaf) -> str:
    return f"result {leaf[1]} of {leaf[0].name} is spilled to HBM"


def _decided(lowering: Lowering, fitted: Fitted, share: float, spilled: Collection[Leaf]) -> Iterator[Decision]:
    """Decisions about spills, shares of VMEM, loops, and loads ahead."""
    yield from fitted.loops.decisions
    for leaf in sorted(lowering.spilled, key=lambda leaf: leaf[0].name):
        maker, size = leaf[0].name, leaf_shapes(leaf[0].shape)[leaf[1]].bytes
        why = "no place was left for it" if leaf in spilled else "too large to stay with what is alive beside it"
        yield Decision("memory", maker, _spilled_text(leaf), why, {"bytes": size})
    tiles = [Alternative(f"{s:.0%} of it", "did not fit") for s in SHARES[: SHARES.index(share)]]
    yield Decision(
        "memory", "", _share_text(share),
        "the largest share that fits", {"VMEM bytes used": fitted.plan.high_water}, tuple(tiles),
    )  # fmt: skip
    ahead = [Alternative(f"{s:.0%}", "did not fit") for s in AHEAD_SHARES[: AHEAD_SHARES.index(fitted.ahead)]]
    numbers = {"loads": sum(op.op == "dma.load" for op in fitted.block.ops()), "moved ahead": len(fitted.moved)}
    yield Decision(
        "schedule", "", f"loads ahead of their use take up to {fitted.ahead:.0%} of the free VMEM",
        "the largest share that fits", numbers, tuple(ahead),
    )  # fmt: skip


def _check_interface(module: Module, chip: Chip) -> None:
    """Refuse what cannot fit before any work is done on it."""
    parameters = sum(p.shape.bytes for p in module.entry.parameters)
    results = sum(s.bytes for s in leaf_shapes(module.entry.result.shape)) - most_in_place(module)
    if parameters + results > chip.hbm.bytes:
        raise HbmError(
            f"module {module.name!r} needs {parameters + results} bytes of HBM (parameters {parameters}, results"
            f" {results}), chip {chip.name!r} has {chip.hbm.bytes}"
        )
