"""The events of an instruction that energy is counted by (`chip_energy.py`): a function of it and its patterns.

Bytes are those that the ports move: elements outside of bounds count, HBM counts whole granules. A row of a matrix
product switches as many rows of the array as it has elements, and all columns; a vector operation all lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, cast

from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.kernel import CONST0, Kernel, MicroOp
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.opcodes import size_words
from systolith.isa.pattern import Pattern
from systolith.isa.timing import CostModel

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import Program

Events = Mapping[str, int]
_BYTES = {
    Space.VMEM: "vmem_byte",
    Space.SMEM: "smem_byte",
    Space.ACC: "mxu_acc_byte",
    Space.HOST: "host_byte",
    Space.LINK: "link_byte",
}
_SCALAR_BYTES = {"lds": 4, "sts": 4}
_FLOATS = frozenset("add sub min max eq ne lt le gt ge floor ceil rne rna trunc sign cvt round".split())


def operation(op: str) -> str:
    """The event of an element of a micro-operation."""
    stem, _, kind = op.partition(".")
    if MICROOPS[op].slot is Slot.TRANS:
        return "vpu_trans"
    if stem.startswith("mul"):
        return "vpu_mul"
    return "vpu_add" if stem in _FLOATS and ("f32" in kind or stem == "round") else "vpu_int"


def _matrix_key(args: Any) -> Hashable:
    src = args["src"]
    return src.space, src.pattern, args["row_loops"], args["integer"], args.get("accumulate")


def _vector_key(args: Any) -> Hashable:
    return args["kernel"], args["counts"], args["inner"], tuple([(s.space, s.pattern) for s in args["streams"]])


def _copy_key(args: Any) -> Hashable:
    src, dst = args["src"], args["dst"]
    return src.space, src.pattern, dst.space, dst.pattern


_KEYS: dict[str, Callable[[Any], Hashable]] = {
    "mxu.load": _matrix_key,
    "mxu.matmul": _matrix_key,
    "vpu.run": _vector_key,
    "dma.load": _copy_key,
    "dma.store": _copy_key,
    "xlu.shuffle": _copy_key,
    "xlu.reduce": _copy_key,
}
"""The arguments that the events of an instruction depend on; those of other opcodes depend on none."""


class EventModel:
    """Events of a program's instructions on a chip; those of the same patterns are counted once."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self._program = program
        self._chip = chip
        self._costs = CostModel(program, chip)
        self._known: dict[str, dict[Hashable, Events]] = {}

    def of(self, instr: Instruction) -> Events:
        """How many of each event an execution of the instruction is."""
        key, known = _KEYS.get(instr.op), self._known.setdefault(instr.op, {})
        which = key(instr.args) if key else None
        found = known.get(which)
        if found is None:
            found = known[which] = self._count(instr, self._streams(instr))
        return found

    def _streams(self, instr: Instruction) -> tuple[Stream, ...]:
        given = [instr.args[name] for name in ("src", "dst") if name in instr.args]
        return (*given, *instr.args.get("streams", ()))  # type: ignore[arg-type, misc]

    def _count(self, instr: Instruction, streams: tuple[Stream, ...]) -> Events:
        events: Counter[str] = Counter(seq_word=size_words(instr))
        if instr.op in _SCALAR_BYTES:
            events["smem_byte"] += _SCALAR_BYTES[instr.op]
        if instr.op == "vpu.run":
            self._vector(instr, streams, events)
        else:
            for stream in streams:
                self._moved(stream, self._pattern(stream).elements, events)
        if instr.op.startswith("xlu."):
            events["xlu_byte"] += self._bytes(streams[0])
        if instr.op in ("mxu.load", "mxu.matmul"):
            self._matrix(instr, streams[0], events)
        if any(stream.space is Space.HBM for stream in streams):
            events["hbm_byte"] += self._costs.of(instr).hbm_bytes
        return {name: n for name, n in events.items() if n}

    def _pattern(self, stream: Stream) -> Pattern:
        return self._program.patterns[stream.pattern]

    def _bytes(self, stream: Stream) -> int:
        pattern = self._pattern(stream)
        return pattern.elements * pattern.dtype.size

    def _moved(self, stream: Stream, elements: int, events: Counter[str]) -> None:
        """Elements through a port, and the list of their indices."""
        pattern = self._pattern(stream)
        if stream.space in _BYTES:
            events[_BYTES[stream.space]] += elements * pattern.dtype.size
        if pattern.indirect >= 0:
            events["vmem_byte"] += 4 * pattern.counts[pattern.indirect]

    def _matrix(self, instr: Instruction, src: Stream, events: Counter[str]) -> None:
        pattern, integer = self._pattern(src), bool(instr.args["integer"])
        if instr.op == "mxu.load":
            events["mxu_weight_byte"] += pattern.elements * (1 if integer else 2)
            return
        cols = self._chip.mxu.cols
        rows = prod(pattern.counts[: cast(int, instr.args["row_loops"])])
        events["mxu_mac_s8" if integer else "mxu_mac_bf16"] += pattern.elements * cols
        events["mxu_acc_byte"] += rows * cols * 4 * (2 if instr.args["accumulate"] else 1)

    def _vector(self, instr: Instruction, streams: tuple[Stream, ...], events: Counter[str]) -> None:
        kernel = self._program.kernels[cast(int, instr.args["kernel"])]
        counts, inner = cast(tuple[int, ...], instr.args["counts"]), cast(int, instr.args["inner"])
        outer = prod(counts[: len(counts) - inner])
        for ops, times in _sections(kernel, outer, prod(counts)):
            for m in ops:
                self._micro(m, times, streams, events)

    def _micro(self, m: MicroOp, times: int, streams: tuple[Stream, ...], events: Counter[str]) -> None:
        elements = self._chip.vpu.lanes * self._chip.vpu.sublanes * times
        if m.op in ("ld", "st"):
            self._moved(streams[m.imm], times * prod(self._pattern(streams[m.imm]).counts[-2:]), events)
        else:
            events[operation(m.op)] += elements
        registers = sum(s < CONST0 for s in m.srcs) + (m.dst >= 0)
        events["vpu_register_byte"] += 4 * elements * registers


def _sections(kernel: Kernel, outer: int, total: int) -> tuple[tuple[tuple[MicroOp, ...], int], ...]:
    return ((kernel.prologue.ops, outer), (kernel.body.ops, total), (kernel.epilogue.ops, outer))
