"""Which fields of a chip a computation reads: for a chip with the same values there it has the same result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from systolith.isa.chip_schema import Chip, value_of

Reads = Mapping[str, Any]
"""Values of fields, by their dotted names."""

_MARKS = count()
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
