"""The state that programs see: memories, accumulators, weight tiles, buffers, host queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from systolith.isa.chip import Chip
from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.numerics.images import Bits, Floats
from systolith.isa.program import BufferDecl, Program
from systolith.sim.calls import Calls, Direct
from systolith.sim.host_calls import HostCalls
from systolith.sim.host_queue import HostQueue, QueuesByNumber
from systolith.sim.naming import Iterations, named

Bytes = npt.NDArray[np.uint8]
T = TypeVar("T")

_MAX_CACHED = 1 << 16
_LARGE = 1 << 20  # bytes that take longer to clear than to get from the system
_SPARE = 16  # times the bytes used: getting these from the system, a page each, takes longer than clearing all

POISON = 0x7FA57FA5  # a NaN as f32, and both its halves as bf16 and as f16


def shared_memory(owner: Bytes, chain: Sequence[BufferDecl]) -> Bytes:
    """The memory of a buffer in that of another one, which its aliases lead to."""
    offset = sum(b.offset for b in chain)
    parts = offset or any(b.offset or b.stack > 1 for b in chain)
    return owner[offset : offset + chain[0].bytes] if parts else owner


class SimulationError(SystolithError):
    """A program did something that the machine cannot do: which instruction, its HLO operation, value and limit."""


class Region(NamedTuple):
    """A memory as a stream sees it: its bytes, its name in messages, and the address of its first byte."""

    data: Bytes
    name: str
    address: int


@dataclass(frozen=True)
class Tile:
    """A weight tile.

    Attributes:
        values: [K, cols] f32, padded with zero columns (from `weight_tile`: perhaps a few more); integers are exact in
            f32.
        integer: it was loaded for integer products.
        address: of the values.
    """

    values: Floats
    integer: bool
    address: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", self.values.ctypes.data)


class Machine:
    """One core and its memories.

    Attributes:
        vmem, smem: uint8 arrays.
        acc: for each MXU, [acc_rows, cols] 32-bit images.
        shadow, active: for each MXU, the weight tile, None where none was loaded.
        buffers: HBM, a uint8 array for each entry of the buffer table.
        infeed, outfeed: host queues.
        host_calls: of functions of the host.
        links: link number to the machine at its other end.
        hostile: memory starts as NaNs instead of zeros.
        cache: prepared streams and kernels, by identity of their sources.
        calls: makes native calls; whoever looks at memory by other means calls its `wait` first.
        at: index of the instruction being executed, for messages.
        iterations: those in which it is executed.
        registers: SEQ's.
    """

    def __init__(self, program: Program, chip: Chip, buffers: Mapping[int, Bytes], hostile: bool = False) -> None:
        self.program = program
        self.chip = chip
        self.hostile = hostile
        self.vmem = self._fresh(chip.vmem.bytes, program.vmem_high_water)
        self.smem = self._fresh(chip.smem.bytes)
        m = chip.mxu
        self.acc: list[Bits] = [
            self._fresh(m.acc_rows * m.cols * 4, 0).view(np.uint32).reshape(m.acc_rows, m.cols) for _ in range(m.count)
        ]
        self.shadow: list[Tile | None] = [None] * m.count
        self.active: list[Tile | None] = [None] * m.count
        self.infeed = QueuesByNumber(chip.host.queues, lambda n: HostQueue(f"infeed queue {n}"))
        self.outfeed = QueuesByNumber(chip.host.queues, lambda n: HostQueue(f"outfeed queue {n}"))
        self.host_calls = HostCalls()
        self.links: dict[int, Machine] = {}
        self.buffers = self._bind(buffers)
        self.cache: dict[Any, Any] = {}
        self.calls: Calls = Direct()
        self._regions: dict[tuple[Space, int], Region] = {}
        self.at = -1
        self.iterations: Iterations = ()
        self.registers: Sequence[int | None] = (0,)

    def _fresh(self, size: int, used: int | None = None) -> Bytes:
        """Memory as it is before the run; `used`: how much of it is likely to be (a page that is not costs nothing)."""
        if not self.hostile:
            few = used is not None and size >= max(_LARGE, _SPARE * used)
            return np.frombuffer(mmap(-1, size), np.uint8) if few else np.zeros(size, np.uint8)
        return np.full(-(-size // 4), POISON, np.uint32).view(np.uint8)[:size]

    def _bind(self, given: Mapping[int, Bytes]) -> list[Bytes]:
        bound = {i: self._checked(i, data) for i, data in given.items()}
        for i in range(len(self.program.buffers)):
            chain = [i]
            while chain[-1] not in bound and self.program.buffers[chain[-1]].alias >= 0:
                chain.append(self.program.buffers[chain[-1]].alias)
                if len(chain) > len(self.program.buffers):
                    raise SimulationError(f"buffer {i} ({self.program.buffers[i].name}): aliases in a circle")
            owner = chain[-1]
            if owner not in bound:
                decl = self.program.buffers[owner]
                bound[owner] = np.frombuffer(decl.data, np.uint8).copy() if decl.data else self._fresh(decl.bytes)
            bound[i] = shared_memory(bound[owner], [self.program.buffers[n] for n in chain[:-1]])
        return [bound[i] for i in range(len(self.program.buffers))]

    def _checked(self, i: int, data: Bytes) -> Bytes:
        if not 0 <= i < len(self.program.buffers):
            raise SimulationError(f"buffer {i}: bound, but the program has {len(self.program.buffers)}")
        decl = self.program.buffers[i]
        if data.dtype != np.uint8 or data.ndim != 1 or data.size < decl.bytes:
            shape = f"{data.dtype}{list(data.shape)}"
            raise SimulationError(f"buffer {i} ({decl.name}): bound to {shape}, needs {decl.bytes} bytes")
        if not data.flags.c_contiguous:
            raise SimulationError(f"buffer {i} ({decl.name}): bound to bytes that do not lie side by side; copy them")
        return data

    def remember(self, key: Any, value: Any) -> None:
        """Put something into the cache, which is emptied when it grows too large."""
        if len(self.cache) >= _MAX_CACHED:
            self.cache.clear()
        self.cache[key] = value

    def kept(self, instr: Instruction, make: Callable[[Machine, Instruction], T]) -> T:
        """What `make` says of an instruction, whatever values it meets; kept for when the same one comes again."""
        key = (make, id(instr))
        found = self.cache.get(key)
        if found is None or found[0] is not instr:
            found = (instr, make(self, instr))
            self.remember(key, found)
        made: T = found[1]
        return made

    def region(self, stream: Stream) -> Region:
        """The memory that a stream addresses.

        Raises:
            SimulationError: there is no such buffer, MXU or link, or the space has no addresses.
        """
        return self.memory(stream.space, stream.buffer)

    def memory(self, space: Space, number: int) -> Region:
        """A memory by its space and number.

        Raises:
            SimulationError: there is no such buffer, MXU or link, or the space has no addresses.
        """
        key = (space, number)
        found = self._regions.get(key)
        if found is None:
            data, name = self._memory(space, number)
            found = self._regions[key] = Region(data, name, data.ctypes.data)
        return found

    def _memory(self, space: Space, number: int) -> tuple[Bytes, str]:
        if space is Space.VMEM:
            return self.vmem, "vmem"
        if space is Space.SMEM:
            return self.smem, "smem"
        if space is Space.HBM and number < len(self.buffers):
            return self.buffers[number], f"buffer {number} ({self.program.buffers[number].name})"
        if space is Space.ACC and number < len(self.acc):
            return self.acc[number].reshape(-1).view(np.uint8), f"accumulators of mxu {number}"
        if space is Space.LINK and number in self.links:
            return self.links[number].vmem, f"vmem beyond link {number}"
        raise self.error(f"no {space.name.lower()} number {number}")

    def error(self, message: str) -> SimulationError:
        """An error at the current instruction."""
        return error_at(self.program, self.at, message, self.iterations)


def error_at(program: Program, index: int, message: str, iterations: Iterations = ()) -> SimulationError:
    """An error that names an instruction, the HLO operation that it comes from, and the iterations that it is in."""
    if not 0 <= index < len(program.code):
        return SimulationError(message)
    return SimulationError(f"{named(program, index, iterations)}: {message}")
