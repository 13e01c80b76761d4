"""Which fields of a chip a computation reads: for a chip with the same values there it has the same result."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar

from systolith.isa.chip_schema import Chip, value_of

T = TypeVar("T")

Reads = Mapping[str, Any]
"""Values of fields, by their dotted names."""

_MARKS = count()
_CHIPS = 64
"""Chips, and recordings of one, whose results are found by their digests: those that asked last."""

_ORIGIN, _PREFIX, _READS = "_origin", "_prefix", "_reads"


def recording(chip: Chip) -> tuple[Chip, Reads]:
    """The chip as one that notes which of its fields are read, and those noted so far.

    A field is not there until it is read for the first time, so that reading costs no more than of any chip.  To hash
    a group of fields, or to compare it, reads all of them.  Name, provenance and digest are not noted.  The digest is
    of this recording alone, so that caches by digests have nothing for it that was read of another chip.
    """
    reads: dict[str, Any] = {}
    made: Chip = _recorder(chip, "", reads)
    vars(made).update(name=chip.name, provenance=chip.provenance, declared=chip.declared)
    vars(made)["_digest"] = f"{chip.digest()}.{next(_MARKS)}"
    return made, reads


def holds(reads: Reads, chip: Chip) -> bool:
    """Whether a chip has the values that were read of another."""
    return all(value_of(chip, name) == value for name, value in reads.items())


class Known(Generic[T]):
    """Results of one computation for keys and chips, found again for any chip that has the same in what was read.

    To look for one reads of the chip no more than to compute it would: fields are compared in the order in which they
    were read, and which one is read next depends on the values of those before alone.  Threads may share it.

    Args:
        most: the weight of the results that are kept, those of the keys that were asked for last.
        weight: of one result; 1 each if not given.
    """

    def __init__(self, most: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._most, self._weight, self._held = most, weight, 0
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, list[tuple[Reads, T]]] = OrderedDict()
        self._of_chips: OrderedDict[str, dict[Hashable, tuple[T]]] = OrderedDict()

    def get(
        self, key: Hashable, chip: Chip, make: Callable[[Chip], T], fits: Callable[[T], bool] = lambda _: True
    ) -> T:
        """A result of `make`, which is given a recording of the chip, and reads no other; one that `fits`."""
        digest = chip.digest()
        with self._lock:
            of_chip = self._of_chips.get(digest, {}).get(key)
            known = tuple(self._kept.get(key, ()))
            if known:
                self._kept.move_to_end(key)
        if of_chip is not None and fits(of_chip[0]):
            return of_chip[0]  # all that was read of this chip, or recording, is on record
        for reads, value in known:
            if fits(value) and holds(reads, chip):
                break
        else:
            made, reads = recording(chip)
            value = make(made)
            known = ()
        with self._lock:
            if not known:
                self._keep(key, reads, value)
            self._of_chips.setdefault(digest, {})[key] = (value,)
            self._of_chips.move_to_end(digest)
            if len(self._of_chips) > _CHIPS:
                self._of_chips.popitem(last=False)
        return value

    def _keep(self, key: Hashable, reads: Reads, value: T) -> None:
        self._kept.setdefault(key, []).append((reads, value))
        self._held += self._weight(value)
        while self._held > self._most and self._held > self._weight(value):
            self._forget_one()

    def _forget_one(self) -> None:
        """The oldest result of the key that was asked for least recently."""
        key, known = next(iter(self._kept.items()))
        self._held -= self._weight(known.pop(0)[1])
        if not known:
            del self._kept[key]
        self._of_chips.clear()


def _recorder(origin: Any, prefix: str, reads: dict[str, Any]) -> Any:
    kind: Any = type(origin)
    made: Any = object.__new__(_recording_class(kind))
    vars(made).update({_ORIGIN: origin, _PREFIX: prefix, _READS: reads})
    return made


@lru_cache(maxsize=64)
def _recording_class(cls: Any) -> type:
    names = frozenset(f.name for f in fields(cls))

    def read(self: Any, name: str) -> Any:
        """A field that is not there yet."""
        if name not in names:
            raise AttributeError(f"{cls.__name__} has no {name!r}")
        value, path, reads = getattr(vars(self)[_ORIGIN], name), vars(self)[_PREFIX] + name, vars(self)[_READS]
        if is_dataclass(value):
            value = _recorder(value, f"{path}.", reads)
        else:
            reads[path] = value
        vars(self)[name] = value
        return value

    compared = [f.name for f in fields(cls) if f.compare]

    def equal(self: Any, other: object) -> Any:
        """As plain ones are, whichever of both records."""
        if not isinstance(other, cls):
            return NotImplemented
        return [getattr(self, n) for n in compared] == [getattr(other, n) for n in compared]

    return type(cls.__name__, (cls,), {"__getattr__": read, "__eq__": equal, "__hash__": cls.__hash__})
