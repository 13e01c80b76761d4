"""The table of functions that jaxlib calls: native ones, and Python's through ctypes."""

from __future__ import annotations

import atexit
import ctypes
import os
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from systolith.pjrt.entries import ENTRIES, MAJOR, MINOR, Table
from systolith.pjrt.large_stack import end_all
from systolith.pjrt.native import ENDED, ERROR, PLAIN, natives
from systolith.pjrt.objects import Object
from systolith.pjrt.profiler import extension
from systolith.pjrt.status import INTERNAL, code_of, line_of

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

Implementation = Callable[[Any], None]
_implemented: dict[str, Implementation] = {}


_LATE = "systolith.pjrt.executables"
"""Imported when a function of it is first called: it takes long, and a process that has JAX may use other devices."""
_OF_PROGRAMS = """
Client_Compile Executable_DeserializeAndLoad Executable_GetCompiledMemoryStats Executable_OptimizedProgram
Executable_Serialize Executable_SizeOfGeneratedCodeInBytes LoadedExecutable_Delete LoadedExecutable_Execute
LoadedExecutable_GetExecutable
""".split()
"""The entries that it has."""


def entry(name: str) -> Callable[[Implementation], Implementation]:
    """Make a function of an argument structure the one for an entry; what it raises is the call's error."""
    assert name in ENTRIES, name

    def register(function: Implementation) -> Implementation:
        _implemented[name] = function
        return function

    return register


class Error(Object):
    """An error on its way to jaxlib: the message stands behind the view."""

    kind = "Error"

    def __init__(self, code: int, message: str) -> None:
        data = message.encode(errors="replace")
        fields = [*ERROR, ("text", ctypes.c_char * (len(data) + 1))]
        view: Any = type("ErrorText", (ctypes.Structure,), {"_fields_": fields})()
        view.code, view.message_size, view.text = code, len(data), data
        super().__init__(view=view)


def error_of(error: BaseException) -> int:
    """An exception as an error: its status, and one line; `KeyboardInterrupt` is raised again when it is destroyed."""
    code = code_of(error)
    message = line_of(error)
    if isinstance(error, KeyboardInterrupt):
        message = "interrupted"
    elif code == INTERNAL:
        if os.environ.get("SYSTOLITH_TRACEBACK"):
            traceback.print_exception(error)
        message = f"a fault of systolith: {type(error).__name__}: {message} (SYSTOLITH_TRACEBACK=1 shows where)"
    return Error(code, f"systolith: {message}").address


def _callback(name: str, function: Implementation | None) -> Any:
    struct = ENTRIES[name].struct

    def call(address: int) -> int:
        nonlocal function
        try:
            if function is None:
                import_module(_LATE)
                function = _implemented[name]
            function(struct.from_address(address))
        except BaseException as error:
            return error_of(error)
        return 0

    return _FUNCTION(call)


def nothing() -> int:
    """The address of a function that does nothing: a deleter of what an object keeps."""
    return natives()[PLAIN[0]].address


class Api:
    """The table, with all that it refers to.

    Attributes:
        capsule: as `jax._src.xla_bridge.register_plugin` takes it.
    """

    def __init__(self) -> None:
        functions = natives()
        self._ended, self._nothing = functions[ENDED].address, nothing()
        self._callbacks = {name: _callback(name, _implemented.get(name)) for name in {*_implemented, *_OF_PROGRAMS}}
        addresses = {name: functions[name].address for name in ENTRIES}
        addresses |= {name: ctypes.cast(c, ctypes.c_void_p).value or 0 for name, c in self._callbacks.items()}
        version = Table.major.offset - Table.version_size.offset + 2 * ctypes.sizeof(ctypes.c_int32)
        self._extension = extension()
        self._table = Table(
            struct_size=ctypes.sizeof(Table),
            extension_start=ctypes.addressof(self._extension),
            version_size=version,
            major=MAJOR,
            minor=MINOR,
            **addresses,
        )
        # jaxlib reads the table for as long as the process lives.
        for kept in (self._table, self._extension):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = make(ctypes.addressof(self._table), b"pjrt_c_api", None)
        atexit.register(self._end)

    def _end(self) -> None:
        """From now on no call enters Python: the interpreter ends.  jaxlib dies of an error from what deletes."""
        for name in self._callbacks:
            setattr(self._table, name, self._nothing if name.endswith("_Delete") else self._ended)
        end_all()
