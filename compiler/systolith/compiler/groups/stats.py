"""Statistics of groups for reports: operations and bytes as XLA's cost analysis counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from systolith.compiler.hlo.cost.analysis import TRANSCENDENTAL
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.text.stack_frames import source_lines
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.matmul import contraction_of
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.reduction_builder import scan_steps
from systolith.compiler.ops.table import ROOTS, Family, family
from systolith.compiler.passes.expand.scans import scanned
from systolith.isa.program import GroupInfo

_MOVES = (Family.GIVEN, Family.NAME, Family.MOVEMENT, Family.DMA)
"""Families without arithmetic; nor have these two."""
_COPIES = ("copy", "convert")


def group_infos(module: Module, planned: Mapping[str, int]) -> list[GroupInfo]:
    """A row for each group, in program order; those in loops are counted as often as they run, where that is known.

    Args:
        module: grouped.
        planned: cycles of one execution of each group, by name, as its tiles were chosen by.
    """
    lines = source_lines(module.preamble)
    found = [_info(i, times, lines) for i, times in executed(module.entry) if isinstance(i, Group)]
    return [replace(g, planned=planned.get(g.name, 0) * g.executions) for g in found]


def executed(computation: Computation, times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Every instruction that runs, in program order, those of loops and branches included, and how often it does.

    Of loops that do not say for how long, one iteration counts; what is in a group is not looked at.
    """
    for i in computation.instructions:
        yield i, times
        if i.opcode == "while":
            turns = trip_count(i)
            if turns is None:
                yield from executed(i.computation("condition"), times * 2)
            yield from executed(i.computation("body"), times * (turns or 1))
        elif i.opcode == "conditional":
            for branch in i.called:
                yield from executed(branch, times)


def _info(group: Group, executions: int, lines: Mapping[int, str]) -> GroupInfo:
    inside = [i for i in group.body.instructions if i.opcode != "parameter"]
    counts = [work(i) for i in inside]
    moved = 0 if group.unit is Unit.VIEW else group.shape.bytes + sum(o.shape.bytes for o in group.operands)
    return GroupInfo(
        group.name,
        group.kind,
        tuple(i.name for i in inside),
        tuple(i.opcode for i in inside),
        sum(f for f, _ in counts),
        sum(t for _, t in counts),
        moved,
        executions,
        root=group.root.name if family(group.root) in ROOTS else "",
        places=tuple(
            dict.fromkeys(filter(None, (_place(group.root.name, group.root, lines), _place(group.name, group, lines))))
        ),
    )


def _place(name: str, i: Instruction, lines: Mapping[int, str]) -> tuple[str, str, str] | None:
    """Where the user's program computes it: name of the HLO instruction, `op_name`, source file and line."""
    metadata = i.attributes.get("metadata")
    if not isinstance(metadata, dict):
        return None
    op_name, line = str(metadata.get("op_name", "")), lines.get(int(metadata.get("stack_frame_id", 0)), "")
    if "source_file" in metadata:
        line = f"{metadata['source_file']}:{metadata.get('source_line', 0)}"
    return (name, op_name, line) if op_name or line else None


def work(i: Instruction) -> tuple[int, int]:
    """(floating-point or integer operations, transcendental functions) of an instruction."""
    of = family(i)
    if of in _MOVES or i.opcode in _COPIES or (not i.shape.is_array and of is not Family.REDUCTION):
        return 0, 0
    if of is Family.CONTRACTION:
        c = contraction_of(i)
        return 2 * c.lhs.inside(Box.whole(c.sizes)), 0
    inner = [work(j) for j in i.called[0].instructions] if i.called else []
    once = (sum(f for f, _ in inner), sum(t for _, t in inner))
    if i.opcode == "scan":
        return once[0] * scan_steps(i), once[1] * scan_steps(i)
    if i.opcode == "reduce":
        times = max(0, i.operands[0].shape.size - next(i.shape.leaves()).size)
        return once[0] * times, once[1] * times
    if i.opcode == "reduce-window":
        window = 2 if scanned(i) else prod(d.size for d in i.window.dims)
        times = next(i.shape.leaves()).size * max(0, window - 1)
        return once[0] * times, once[1] * times
    if i.opcode in TRANSCENDENTAL:
        return 0, i.shape.size
    return i.shape.size * max(1, once[0]), i.shape.size * once[1]
