"""Objects that jaxlib holds by the addresses of their views, and the memory that views point to.

jaxlib owns what it was given until it destroys it: until then the object is kept here. What it has destroyed is in a
list of native code (`native.py`), and is let go by `drain`, at the next call that needs memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from systolith.pjrt.native import TAKE, VIEWS, natives
from systolith.pjrt.status import INVALID_ARGUMENT, PluginError

_kept: dict[int, Object] = {}
_list = ctypes.c_uint64(0)
_take = natives()[TAKE]


class Object:
    """Something that jaxlib holds.

    Attributes:
        kind: what it is in the API.
        view: its memory; functions of native code read properties there.
        address: of the view; jaxlib's name of the object.
    """

    kind: ClassVar[str]

    def __init__(self, owned: bool = True, view: Any = None) -> None:
        """Make an object that jaxlib can find.

        Args:
            owned: jaxlib destroys it; else it is kept for ever.
            view: its memory, where that is more than the view of its kind.
        """
        self.view: Any = VIEWS[self.kind]() if view is None else view
        self.address = ctypes.addressof(self.view)
        self._memory: list[object] = []
        if owned:
            self.view.list = ctypes.addressof(_list)
        _kept[self.address] = self

    def text(self, field: str, value: str | bytes) -> None:
        """Set a field to a text, and the field of its size."""
        data = value.encode() if isinstance(value, str) else value
        setattr(self.view, field, self.hold(ctypes.create_string_buffer(data, len(data) + 1)))
        setattr(self.view, f"{field}_size", len(data))

    def list_of(self, field: str, count: str, others: Sequence[Object]) -> None:
        """Set a field to a list of objects, and `count` to their number."""
        setattr(self.view, field, self.hold(array(ctypes.c_void_p, tuple(o.address for o in others))))
        setattr(self.view, count, len(others))
        self._memory.append(list(others))

    def hold(self, memory: Any) -> int:
        """Keep memory as long as the object; its address."""
        self._memory.append(memory)
        return ctypes.addressof(memory)

    def released(self) -> None:
        """Jaxlib has destroyed it."""


@lru_cache(maxsize=4096)
def array(kind: Any, values: tuple[int, ...]) -> Any:
    """A C array; of one element at least, so that it has an address of its own."""
    return (kind * max(len(values), 1))(*values)


def find(address: int | None) -> Any:
    """The object that jaxlib names.

    Raises:
        PluginError: it has been destroyed, or is not of this plugin.
    """
    found = _kept.get(address or 0)
    if found is None:
        raise PluginError(INVALID_ARGUMENT, f"{address or 0:#x} is no object of systolith, or has been destroyed")
    return found


def drain() -> None:
    """Let go what jaxlib has destroyed."""
    if not _list.value:
        return
    taken = ctypes.c_uint64(0)  # other threads drain, too
    _take(ctypes.addressof(_list), ctypes.addressof(taken))
    address = taken.value
    while address:
        gone = _kept.pop(address)
        address = gone.view.next
        gone.released()
