"""Infeed and outfeed of a run of the command line.

Arrays are npz archives of `infeed0`, ... and `outfeed0`, ..., of queues with a config `CONFIG/infeed0`, ...; `cycles`
(`CONFIG/cycles`) are those at which they arrive.  Times of both directions come from a JSON file.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from systolith.isa.chip_fields import Ge
from systolith.isa.dtypes import dtype
from systolith.isa.errors import BinaryError, ProgramError, SystolithError
from systolith.isa.files import read_bytes, write_atomic
from systolith.isa.json_values import read_json
from systolith.isa.program import Role
from systolith.runtime.arrays import Array, InputError, as_bits, element_type, load_archive, numbered_arrays
from systolith.sim.host_queue import HostQueue, Item
from systolith.sim.host_times import HostTimes, HostTimesError, Steps
from systolith.sim.memory import Machine

_Count = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class _Times:
    """The contents of a file of times: (cycle, bytes) pairs by config."""

    infeed: dict[str, list[tuple[_Count, _Count]]] = field(default_factory=dict)
    outfeed: dict[str, list[tuple[_Count, _Count]]] = field(default_factory=dict)


class FeedFiles:
    """The host's side of one run.

    Args:
        path: of the arrays for infeeds; None: there are none.
        times: of the file of times; None: there is none.

    Attributes:
        times: when the host sends and takes bytes.

    Raises:
        InputError: a file cannot be read, holds an array that has no element type, or times that are none.
    """

    def __init__(self, path: Path | None, times: Path | None = None) -> None:
        self._path = path
        self._arrays: dict[str, list[Array]] = {}
        self._machine: Machine | None = None
        given = _read_times(times) if times else _Times()
        infeed: dict[str, Steps] = dict(given.infeed)
        for config, found in _by_config(load_archive(path, "infeed") if path else {}).items():
            cycles = found.pop("cycles", None)
            arrays = self._arrays[config] = numbered_arrays(
                found, "infeed", f"{path}: {config}" if config else f"{path}"
            )
            for n, array in enumerate(arrays):
                try:
                    element_type(array)
                except SystolithError as error:
                    raise InputError(f"{path}: {_name(config, f'infeed{n}')}: {error}") from None
            if cycles is not None and config in infeed:
                raise InputError(f"{path}: {_name(config, 'cycles')}: {times} has times of that queue, too")
            if cycles is not None:
                infeed[config] = _arrivals(cycles, arrays, f"{path}: {_name(config, 'cycles')}")
        self.times = HostTimes(infeed, dict(given.outfeed))

    def attach(self, machine: Machine) -> None:
        """Fill the infeed queues of a run.

        Raises:
            InputError: the chip or the program has none for an array.
        """
        self._machine = machine
        for config, arrays in self._arrays.items():
            queue = self._queue(machine, config)
            for array in arrays:
                queue.push(array, element_type(array).name, bits=True)

    def _queue(self, machine: Machine, config: str) -> HostQueue:
        chip = machine.chip
        if not chip.host.queues:
            raise InputError(f"{self._path}: chip {chip.name} has no host queues (host.queues)")
        try:
            number = machine.program.host_queue(Role.INFEED, config)
        except ProgramError as error:
            more = "" if config else "; name arrays CONFIG/infeed0, ..."
            raise InputError(f"{self._path}: {error}{more}") from None
        if number >= len(machine.infeed):
            raise InputError(
                f"{self._path}: infeed queue {number}: chip {chip.name} has {chip.host.queues} (host.queues)"
            )
        return machine.infeed[number]

    def check_taken(self) -> None:
        """Refuse what the run has left.

        Raises:
            InputError: there is some.
        """
        if self._machine is None:
            return
        for config, arrays in self._arrays.items():
            left, count = len(self._queue(self._machine, config)), len(arrays)
            if left:
                first = _name(config, f"infeed{count - left}")
                raise InputError(f"{self._path}: the run took {count - left} of {count} arrays: {first} is left")

    def put_out(self) -> dict[str, Array]:
        """The arrays that the run has put out, by the names that they have in a file."""
        found: dict[str, Array] = {}
        if self._machine is not None:
            queues = self._machine.outfeed
            for name, queue in zip(self._machine.program.host_names(Role.OUTFEED, len(queues)), queues, strict=True):
                arrays = [_array(item) for items in iter(queue.pop, None) for item in items]
                found |= {_name(str(name or ""), f"outfeed{n}"): array for n, array in enumerate(arrays)}
        return found


def _read_times(path: Path) -> _Times:
    try:
        times = read_json(read_bytes(path, InputError), _Times)
        HostTimes(dict(times.infeed), dict(times.outfeed))
    except (BinaryError, HostTimesError) as error:
        raise InputError(f"{path}: not times of the host: {error}") from None
    return times


def _arrivals(cycles: Array, arrays: list[Array], what: str) -> Steps:
    """When the arrays of a queue arrive."""
    if cycles.shape != (len(arrays),) or cycles.dtype.kind not in "iu":
        raise InputError(f"{what}: must be {len(arrays)} integers, one for each array")
    steps = [(int(at), a.nbytes) for at, a in zip(cycles, arrays, strict=True)]
    try:
        HostTimes({0: steps})
    except HostTimesError as error:
        raise InputError(f"{what}: {error}") from None
    return steps


def _by_config(found: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Arrays of an archive by config, then by the rest of their names."""
    split: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, array in found.items():
        config, _, rest = name.rpartition("/")
        split[config][rest] = array
    return split


def _name(config: str, name: str) -> str:
    return f"{config}/{name}" if config else name


def _array(item: Item) -> Array:
    """Its elements; bytes where the program does not say of which type."""
    return item.data.view(dtype(item.dtype).stored).reshape(item.dims) if item.dtype else item.data


def write_outfeed(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays under their names."""
    named = {name: as_bits(array) for name, array in arrays.items()}
    write_atomic(path, lambda handle: np.savez(handle, allow_pickle=False, **named))
