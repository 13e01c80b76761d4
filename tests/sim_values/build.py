"""Small programs made by hand for the tests: patterns, kernels and instructions with few words."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Operand, Space, Stream
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Origin, Program, Role
from systolith.sim.memory import Machine
from systolith.sim.sequencer import ValueRun, run_values

Array = npt.NDArray[Any]
TINY: Chip = load_chip("tiny")


class Builder:
    """A program in the making; every method that adds returns the number that instructions name it by."""

    def __init__(self, chip: Chip = TINY) -> None:
        self.chip = chip
        self.program = Program("test", chip.name, chip.digest())
        self.data: dict[int, Array] = {}

    def pattern(
        self,
        dtype: str,
        counts: Sequence[int],
        strides: Sequence[int],
        coords: Sequence[Coord] = (),
        fill: int = 0,
        indirect: int = -1,
    ) -> int:
        p = Pattern(DTYPES[dtype], tuple(counts), tuple(strides), tuple(coords), fill, indirect)
        self.program.patterns.append(p)
        return len(self.program.patterns) - 1

    def dense(self, dtype: str, counts: Sequence[int], coords: Sequence[Coord] = (), fill: int = 0) -> int:
        size = DTYPES[dtype].size
        strides = [size * prod(counts[i + 1 :]) for i in range(len(counts))]
        return self.pattern(dtype, counts, strides, coords, fill)

    def vmem(self, pattern: int, base: Operand = 0, **more: Any) -> Stream:
        return Stream(Space.VMEM, pattern, base, **more)

    def kernel(
        self,
        body: Sequence[tuple[Any, ...]],
        prologue: Sequence[tuple[Any, ...]] = (),
        epilogue: Sequence[tuple[Any, ...]] = (),
        constants: Sequence[int] = (),
    ) -> int:
        """Each operation is (name, dst, sources, stream or immediate)."""

        def section(ops: Sequence[tuple[Any, ...]]) -> Section:
            made = tuple(MicroOp(o[0], o[1], tuple(o[2]), o[3] if len(o) > 3 else 0) for o in ops)
            return Section(made, len(made))

        name = f"k{len(self.program.kernels)}"
        self.program.kernels.append(
            Kernel(name, section(body), 1, section(prologue), section(epilogue), tuple(constants))
        )
        return len(self.program.kernels) - 1

    def buffer(self, array: Array, name: str = "") -> int:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        number = len(self.program.buffers)
        self.program.buffers.append(
            BufferDecl(name or f"b{number}", Role.PARAMETER, "u8", (raw.size,), raw.size, number)
        )
        self.data[number] = raw
        return number

    def add(self, op: str, unit: int = 0, **args: Any) -> int:
        self.program.code.append(Instruction(op, args, unit))
        self.program.origins.append(Origin(hlo=f"%op{len(self.program.code)}"))
        self.program.debug.append(len(self.program.code) - 1)
        return len(self.program.code) - 1

    def run_kernel(
        self,
        kernel: int,
        counts: Sequence[int],
        streams: Sequence[Stream],
        inner: int = 0,
        serial: int = 0,
        scalars: Sequence[Operand] = (0, 0, 0, 0),
    ) -> int:
        args: dict[str, Any] = {"counts": tuple(counts), "streams": tuple(streams), "scalars": tuple(scalars)}
        return self.add("vpu.run", kernel=kernel, inner=inner, serial=serial, **args)

    def run(self, memory: dict[int, Array] | None = None, hostile: bool = False) -> ValueRun:
        """Run with arrays put into VMEM at the given addresses first."""
        if not self.program.code or self.program.code[-1].op != "halt":
            self.add("halt")

        def setup(machine: Machine) -> None:
            for address, array in (memory or {}).items():
                raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                machine.vmem[address : address + raw.size] = raw

        return run_values(self.program, self.chip, self.data, hostile, setup=setup)


def take(machine: Machine, address: int, like: Array) -> Array:
    """The array of `like`'s type and shape at a VMEM address."""
    return machine.vmem[address : address + like.nbytes].view(like.dtype).reshape(like.shape).copy()
