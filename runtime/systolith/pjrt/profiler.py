"""`jax.profiler`: the device's timeline in the traces that JAX takes.

PJRT's profiler extension: jaxlib makes a profiler of the plugin when a trace starts, and asks it for its part of the
trace when that stops: an XSpace (`xplane.py`) with a plane for each device that was used.  What runs and copies
meanwhile is noted with the time on the host's clock at which it was called; from there on times are the chip's.

Source: `xla/backends/profiler/plugin/profiler_c_api.h` and `xla/pjrt/c/pjrt_c_api_profiler_extension.h` of OpenXLA.
"""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from itertools import count
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar

from systolith.pjrt.status import INTERNAL, line_of

if TYPE_CHECKING:  # it takes long to import
    from systolith.pjrt.xplane import Noted
    from systolith.runtime.device import Device
    from systolith.runtime.run import Run

TYPE = 1  # PJRT_Extension_Type_Profiler
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_KINDS: dict[str, Any] = {"z": ctypes.c_size_t, "i": ctypes.c_int32, "p": ctypes.c_void_p}
# Fields behind the structure's size: `:z` is a size_t, `:i` an int; others are pointers.
_FUNCTIONS = {
    "error_destroy": "priv error",
    "error_message": "priv error message message_size:z",
    "error_get_code": "priv error code:i",
    "create": "options options_size:z profiler",
    "destroy": "profiler",
    "start": "profiler",
    "stop": "profiler",
    "collect_data": "profiler buffer buffer_size:z",
}


def _structure(name: str, fields: str) -> Any:
    parts = [word.partition(":") for word in fields.split()]
    places = [("struct_size", ctypes.c_size_t), *((field, _KINDS[kind or "p"]) for field, _, kind in parts)]
    return type(name, (ctypes.Structure,), {"_fields_": places})


_STRUCTURES = {name: _structure(name, fields) for name, fields in _FUNCTIONS.items()}


class _Table(ctypes.Structure):
    """`PLUGIN_Profiler_Api`."""

    _fields_: ClassVar[Any] = (
        ("struct_size", ctypes.c_size_t),
        ("priv", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
    )


class _Extension(ctypes.Structure):
    """`PJRT_Profiler_Extension`."""

    _fields_: ClassVar[Any] = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("profiler_api", ctypes.c_void_p),
        ("traceme_context_id", ctypes.c_int64),
    )


class _Profiler:
    """One trace: what was noted between its start and its stop, and its bytes once they were asked for."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.data: Any = None


_numbers = count(1)
_profilers: dict[int, _Profiler] = {}
_errors: dict[int, Any] = {}
_running: dict[int, _Profiler] = {}
"""Profilers between start and stop, by their handles."""


def now() -> int:
    """Nanoseconds of the host's clock if a trace is being taken, else 0."""
    return time_ns() if _running else 0


def note(began: int, device: Device, run: Run | None = None, to_device: bool = False, size: int = 0) -> None:
    """Note what was called at `began` (`now()`): a run, or else a copy of `size` bytes to or from the device."""
    if began:
        from systolith.pjrt.xplane import Noted

        for profiler in [*_running.values()]:
            profiler.noted.append(Noted(began, device, run, to_device, size))


def _create(args: Any) -> None:
    args.profiler = number = next(_numbers)
    _profilers[number] = _Profiler()


def _destroy(args: Any) -> None:
    _running.pop(args.profiler, None)
    _profilers.pop(args.profiler, None)


def _start(args: Any) -> None:
    profiler = _running[args.profiler] = _profilers[args.profiler]
    profiler.noted, profiler.data = [], None


def _stop(args: Any) -> None:
    _running.pop(args.profiler, None)


def _collect_data(args: Any) -> None:
    """The first call has no buffer, and gets one; a second one may bring its own."""
    from systolith.pjrt.xplane import xspace

    profiler = _profilers[args.profiler]
    if profiler.data is None:
        data = xspace(profiler.noted)
        profiler.data = ctypes.create_string_buffer(data, len(data))
    size = len(profiler.data)
    if args.buffer:
        ctypes.memmove(args.buffer, profiler.data, size)
    else:
        args.buffer = ctypes.addressof(profiler.data)
    args.buffer_size = size


def _error_destroy(args: Any) -> None:
    _errors.pop(args.error, None)


def _error_message(args: Any) -> None:
    text = _errors[args.error]
    args.message, args.message_size = ctypes.addressof(text), len(text) - 1


def _error_get_code(args: Any) -> None:
    args.code = INTERNAL


_IMPLEMENTED: dict[str, Callable[[Any], None]] = {
    "error_destroy": _error_destroy, "error_message": _error_message, "error_get_code": _error_get_code,
    "create": _create, "destroy": _destroy, "start": _start, "stop": _stop, "collect_data": _collect_data,
}  # fmt: skip


def _callback(name: str) -> Any:
    struct, function = _STRUCTURES[name], _IMPLEMENTED[name]

    def call(address: int) -> int:
        try:
            function(struct.from_address(address))
        except BaseException as error:
            traceback.print_exception(error)
            number = next(_numbers)
            _errors[number] = ctypes.create_string_buffer(f"systolith: {line_of(error)}".encode(errors="replace"))
            return number
        return 0

    return _FUNCTION(call)


def extension() -> Any:
    """The extension, with all that it refers to; the caller keeps it for as long as the process lives."""
    callbacks = {name: _callback(name) for name in _FUNCTIONS}
    addresses = {name: ctypes.cast(function, ctypes.c_void_p).value for name, function in callbacks.items()}
    table = _Table(struct_size=ctypes.sizeof(_Table), **addresses)
    made = _Extension(
        struct_size=ctypes.sizeof(_Extension), type=TYPE, profiler_api=ctypes.addressof(table), traceme_context_id=0
    )
    made.kept = table, callbacks
    return made
