"""Arrays in the HBM of a device, to and from the host.

Every transfer is done when its call returns. Arrays lie in HBM dense and row-major, whatever the layout on the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from systolith.isa.dtypes import ELEMENT_TYPES, DType
from systolith.pjrt import profiler
from systolith.pjrt.devices import DeviceObject
from systolith.pjrt.entries import STRUCTURES
from systolith.pjrt.native import READY
from systolith.pjrt.objects import Object, array, drain, find
from systolith.pjrt.status import INVALID_ARGUMENT, UNIMPLEMENTED, PluginError
from systolith.pjrt.table import entry
from systolith.runtime.arrays import Array
from systolith.runtime.device import Buffer, allocate

# Element types in the order of `PJRT_Buffer_Type`.
_TYPES = """
invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz
s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn s1 u1
""".split()
TYPE_CODES = {name: code for code, name in enumerate(_TYPES)}

_LAYOUT = STRUCTURES["Layout"]
_TILED, _STRIDES = 0, 1


class BufferObject(Object):
    """A buffer of the runtime."""

    kind = "Buffer"

    def __init__(self, buffer: Buffer, device: DeviceObject) -> None:
        super().__init__()
        self.buffer = buffer
        self.device = device
        view, dims = self.view, buffer.shape
        view.type = TYPE_CODES[buffer.dtype.name]
        self._dims, self._order = _arrays(dims)  # kept, as they may leave the cache
        view.dims, view.num_dims = ctypes.addressof(self._dims), len(dims)
        view.layout_size, view.tiled_size = ctypes.sizeof(_LAYOUT), _LAYOUT.type.offset
        view.minor_to_major = ctypes.addressof(self._order)
        view.on_device_size_in_bytes = buffer.nbytes
        view.device, view.memory = device.address, device.memory.address
        view.event = READY
        view.buffer_pointer = buffer.raw().ctypes.data

    def deleted(self) -> None:
        """The array is gone; jaxlib may still ask for its shape."""
        self.view.is_deleted = True
        self.view.buffer_pointer = 0

    def released(self) -> None:
        self.buffer.delete()

    def contents(self) -> Array:
        """Its elements; not a copy."""
        return self.buffer.raw().view(self.buffer.dtype.stored).reshape(self.buffer.shape)


@lru_cache(maxsize=4096)
def _arrays(dims: tuple[int, ...]) -> tuple[Any, Any]:
    """C arrays of dimensions, and of their numbers from minor to major."""
    return array(ctypes.c_int64, dims), array(ctypes.c_int64, tuple(reversed(range(len(dims)))))


def element_type(code: int) -> DType:
    """The element type of a number of the API.

    Raises:
        PluginError: the machine has no such type.
    """
    name = _TYPES[code] if 0 <= code < len(_TYPES) else str(code)
    if name not in ELEMENT_TYPES:
        raise PluginError(UNIMPLEMENTED, f"element type {name}: the chip has none; convert the array first")
    return ELEMENT_TYPES[name]


def target(args: Any) -> DeviceObject:
    """The device that a call names, perhaps by its memory."""
    found: DeviceObject = find(args.memory).of if args.memory else find(args.device)
    return found


def integers(address: int | None, count: int) -> tuple[int, ...]:
    """A C array of int64_t."""
    return tuple((ctypes.c_int64 * count).from_address(address)) if address and count else ()


def _at(address: int, element: DType, dims: Sequence[int], strides: Sequence[int]) -> Array:
    """An array over memory of the host.

    Args:
        address: of the element whose indices are zeros.
        element, dims: its type and shape, which has elements.
        strides: bytes from an element to the next along each dimension; may be negative.
    """
    reach = [stride * (size - 1) for stride, size in zip(strides, dims, strict=True)]
    before, after = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    memory = (ctypes.c_char * (after - before + element.size)).from_address(address + before)
    return np.ndarray(dims, element.stored, memory, -before, strides)  # type: ignore[arg-type]


def _dense(element: DType, dims: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense array whose dimensions are, from minor to major, `order`."""
    strides, step = [0] * len(dims), element.size
    for d in order:
        strides[d], step = step, step * dims[d]
    return tuple(strides)


def _host_strides(layout: int | None, element: DType, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in bytes of an array of the host with a layout of the API.

    Raises:
        PluginError: the layout is tiled.
    """
    given = _LAYOUT.from_address(layout) if layout else None
    if given is not None and given.type == _STRIDES:
        return integers(given.minor_to_major, given.num_dims)
    if given is not None and given.num_tiles:
        raise PluginError(UNIMPLEMENTED, "a tiled layout on the host: ask for one without tiles")
    order = integers(given.minor_to_major, given.num_dims) if given is not None else reversed(range(len(dims)))
    return _dense(element, dims, tuple(order))


@entry("Client_BufferFromHostBuffer")
def from_host(args: Any) -> None:
    """Copy an array of the host into HBM; its memory is free to go when the call returns."""
    drain()
    device = target(args)
    element, dims = element_type(args.type), integers(args.dims, args.num_dims)
    order = tuple(reversed(range(len(dims))))
    if args.device_layout and _host_strides(args.device_layout, element, dims) != _dense(element, dims, order):
        raise PluginError(UNIMPLEMENTED, "arrays lie in HBM row-major: give no other layout of the device")
    strides = integers(args.byte_strides, args.num_byte_strides) or _dense(element, dims, order)
    buffer = allocate(device.device, element, dims)
    made = BufferObject(buffer, device)
    if buffer.nbytes:
        made.contents()[...] = _at(args.data, element, dims, strides)
    profiler.note(profiler.now(), device.device, to_device=True, size=buffer.nbytes)
    args.buffer, args.done_with_host_buffer = made.address, READY


@entry("Client_CreateUninitializedBuffer")
def uninitialized(args: Any) -> None:
    """A buffer of zeros."""
    drain()
    device = target(args)
    buffer = allocate(device.device, element_type(args.type), integers(args.dims, args.num_dims))
    args.buffer = BufferObject(buffer, device).address


@entry("Buffer_ToHostBuffer")
def to_host(args: Any) -> None:
    """Copy an array to memory of the host, or say how many bytes that takes."""
    source: BufferObject = find(args.src)
    buffer = source.buffer
    if not args.dst:
        args.dst_size = buffer.nbytes
        return
    strides = _host_strides(args.host_layout, buffer.dtype, buffer.shape)
    if not args.host_layout and args.dst_size < buffer.nbytes:
        raise PluginError(INVALID_ARGUMENT, f"the array takes {buffer.nbytes} bytes, the memory has {args.dst_size}")
    contents = source.contents()
    if buffer.nbytes:
        _at(args.dst, buffer.dtype, buffer.shape, strides)[...] = contents
    profiler.note(profiler.now(), source.device.device, size=buffer.nbytes)
    args.event = READY


@entry("Buffer_CopyRawToHost")
def copy_raw(args: Any) -> None:
    """Copy a range of a buffer's bytes to the host."""
    memory = find(args.buffer).buffer.raw()
    if not 0 <= args.offset <= args.offset + args.transfer_size <= memory.size:
        raise PluginError(
            INVALID_ARGUMENT, f"{args.transfer_size} bytes from {args.offset}: the buffer has {memory.size}"
        )
    ctypes.memmove(args.dst, memory.ctypes.data + args.offset, args.transfer_size)
    args.event = READY


@entry("Buffer_Delete")
def delete(args: Any) -> None:
    """Free a buffer's HBM; jaxlib takes no error."""
    gone: BufferObject = find(args.buffer)
    gone.buffer.delete()
    gone.deleted()


@entry("Buffer_IncreaseExternalReferenceCount")
def lend(_: Any) -> None:
    """For views of the device's memory by others (DLPack), whose list of devices has no simulated chip."""
    raise PluginError(
        UNIMPLEMENTED, "DLPack knows no memory of systolith's chips; give a copy on the host, np.asarray(array)"
    )


@entry("Buffer_CopyToDevice")
def copy_to_device(args: Any) -> None:
    """Copy a buffer to a device."""
    device = find(args.dst_device)
    args.dst_buffer = BufferObject(copied(find(args.buffer).buffer, device), device).address


@entry("Buffer_CopyToMemory")
def copy_to_memory(args: Any) -> None:
    """Copy a buffer to a device's HBM."""
    device = find(args.dst_memory).of
    args.dst_buffer = BufferObject(copied(find(args.buffer).buffer, device), device).address


def copied(source: Buffer, device: DeviceObject) -> Buffer:
    """A copy of a buffer on a device.

    Raises:
        SystolithError: the buffer was deleted, or the device has no room.
    """
    drain()
    contents = source.raw()
    buffer = allocate(device.device, source.dtype, source.shape)
    buffer.raw()[:] = contents
    return buffer
