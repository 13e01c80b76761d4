"""The functions of the table that need no Python, as native code.

jaxlib destroys objects whenever it likes: while an exception is pending, while the interpreter ends, after it has
ended.  Python cannot be entered then, so what can be called at any time is native: what destroys, what reads a
property, and what stands for Python once the interpreter is about to end.

An object that jaxlib sees is a block of memory, its *view*: two words of ours, then its properties, by which functions
that only read one answer. The first word chains views that jaxlib has destroyed into a list, whose head the second word
points to; Python empties the list when it is next called (`objects.py`). A view without a list is never freed. An error
is a view with its message behind it.

Every function takes the address of its arguments and returns an error, or 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.native.library import I64, Bodies, Function, Library
from systolith.pjrt.entries import ENTRIES, HEADER, Entry
from systolith.pjrt.status import CANCELLED, FAILED_PRECONDITION, UNIMPLEMENTED

WORDS = [("next", ctypes.c_uint64), ("list", ctypes.c_uint64)]
ERROR = [*WORDS, ("code", ctypes.c_int64), ("message_size", ctypes.c_uint64)]
TAKE, ENDED = "take", "ended"

_SELF = ctypes.sizeof(ctypes.c_void_p) * len(HEADER)
_TEXT = ctypes.sizeof(ctypes.c_uint64) * len(ERROR)
_END_MESSAGE = "systolith cannot be used any more: the Python interpreter is ending"

GETTERS = tuple(
    """
    Error_GetCode Client_PlatformName Client_ProcessIndex Client_PlatformVersion Client_Devices
    Client_AddressableDevices Client_AddressableMemories Client_TopologyDescription DeviceDescription_Id
    DeviceDescription_ProcessIndex DeviceDescription_Attributes DeviceDescription_Kind DeviceDescription_DebugString
    DeviceDescription_ToString Device_GetDescription Device_IsAddressable Device_LocalHardwareId
    Device_AddressableMemories Device_DefaultMemory Memory_Id Memory_Kind Memory_Kind_Id Memory_DebugString
    Memory_ToString Memory_AddressableByDevices Executable_Name Executable_NumReplicas Executable_NumPartitions
    Executable_NumOutputs Executable_GetCostAnalysis Executable_OutputMemoryKinds
    Executable_OutputElementTypes Executable_OutputDimensions Executable_Fingerprint
    LoadedExecutable_AddressableDevices LoadedExecutable_IsDeleted LoadedExecutable_Fingerprint Buffer_ElementType
    Buffer_Dimensions Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices Buffer_GetMemoryLayout
    Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_IsDeleted Buffer_IsOnCpu Buffer_ReadyEvent
    Buffer_UnsafePointer Buffer_OpaqueDeviceMemoryDataPointer TopologyDescription_PlatformName
    TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions TopologyDescription_Attributes
    """.split()
)
"""Functions whose results are properties of the object that they are about, by the names of the results."""

PLAIN = ("Plugin_Initialize", "Event_Destroy", "Event_Error", "Event_Await", "ExecuteContext_Destroy")
"""Functions that have nothing to do: work is done when the call that starts it returns, so every event is ready."""

READY = 1
"""The event, which nobody looks behind."""


def _view(kind: str) -> Any:
    """The view of a kind of object: our words, then a field for every result of its getters."""
    fields: dict[str, Any] = {}
    for name in GETTERS:
        entry = ENTRIES[name]
        if entry.kind == kind:
            fields |= {field: kind for field, kind in entry.struct._fields_ if field in entry.results}
    return type(f"{kind}View", (ctypes.Structure,), {"_fields_": [*WORDS, *fields.items()]})


VIEWS: dict[str, Any] = {kind: _view(kind) for kind in dict.fromkeys(ENTRIES[name].kind for name in GETTERS)}
VIEWS["Error"] = type("ErrorView", (ctypes.Structure,), {"_fields_": ERROR})


@cache
def natives() -> dict[str, Function]:
    """The native function of each entry that has one, and `TAKE` and `ENDED`."""
    library = Library(
        dict(_bodies()), __file__, repr([(e.name, e.struct and e.struct._fields_) for e in ENTRIES.values()])
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # jaxlib calls it after the interpreter has ended
    return {name: library[name] for name in _bodies()}


def _bodies() -> Bodies:
    known: dict[str, Callable[..., object]] = {
        "Error_Message": _message,
        "Event_IsReady": _is_ready,
        "Event_OnReady": _on_ready,
        **dict.fromkeys(PLAIN, _nothing),
        **{name: partial(_getter, ENTRIES[name]) for name in GETTERS},
        **{name: _destroy for name in ENTRIES if name.endswith("_Destroy") and name not in PLAIN},
        "Error_Destroy": _destroy_error,
        TAKE: _take,
        ENDED: partial(_error, FAILED_PRECONDITION, _END_MESSAGE),
    }
    for name in ENTRIES:
        known.setdefault(name, partial(_error, UNIMPLEMENTED, f"systolith does not implement PJRT_{name}"))
    return {name: (0, body) for name, body in known.items()}


def _nothing(b: ir.IRBuilder) -> None:
    """Return no error."""


def _at(b: ir.IRBuilder, base: Any, offset: int, kind: ir.Type = I64) -> Any:
    """A pointer to `kind` at `offset` bytes of an address."""
    return b.inttoptr(b.add(base, I64(offset)), kind.as_pointer())


def _arguments(b: ir.IRBuilder) -> Any:
    return b.ptrtoint(b.function.args[0], I64)


def _copies(entry: Entry) -> Iterator[tuple[int, int, int]]:
    """(bytes, their offset in the view, in the arguments) of each result."""
    view = VIEWS[entry.kind]
    for name in entry.results:
        there, here = getattr(view, name), getattr(entry.struct, name)
        yield here.size, there.offset, here.offset


def _getter(entry: Entry, b: ir.IRBuilder) -> None:
    arguments = _arguments(b)
    view = b.load(_at(b, arguments, _SELF))
    for size, there, here in _copies(entry):
        kind = ir.IntType(8 * size)
        b.store(b.load(_at(b, view, there, kind)), _at(b, arguments, here, kind))


def _message(b: ir.IRBuilder) -> None:
    struct = ENTRIES["Error_Message"].struct
    arguments = _arguments(b)
    view = b.load(_at(b, arguments, _SELF))
    b.store(b.add(view, I64(_TEXT)), _at(b, arguments, struct.message.offset))
    size = b.load(_at(b, view, VIEWS["Error"].message_size.offset))
    b.store(size, _at(b, arguments, struct.message_size.offset))


def _is_ready(b: ir.IRBuilder) -> None:
    byte = ir.IntType(8)
    b.store(byte(1), _at(b, _arguments(b), ENTRIES["Event_IsReady"].struct.is_ready.offset, byte))


def _on_ready(b: ir.IRBuilder) -> None:
    struct = ENTRIES["Event_OnReady"].struct
    arguments = _arguments(b)
    callback = b.load(_at(b, arguments, struct.callback.offset))
    given = b.load(_at(b, arguments, struct.user_arg.offset))
    b.call(b.inttoptr(callback, ir.FunctionType(ir.VoidType(), [I64, I64]).as_pointer()), [I64(0), given])


def _destroy(b: ir.IRBuilder) -> None:
    """Put the object's view in front of the list that it names."""
    view = b.load(_at(b, _arguments(b), _SELF))
    with b.if_then(b.icmp_unsigned("!=", view, I64(0))):
        head = b.load(_at(b, view, VIEWS["Error"].list.offset))
        with b.if_then(b.icmp_unsigned("!=", head, I64(0))):
            _push(b, _at(b, head, 0), view)


def _destroy_error(b: ir.IRBuilder) -> None:
    """The same; a call that Ctrl-C ended has brought its error to jaxlib by now: let Ctrl-C end the caller, too."""
    view = b.load(_at(b, _arguments(b), _SELF))
    with b.if_then(b.icmp_unsigned("!=", view, I64(0))):
        code = b.load(_at(b, view, VIEWS["Error"].code.offset))
        with b.if_then(b.icmp_unsigned("==", code, I64(CANCELLED))):
            signal = ir.FunctionType(ir.VoidType(), [])
            b.call(ir.Function(b.module, signal, "PyErr_SetInterrupt"), [])
    _destroy(b)


def _push(b: ir.IRBuilder, head: Any, view: Any) -> None:
    again, done = b.append_basic_block(), b.append_basic_block()
    b.branch(again)
    b.position_at_end(again)
    first = b.load_atomic(head, "monotonic", 8)
    b.store(first, _at(b, view, 0))
    b.cbranch(b.extract_value(b.cmpxchg(head, first, view, "release", "monotonic"), 1), done, again)
    b.position_at_end(done)


def _take(b: ir.IRBuilder) -> None:
    """Replace the head of a list by 0; arguments: the addresses of the head and of the word that gets it."""
    arguments = _arguments(b)
    head, result = (b.load(_at(b, arguments, offset)) for offset in (0, 8))
    b.store(b.atomic_rmw("xchg", _at(b, head, 0), I64(0), "acquire"), _at(b, result, 0))


def _error(code: int, message: str, b: ir.IRBuilder) -> Any:
    """Return an error that is a constant."""
    text = message.encode()
    words = [0, 0, code, len(text)]
    padded = text + b"\0" * (-len(text) % 8)
    words += [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    kind = ir.ArrayType(I64, len(words))
    constant = ir.GlobalVariable(b.module, kind, f"{b.function.name}.error")
    constant.global_constant, constant.linkage, constant.initializer = True, "private", kind(words)
    return b.ptrtoint(constant, I64)
