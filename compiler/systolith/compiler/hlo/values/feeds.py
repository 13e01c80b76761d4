"""Infeed and outfeed: queues of values between the host and each device, taken and put in program order."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.values.convert import from_file
from systolith.compiler.hlo.values.devices import Device


def infeed(i: Instruction, device: Device) -> Literal:
    """The next value of the device's infeed, and a token.  Of the empty tuple nothing is read (operation semantics).

    Raises:
        HloError: there is none left, or it is not of the shape.
    """
    shape = i.shape.elements[0]
    if shape.is_tuple and not shape.elements:
        return (), ()
    if not device.infeed:
        taken = len(device.host.infeed)
        raise HloError(f"device {device.number} has no infeed left, after {taken}; give as many values as it takes")
    return fitting(device.infeed.popleft(), shape, f"infeed of device {device.number}"), ()


def outfeed(value: Literal, device: Device) -> Literal:
    """Puts a value into the device's outfeed; a token."""
    device.outfeed.append(value)
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
