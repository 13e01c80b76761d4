"""From expression nodes to VPU kernels.

A `KernelBuilder` gives each node a virtual register, a constant slot or a stream, and collects micro-operations for the
three sections of a kernel; `build` has them scheduled.  Kernels are cached by content: the same operations give the
same `Kernel` object, named after its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from systolith.compiler.errors import LimitError
from systolith.compiler.ops.expression import Carried, Const, Coordinate, Inside, Load, Micro, Node, topological
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, MAX_STREAMS, NCONSTS, Kernel, MicroOp
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.schedule import VIRTUAL0, schedule_kernel


@dataclass(frozen=True)
class KernelSource:
    """A kernel before scheduling: micro-operations on virtual registers (see `isa.schedule`)."""

    body: tuple[MicroOp, ...]
    prologue: tuple[MicroOp, ...] = ()
    epilogue: tuple[MicroOp, ...] = ()
    constants: tuple[int, ...] = ()


@dataclass
class KernelBuilder:
    """Collects the micro-operations of one kernel.

    Attributes:
        streams: what each stream is, by number: a load, the coordinates it holds, a set of bounds, or the number of
            an output.
        constants: 32-bit images.
        carried: register of each accumulator.
        held: register of each node (by id) that the prologue computed.
        sections: micro-operations so far.
    """

    streams: list[Load | tuple[Coordinate, ...] | Inside | int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    carried: dict[int, int] = field(default_factory=dict)
    sections: dict[str, list[MicroOp]] = field(default_factory=lambda: {"prologue": [], "body": [], "epilogue": []})
    held: dict[int, int] = field(default_factory=dict)
    _next: int = VIRTUAL0

    def register(self) -> int:
        """A fresh virtual register."""
        self._next += 1
        return self._next - 1

    def constant(self, image: int) -> int:
        """Operand number of a constant.

        Raises:
            LimitError: the kernel has too many.
        """
        if image not in self.constants:
            if len(self.constants) == NCONSTS:
                raise LimitError(f"a vector kernel needs more than {NCONSTS} constants")
            self.constants.append(image)
        return CONST0 + self.constants.index(image)

    def stream(self, what: Load | tuple[Coordinate, ...] | Inside | int) -> int:
        """A new stream's number."""
        self.streams.append(what)
        return len(self.streams) - 1

    def emit(self, section: str, op: str, *srcs: int, dst: int | None = None, imm: int = 0) -> int:
        """Append a micro-operation; gives its destination register."""
        target = -1 if MICROOPS[op].slot is Slot.STORE else self.register() if dst is None else dst
        self.sections[section].append(MicroOp(op, target, srcs, imm))
        return target

    def lower(self, section: str, roots: Sequence[Node]) -> list[int]:
        """Append what computes the roots; gives their operand numbers."""
        order = self._needed(roots)
        coordinates = self._coordinate_streams(order)
        where = dict(self.held)
        for node in order:
            if isinstance(node, Const):
                where[id(node)] = self.constant(node.image)
            elif isinstance(node, Carried):
                where[id(node)] = self.carried[node.number]
            elif isinstance(node, Load):
                where[id(node)] = self.emit(section, "ld", imm=self.stream(node))
            elif isinstance(node, Coordinate):
                stream, number = coordinates[node]
                where[id(node)] = self.emit(section, "coord", imm=number * 16 + stream)
            elif isinstance(node, Inside):
                where[id(node)] = self.emit(section, "inside", imm=self.stream(node))
            elif isinstance(node, Micro):
                where[id(node)] = self.emit(section, node.op, *(where[id(s)] for s in node.sources))
            else:
                raise TypeError(f"{type(node).__name__} has to be specialised before it is lowered")
        return [where[id(r)] for r in roots]

    def hold(self, nodes: Sequence[Node]) -> None:
        """Compute nodes in the prologue; the body uses their registers."""
        for node, register in zip(nodes, self.lower("prologue", nodes), strict=True):
            self.held[id(node)] = register

    def _needed(self, roots: Sequence[Node]) -> list[Node]:
        """Nodes below the roots, sources first, but for those that are held and what only those use."""
        if not self.held:
            return topological(roots)
        found: dict[int, Node] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if id(node) not in found and id(node) not in self.held:
                found[id(node)] = node
                stack.extend(node.sources if isinstance(node, Micro) else ())
        return [n for n in topological(roots) if id(n) in found]

    def carry(self, section: str, values: Sequence[int]) -> None:
        """Let carried register n hold operand `values[n]` from here on, all at once.

        The value of another carried register is copied first, as it may be overwritten.
        """
        others = set(self.carried.values())
        moved = [
            self.emit(section, "mov", value) if value in others and value != self.carried[n] else value
            for n, value in enumerate(values)
        ]
        for n, value in enumerate(moved):
            self._carry(section, self.carried[n], value, moved.count(value) == 1)

    def _carry(self, section: str, target: int, value: int, alone: bool) -> None:
        """Let a register hold an operand's value.

        The operation that makes the value writes the register itself where nothing after it reads the old value and no
        other register is to hold it; else it is copied.
        """
        ops = self.sections[section]
        at = next((k for k, o in enumerate(ops) if o.dst == value), None)
        if section == "body" and at is not None and value != target and alone:
            after = {s for o in ops[at + 1 :] for s in o.srcs}
            if target not in after and all(o.dst != target for o in ops):
                ops[at:] = [replace(o, srcs=tuple(target if s == value else s for s in o.srcs)) for o in ops[at:]]
                ops[at] = replace(ops[at], dst=target)
                return
        self.emit(section, "mov", value, dst=target)

    def _coordinate_streams(self, order: list[Node]) -> dict[Coordinate, tuple[int, int]]:
        """Stream and number of each coordinate, four to a stream."""
        found = [n for n in order if isinstance(n, Coordinate)]
        placed: dict[Coordinate, tuple[int, int]] = {}
        for start in range(0, len(found), 4):
            four = tuple(found[start : start + 4])
            stream = self.stream(four)
            placed.update({c: (stream, k) for k, c in enumerate(four)})
        return placed

    def source(self) -> KernelSource:
        """The kernel so far.

        Raises:
            LimitError: more streams than an instruction has.
        """
        if len(self.streams) > MAX_STREAMS:
            raise LimitError(f"a vector kernel needs {len(self.streams)} streams; an instruction has {MAX_STREAMS}")
        prologue, body, epilogue = (tuple(self.sections[s]) for s in ("prologue", "body", "epilogue"))
        return KernelSource(body, prologue, epilogue, tuple(self.constants))


def build(chip: Chip, source: KernelSource) -> Kernel:
    """The scheduled kernel of a source; the same object for the same source and chip.

    Raises:
        LimitError: it does not fit in the registers.
    """
    return _kernels.get(source, chip, lambda chip: _build(source, chip))


_kernels: Known[Kernel] = Known(4096)


def _build(source: KernelSource, chip: Chip) -> Kernel:
    name = kernel_name(source)
    try:
        return schedule_kernel(name, source.prologue, source.body, source.epilogue, source.constants, chip)
    except ProgramError as e:
        raise LimitError(str(e)) from None


def kernel_name(source: KernelSource) -> str:
    """The first operations and a digest of the content."""
    text = repr((source.prologue, source.body, source.epilogue, source.constants))
    ops = [o.op.split(".")[0] for o in source.body if MICROOPS[o.op].slot not in (Slot.LOAD, Slot.STORE)]
    stem = "_".join(dict.fromkeys(ops[:3])) or "copy"
    return f"{stem}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
