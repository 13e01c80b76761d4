"""Infeed and outfeed of a run of the command line: npz archives of `infeed0`, ... and `outfeed0`, ..."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from systolith.isa.dtypes import dtype
from systolith.isa.errors import SystolithError
from systolith.isa.files import write_atomic
from systolith.runtime.arrays import Array, InputError, as_bits, load_beside
from systolith.runtime.device import element_type
from systolith.sim.host_queue import Item
from systolith.sim.host_times import ALL_THERE, HostTimes, HostTimesError
from systolith.sim.memory import Machine

QUEUE = 0
"""The host queues that modules use (`compiler/lower/host.py`)."""


class FeedFiles:
    """The host's side of one run.

    Args:
        path: of the arrays for the infeed; None: there are none.

    Attributes:
        times: when the arrays arrive: at the `cycles` of the file, if it has them.

    Raises:
        InputError: the file cannot be read, holds an array that has no element type, or other cycles than one for each.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._arrays, cycles = load_beside(path, "infeed", "cycles") if path else ([], None)
        self._machine: Machine | None = None
        for n, array in enumerate(self._arrays):
            try:
                element_type(array)
            except SystolithError as error:
                raise InputError(f"{path}: infeed{n}: {error}") from None
        self.times = ALL_THERE if cycles is None else self._times(cycles)

    def _times(self, cycles: Array) -> HostTimes:
        """When the arrays arrive."""
        count = len(self._arrays)
        if cycles.shape != (count,) or cycles.dtype.kind not in "iu":
            raise InputError(f"{self._path}: cycles: must be {count} integers, one for each array")
        try:
            return HostTimes({QUEUE: [(int(at), a.nbytes) for at, a in zip(cycles, self._arrays, strict=True)]})
        except HostTimesError as error:
            raise InputError(f"{self._path}: cycles: {error}") from None

    def attach(self, machine: Machine) -> None:
        """Fill the infeed queue of a run.

        Raises:
            InputError: the chip has none.
        """
        if self._arrays and not machine.infeed:
            raise InputError(f"{self._path}: chip {machine.chip.name} has no host queues (host.queues)")
        self._machine = machine
        for array in self._arrays:
            machine.infeed[QUEUE].push(array, element_type(array).name, bits=True)

    def check_taken(self) -> None:
        """Refuse what the run has left.

        Raises:
            InputError: there is some.
        """
        left = len(self._machine.infeed[QUEUE]) if self._machine and self._machine.infeed else 0
        if left:
            count = len(self._arrays)
            raise InputError(
                f"{self._path}: the run took {count - left} of {count} arrays: infeed{count - left} is left"
            )

    def put_out(self) -> list[Array]:
        """The arrays that the run has put out."""
        if self._machine is None or not self._machine.outfeed:
            return []
        queue, found = self._machine.outfeed[QUEUE], list[Array]()
        while items := queue.pop():
            found += map(_array, items)
        return found


def _array(item: Item) -> Array:
    """Its elements; bytes where the program does not say of which type."""
    return item.data.view(dtype(item.dtype).stored).reshape(item.dims) if item.dtype else item.data


def write_outfeed(path: Path, arrays: list[Array]) -> None:
    """Write arrays as `outfeed0`, `outfeed1`, ..."""
    named = {f"outfeed{n}": as_bits(array) for n, array in enumerate(arrays)}
    write_atomic(path, lambda handle: np.savez(handle, allow_pickle=False, **named))
