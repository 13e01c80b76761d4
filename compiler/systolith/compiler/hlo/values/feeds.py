"""Infeed and outfeed: queues of values between the host and each device, taken and put in program order."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.feed_configs import queue_name
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.values.convert import from_file
from systolith.compiler.hlo.values.devices import Device
from systolith.compiler.hlo.values.host_calls import given_arrays, marked
from systolith.isa.host_functions import call


def infeed(i: Instruction, device: Device) -> Literal:
    """The next value of the device's infeed, and a token.  Of the empty tuple nothing is read (operation semantics).

    Raises:
        HloError: there is none left, or it is not of the shape.
    """
    shape = i.shape.elements[0]
    if marked(i) is not None:
        return device.answers.popleft(), ()
    if shape.is_tuple and not shape.elements:
        return (), ()
    name = queue_name(i, device.configs)
    what = f"infeed{f' {name!r}' if name else ''}"
    queue = device.infeeds.get(name)
    if not queue:
        taken = len(device.host.infeeds.get(name, ()))
        raise HloError(f"device {device.number} has no {what} left, after {taken}; give as many values as it takes")
    return fitting(queue.popleft(), shape, f"{what} of device {device.number}"), ()


def outfeed(i: Instruction, value: Literal, device: Device) -> Literal:
    """Puts a value into the device's outfeed, or calls the function of the host that it is for; a token.

    Raises:
        HostFunctionError: as `isa.host_functions.call`.
    """
    called = marked(i)
    if called is not None:
        device.answers.append(tuple(call(called, given_arrays(called, value))))
    else:
        device.outfeeds.setdefault(queue_name(i, device.configs), []).append(value)
    return ()


def fitting(value: Literal, shape: Shape, what: str) -> Literal:
    """A value from outside as one of a shape; arrays as `from_file` takes them.

    Raises:
        HloError: it is not of the shape.
    """
    if not shape.is_array:
        items = value if isinstance(value, tuple) else None
        if items is None or len(items) != len(shape.elements):
            got = f"a tuple of {len(items)}" if items is not None else "an array"
            raise HloError(f"{what}: expected {shape}, got {got}")
        return tuple(fitting(item, element, what) for item, element in zip(items, shape.elements, strict=True))
    if isinstance(value, tuple):
        raise HloError(f"{what}: expected {shape}, got a tuple of {len(value)}")
    try:
        return from_file(np.asarray(value), shape)
    except HloError as problem:
        raise HloError(f"{what}: {problem.message}") from None
