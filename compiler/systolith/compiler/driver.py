"""The compiler: HLO module to program, and a dump of every stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from systolith.compiler.bounds.bound import Bounds, bounds
from systolith.compiler.emit.known_programs import KnownPrograms
from systolith.compiler.errors import CompileError, DoesNotFitError, HbmError
from systolith.compiler.explain import Alternative, Decision, as_text, each_once
from systolith.compiler.groups.fusion import made_of
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.same import same
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.legality import check_legality
from systolith.compiler.lower.group_copies import GroupCopies
from systolith.compiler.lower.installed import register_installed
from systolith.compiler.memory.aliasing import most_in_place
from systolith.compiler.memory.rematerialise import Remade
from systolith.compiler.memory.report import Layout, MemoryUse
from systolith.compiler.memory.vmem import MemoryPlan
from systolith.compiler.ops.group import Group
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome, after_each, check_made, run_pass
from systolith.compiler.passes.pipeline import canonicalise, legalise
from systolith.compiler.plan import WHY
from systolith.compiler.plugins import LOWERINGS, installed
from systolith.compiler.pressure import Lowered, Relief, relieved
from systolith.compiler.schedule.program import complete, planned, program_of
from systolith.compiler.tile.ir import TileModule
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_module
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.compiler.vmem_pressure import fit_in_vmem
from systolith.isa.asm import disassemble
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known
from systolith.isa.collection import collection_paused
from systolith.isa.files import Fill, text_fill
from systolith.isa.program import Program

OPTIONAL = {
    "layer-loops": ("loop", "layers are written out", "layers in loops"),
    "slice-views": ("memory", "all dynamic slices are copied", "some are read where they lie"),
    "bf16-residuals": ("bf16", "values wait as they are", "some are rounded for later products"),
    "bf16-propagation": ("bf16", "values are stored as they are", "some are rounded for products"),
    "producer-fusion": ("prologue", "all operands of products are stored", "some are computed in tiles"),
    "product-blocking": ("region", "products one after another", "some in blocks of rows"),
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
        bounds: makes the bounds of its cycles; None: it was compiled from groups.
    """

    module: Module = field(kw_only=True)
    bounds: Callable[[], Bounds] | None = field(default=None, kw_only=True)


@collection_paused()
def compile_module(module: Module, chip: Chip, options: Options | None = None) -> Compiled:
    """Compile a module (which is brought into canonical form in place).

    Raises:
        CompileError: the module cannot be compiled for this chip; says why and what to do.
    """
    _check_interface(module, chip)
    return Front(module).compile(chip, options)


_Grouped = tuple[Module, list[Decision], set[str]]

GROUPED = 64
"""Results of passes that make groups that are kept, for chips that differ in what these read."""


@dataclass(frozen=True)
class Reused:
    """What compilations of one module have in common.

    Attributes:
        copies: of groups.
        programs: the last ones.
    """

    copies: GroupCopies = field(default_factory=GroupCopies)
    programs: KnownPrograms = field(default_factory=KnownPrograms)


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
        self._reused = Reused()
        self._grouping: Known[tuple[Module, Outcome]] = Known(GROUPED)
        self._modules: deque[tuple[str, Module, Module]] = deque(maxlen=GROUPED)

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
                compiled = _compiled(module, chip, options, self._reused, [*decisions, *left_out.values()])
                break
            except DoesNotFitError as problem:
                name = next((n for n in OPTIONAL if n in changed), None)
                if name is None:
                    raise
                kind, chosen, lost = OPTIONAL[name]
                left_out[name] = Decision(kind, "", chosen, "", {}, (Alternative(lost, str(problem)),))
        if options.plan is not None:
            compiled.explain += options.plan.unmet(compiled.explain)
        compiled.bounds = lambda: bounds(self.canonical, chip, options.precision)
        compiled.stages = Stages({"canonical.hlo": lambda: print_hlo(self.canonical)}) | compiled.stages
        return compiled

    def _grouped(self, chip: Chip, options: Options, left_out: Collection[str]) -> _Grouped:
        """The module in groups without some passes, what was decided, and the names of passes that changed it."""
        module, decisions, changed = self.canonical, list[Decision](), set[str]()
        spare: list[Module] = []
        for name in GROUPING:
            if name not in left_out:
                module, outcome = self._after(name, module, chip, options, spare)
                decisions += outcome.decisions
                changed |= {name} if outcome.changed else set()
        made = _copy(module, spare)
        if changed and options.complete and not after_each():
            check_made(made, "grouping")
        return made, decisions, changed

    def _after(
        self, name: str, module: Module, chip: Chip, options: Options, spare: list[Module]
    ) -> tuple[Module, Outcome]:
        """A module after a pass, and what came of that; a pass that changes nothing gives the same module.

        `spare`: a copy of the module, if there is one, which the pass may change; that of the result afterwards.
        """

        def run(chip: Chip) -> tuple[Module, Outcome]:
            copy = _copy(module, spare)
            outcome = run_pass(copy, GROUPING[name](chip, options), checked=options.complete and after_each())
            if outcome.changed:
                return self._made(name, module, copy), outcome
            spare.append(copy)
            return module, outcome

        if options.plan is not None:
            return run(chip)
        made = self._grouping.get((name, module, options.precision, options.complete), chip, run)
        if made[0] is not module:
            spare.clear()
        return made

    def _made(self, name: str, before: Module, after: Module) -> Module:
        """A module that a pass made, as it was if it made the same before: then what later passes made is known."""
        for made_by, of, made in tuple(self._modules):
            if made_by == name and of is before and same(made, after):
                return made
        self._modules.append((name, before, after))
        return after


def _copy(module: Module, spare: list[Module]) -> Module:
    """A copy of a module: one that is there already, or a new one."""
    return spare.pop() if spare else clone(module)


@collection_paused()
def compile_groups(module: Module, chip: Chip, options: Options | None = None) -> Compiled:
    """Compile a module of groups, as they were printed (`read_groups`); errors as for `compile_module`."""
    register_installed()
    _check_interface(module, chip)
    options = options or Options()
    check_legality(module, chip, options.elided, grouped=True)
    if options.plan is not None:
        raise CompileError("a plan has choices that were made before groups were: give it with the module itself")
    return _compiled(module, chip, options, Reused())


def _compiled(
    module: Module, chip: Chip, options: Options, reused: Reused, decided: Sequence[Decision] = ()
) -> Compiled:
    """Compile grouped HLO, autotuned if the options ask for it."""
    if options.autotune and options.tuner is None:
        raise CompileError("autotune needs a simulator; compile through systolith.api.Client, or give a tuner")
    if options.tuner is None:
        return compile_grouped(module, chip, options, decided, reused)
    return _tuned(module, chip, options, decided)


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
def compile_grouped(
    module: Module,
    chip: Chip,
    options: Options,
    decided: Sequence[Decision] = (),
    reused: Reused | None = None,
) -> Compiled:
    """Compile grouped HLO: every operation that runs is in a `Group`.

    `decided`: what was on the way there; `reused`: with other compilations.
    """
    reused = reused or Reused()
    lowered, relief = fit_module(module, chip, options, reused.copies)
    module = lowered.module
    tile = lowered.tile(records=options.probes)
    groups = [made_of(i) for i in module.instructions() if isinstance(i, Group)]
    given = bool(installed(LOWERINGS))
    made = _assembled(tile, lowered.fitted.plan, chip, relief.remade, given, reused.programs, options.complete)
    explain = each_once([*decided, *groups, *relief.decisions, *lowered.lowering.ctx.explain, *made.explain])
    before = Stages({"grouped.hlo": lambda: print_hlo(module)})
    after = Stages({"explain.txt": lambda: as_text(explain)})
    return Compiled(made.program, before | made.stages | after, made.memory, explain, module=module)


def fit_module(
    module: Module, chip: Chip, options: Options, copies: GroupCopies | None = None
) -> tuple[Lowered, Relief]:
    """Lower grouped HLO, so that it fits in VMEM and HBM, and say what was done for that.

    The grouped module that it gives is lowered to the same.
    """
    known = copies or GroupCopies()

    def lower(module: Module) -> Lowered:
        lowered = Lowered(module, *fit_in_vmem(module, chip, options, known))
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
    tile: TileModule,
    plan: MemoryPlan,
    chip: Chip,
    remade: Sequence[Remade] = (),
    given: bool = False,
    known: KnownPrograms | None = None,
    whole: bool = True,
) -> Assembled:
    """The program of tile IR, with its stages.

    `remade`: see `MemoryUse`; `given`, `known`: see `program_of`; `whole`: it is checked, and cycles are predicted.
    """
    program, made_of, explain = program_of(tile, chip, plan, given, known)
    if whole:
        complete(program, chip)
    memory = MemoryUse(program, Layout(tile.block, plan, tile.buffers, tile.whole, made_of), remade)
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


def _check_interface(module: Module, chip: Chip) -> None:
    """Refuse what cannot fit before any work is done on it."""
    parameters = sum(p.shape.bytes for p in module.entry.parameters)
    results = sum(s.bytes for s in module.entry.result.shape.arrays) - most_in_place(module)
    if parameters + results > chip.hbm.bytes:
        raise HbmError(
            f"module {module.name!r} needs {parameters + results} bytes of HBM (parameters {parameters}, results"
            f" {results}), chip {chip.name!r} has {chip.hbm.bytes}"
        )
