"""The compiler: HLO module to program, and a dump of every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from systolith.compiler.assemble import assemble, line_bytes, probes
from systolith.compiler.errors import CompileError
from systolith.compiler.fusion import Fuse
from systolith.compiler.group_info import group_infos
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.printer import print_hlo
from systolith.compiler.legality import check_legality
from systolith.compiler.lowering import Lowering, Options
from systolith.compiler.memory_plan import MemoryPlan, plan_memory, value_at
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.placement import Leaf, leaf_shapes, place
from systolith.compiler.schedule import Lookahead, prefetch
from systolith.compiler.tile.ir import Block, Buf, TileOp
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_ir
from systolith.compiler.views import recast
from systolith.compiler.walk import Walk, result_leaves, stored_directly
from systolith.isa.asm import disassemble
from systolith.isa.chip import Chip
from systolith.isa.program import Program, Role
from systolith.isa.verify import verify_program

SHARES = (0.4, 0.25, 0.15, 0.08, 0.04)
"""Part of the free VMEM that one group's tiles may take: tried in turn (the rest is for what runs ahead)."""

AHEAD_SHARES = (0.5, 0.3, 0.15, 0.0)
"""Part of the free VMEM that loads ahead of their use may take: tried in turn."""

MOST_ATTEMPTS = 40


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
class Compiled:
    """Result of a compilation.

    Attributes:
        program: what runs.
        grouped: the grouped module.
        stages: text of each stage by name, in order, made when asked for: `canonical.hlo`, `grouped.hlo`, `tile.txt`,
            `plan.txt`, `program.s`, and `explain.txt`.
        explain: choices that the cost models made, a line each.
        module: the grouped module itself.
    """

    program: Program
    module: Module
    stages: Stages
    explain: list[str] = field(default_factory=list)

    def dump(self, folder: Path) -> None:
        """Write every stage to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.stages.items():
            (folder / name).write_text(text, encoding="utf-8")


def compile_module(module: Module, chip: Chip, options: Options | None = None) -> Compiled:
    """Compile a module (which is changed in place).

    Raises:
        CompileError: the module cannot be compiled for this chip; says why and what to do.
    """
    _check_interface(module, chip)
    canonicalise(module)
    check_legality(module, chip)
    canonical = clone(module)
    run_passes(module, [Fuse()])
    compiled = compile_grouped(module, chip, options or Options())
    compiled.stages = Stages({"canonical.hlo": lambda: print_hlo(canonical)}) | compiled.stages
    return compiled


def compile_grouped(module: Module, chip: Chip, options: Options) -> Compiled:
    """Compile grouped HLO: every group is a `fusion` instruction."""
    walk, fitted = _fit(module, chip, options)
    ctx, plan = walk.ctx, fitted.plan
    _check_hbm(module, ctx.buffers, chip)
    program, ops = assemble(module.name, fitted.block, ctx.buffers, plan, chip)
    program.groups = group_infos(module)
    if options.probes:
        program.probes = probes(walk.records, ops, fitted.moved, plan, ctx.buffers)
    verify_program(program, chip)
    stages = Stages(
        {
            "grouped.hlo": lambda: print_hlo(module),
            "tile.txt": lambda: print_tile_ir(fitted.block),
            "plan.txt": lambda: _plan_text(plan),
            "program.s": lambda: disassemble(program),
            "explain.txt": lambda: "\n".join(ctx.explain) + "\n",
        }
    )
    return Compiled(program, module, stages, ctx.explain)


@dataclass
class Fitted:
    """A lowering that fits: its scheduled operations, the loads that were moved, the addresses."""

    block: Block
    moved: set[TileOp]
    plan: MemoryPlan


def _fit(module: Module, chip: Chip, options: Options) -> tuple[Walk, Fitted]:
    """Lower until everything fits: smaller tiles first, then values spilled to HBM, the largest first.

    Raises:
        CompileError: it never does.
    """
    spilled: set[Leaf] = set()
    share = 0
    for _ in range(MOST_ATTEMPTS):
        walk, owners = _lower(module, chip, options, spilled, SHARES[share])
        verify_tile_ir(walk.ctx.block)
        fitted = _schedule(walk, chip)
        plan = fitted.plan
        if plan.failed is None:
            return walk, fitted
        if share + 1 < len(SHARES):
            share += 1
            continue
        around = [v.buf for v in value_at(plan.lives, plan.failed.first) if v.buf in owners]
        if not around:
            break
        spilled.add(owners[max(around, key=lambda b: b.bytes)])
        share = 0
    raise CompileError(
        f"the module does not fit in the {chip.vmem.bytes} bytes of VMEM of chip {chip.name!r}: a buffer of"
        f" {plan.failed.buf.bytes if plan.failed else 0} bytes has no place; use a chip with more VMEM"
    )


def _schedule(walk: Walk, chip: Chip) -> Fitted:
    """Move loads ahead as far as memory allows."""
    free = chip.vmem.bytes - max(walk.placement.live.values(), default=0)
    loads = max(1, chip.fifo.depth - 2)
    for part in AHEAD_SHARES:
        moved: set[TileOp] = set()
        block = prefetch(walk.ctx.block, Lookahead(int(free * part), loads if part else 0), moved)
        plan = plan_memory(block, walk.ctx.whole, chip.vmem.bytes, chip.smem.bytes, line_bytes(chip))
        fitted = Fitted(block, moved, plan)
        if plan.failed is None:
            break
    return fitted


def _lower(
    module: Module, chip: Chip, options: Options, spilled: set[Leaf], share: float
) -> tuple[Walk, dict[Buf, Leaf]]:
    entry = module.entry
    direct = stored_directly(entry)
    placement = place(module, chip.vmem.bytes, share, spilled, direct)
    ctx = Lowering(chip, module, options)
    walk = Walk(ctx, placement)
    results = []
    shapes = leaf_shapes(entry.result.shape)
    for number, (leaf, shape) in enumerate(zip(result_leaves(entry), shapes, strict=True)):
        array = ctx.table(f"result{number}", Role.RESULT, shape.dtype, shape.dims, number)
        results.append((leaf, recast(array, leaf_shapes(leaf[0].shape)[leaf[1]].dims)))
    walk.entry(entry, results)
    return walk, walk.owners


def _check_interface(module: Module, chip: Chip) -> None:
    """Refuse what cannot fit before any work is done on it."""
    parameters = sum(p.shape.bytes for p in module.entry.parameters)
    results = module.entry.result.shape.bytes
    if parameters + results > chip.hbm.bytes:
        raise CompileError(
            f"module {module.name!r} needs {parameters + results} bytes of HBM (parameters {parameters}, results"
            f" {results}), chip {chip.name!r} has {chip.hbm.bytes}"
        )


def _check_hbm(module: Module, buffers: list[Buf], chip: Chip) -> None:
    total = sum(b.bytes for b in buffers)
    if total > chip.hbm.bytes:
        parts = ", ".join(
            f"{role} {sum(b.bytes for b in buffers if b.decl is not None and b.decl.role is role)}" for role in Role
        )
        raise CompileError(
            f"module {module.name!r} needs {total} bytes of HBM ({parts}), chip {chip.name!r} has {chip.hbm.bytes}"
        )


def _plan_text(plan: MemoryPlan) -> str:
    lines = [f"high water {plan.high_water}"]
    lines += [
        f"{plan.address[v.buf]:>10} {v.buf.bytes:>10} {v.first:>7} {v.last:>7} {v.buf.space.name} {v.buf.name}"
        for v in plan.lives
    ]
    return "\n".join(lines) + "\n"
