"""A program, as a binary holds it and the simulator runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from systolith.isa.chip_schema import Chip
from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Instruction
from systolith.isa.kernel import Kernel
from systolith.isa.pattern import Pattern

Image = bytes


ENTRIES = 1 << 16
"""Of the buffer table that streams name."""


class Role(StrEnum):
    """The purpose of a buffer; a state begins with its data and keeps its contents from run to run.

    A part is an entry of a stack, in the memory of another buffer, which says what that is for.

    Infeed and outfeed have no memory: they say what array a host stream moves, whose base is their entry.  So do those
    of a call of a function of the host (`host_functions.py`): what it sends, and what it takes.
    """

    PARAMETER = "parameter"
    RESULT = "result"
    CONSTANT = "constant"
    TEMP = "temp"
    STATE = "state"
    PART = "part"
    INFEED = "infeed"
    OUTFEED = "outfeed"
    CALL = "call"
    RETURN = "return"


FROM_HOST = (Role.INFEED, Role.RETURN)
TO_HOST = (Role.OUTFEED, Role.CALL)
FEEDS = (*FROM_HOST, *TO_HOST)
"""Roles of what is moved by host queues."""


@dataclass(frozen=True)
class BufferDecl:
    """An entry of the buffer table: an HBM allocation that the host binds before the run.

    Attributes:
        name: the HLO instruction it holds, or a name made from it.
        role: parameter and result buffers are numbered by `number` (flattened order), infeed and outfeed by their host
            queue; constants carry `data`, and operands of calls the call's `Signature`.
        dtype: XLA's element type name.
        dims: shape; the array is dense, row-major.
        bytes: size of the allocation.
        number: parameter or result number, or host queue; -1 otherwise.
        data: initial contents, for constants; a call's signature.
        alias: buffer-table entry that this one shares its memory with; -1: none (results returned in place).
        offset: bytes of that memory before it.
        stack: so many entries from this one on, all of as many bytes, are one stack: a stream names any of them by a
            register.
        config: of infeed and outfeed, the name of their queue on the host; empty: it has none.
        sizes: for each dimension the number of the parameter (of a result: of the result) that holds how much of it
            there is, an s32; -1: all of it.  Empty: all of everything.
    """

    name: str
    role: Role
    dtype: str
    dims: tuple[int, ...]
    bytes: int
    number: int = -1
    data: Image = b""
    alias: int = -1
    sizes: tuple[int, ...] = ()
    config: str = ""
    offset: int = 0
    stack: int = 1


@dataclass(frozen=True)
class TokenDecl:
    """A counting token: exactly one queue signals it, exactly one waits for it (queue names as in `queues.py`)."""

    producer: str
    consumer: str


@dataclass(frozen=True)
class Origin:
    """Where an instruction comes from, for reports.

    Attributes:
        hlo: name of the HLO instruction whose result it makes.
        group: name of the fusion group.
        what: its purpose there, such as `load lhs`, `matmul`, `epilogue`.
        macs: useful multiply-accumulates of one execution (padding and masked tails not counted).
        expected: what a run without data takes for the word that an `lds` reads, if it has no decisions; -1: nothing.
    """

    hlo: str = ""
    group: str = ""
    what: str = ""
    macs: int = 0
    expected: int = -1


@dataclass(frozen=True)
class GroupInfo:
    """A fusion group, for reports: its HLO instructions, floating-point operations, bytes of its inputs and outputs.

    Attributes:
        executions: how often it runs.
        planned: cycles of all executions as the compiler estimated them to choose tiles; 0: it did not.
        predicted: cycles of all executions by closed forms of the code that it made.
        root: the HLO instruction that most of its work is for: a product or reduction; empty: it has none.
        places: (HLO instruction, `op_name`, source file and line) of the root and of what it makes, as far as the HLO's
            metadata says.
    """

    name: str
    kind: str
    hlo: tuple[str, ...] = ()
    opcodes: tuple[str, ...] = ()
    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    executions: int = 1
    planned: int = 0
    predicted: int = 0
    root: str = ""
    places: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Location:
    """Where an array lies at a point of the program.

    Attributes:
        value: name of the HLO value.
        space: "hbm" or "vmem"; "stack": in entries of the buffer table from `buffer` on; "view": only the run knows,
            since it is what the probe of group `value`, which named a part of an array or made a value before, found.
        buffer: buffer-table entry, for HBM.
        address: byte offset of element 0.
        dtype: XLA's element type name.
        dims, strides: shape in elements, strides in bytes.
        register: what it holds is added to the address; r0: nothing.
    """

    value: str
    space: str
    buffer: int
    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    register: int = 0


@dataclass(frozen=True)
class Probe:
    """For checks: a fusion group's inputs, as they lie before instruction `first`, and outputs, after `last`.

    Attributes:
        group: name of the group's `fusion` instruction in the grouped module.
        first, last: instruction indices (inclusive).
    """

    group: str
    first: int
    last: int
    inputs: tuple[Location, ...]
    outputs: tuple[Location, ...]


@dataclass
class Program:
    """Everything a binary holds.

    Attributes:
        chip, chip_digest: name and digest of the chip that it is for.
        target: that chip; None where only its name is known.
    """

    name: str
    chip: str
    chip_digest: str
    code: list[Instruction] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    buffers: list[BufferDecl] = field(default_factory=list)
    tokens: list[TokenDecl] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    debug: list[int] = field(default_factory=list)
    groups: list[GroupInfo] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    vmem_high_water: int = 0
    target: Chip | None = field(default=None, compare=False, repr=False)

    def configs(self, role: Role) -> dict[int, str]:
        """Of the infeed or outfeed queues that arrays are declared for, by number: their configs."""
        return {b.number: b.config for b in self.buffers if b.role is role}

    def host_queue(self, role: Role, config: int | str) -> int:
        """The number of the infeed or outfeed queue of a config; the empty one is that of a program that has no others.

        A number is itself, of programs without configs as text, too.

        Raises:
            ProgramError: the program has no such queue.
        """
        if not isinstance(config, str):
            return config
        configs = self.configs(role)
        named = {name: number for number, name in configs.items() if name}
        if config in named:
            return named[config]
        if not config and (not named or len(configs) == 1 or 0 not in named.values()):
            return 0
        if not named and config.isascii() and config.isdecimal():
            return int(config)
        there = ", ".join(map(repr, sorted(named))) or "none"
        raise ProgramError(f"program {self.name}: no {role} has config {config!r}; configs: {there}")

    def host_names(self, role: Role, count: int) -> list[int | str]:
        """What the host calls the first `count` infeed or outfeed queues: configs, if there are several, or numbers."""
        configs = self.configs(role)
        several = len(set(configs.values())) > 1
        return [(several and configs.get(n, "")) or n for n in range(count)]

    @classmethod
    def on(cls, chip: Chip, name: str) -> Program:
        """An empty program for a chip."""
        return cls(name, chip.name, chip.digest(), target=chip)
