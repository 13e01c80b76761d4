"""Send and recv: values from device to device, and between a device and the host, over numbered channels.

`send` hands its value over at once and `send-done` has nothing to wait for; `recv-done` waits.  Values of one channel
between two devices arrive in the order in which they are sent.  Sources: XLA's operation semantics; the pairs in
`_xla_send_recv_source_target_pairs` are partitions, or replicas where channel_id is 0, as XLA's GPU backend has it.
"""

from __future__ import annotations

import re

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.values.collectives import Run, sources
from systolith.compiler.hlo.values.devices import frontend_text
from systolith.compiler.hlo.values.feeds import fitting
from systolith.compiler.hlo.values.group_modes import channel

_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


def send(i: Instruction, values: list[Literal], run: Run) -> Literal:
    """Operand, context and token; the operand goes to the host, or to this device's target if it has one."""
    value, device = values[0], run.device
    if i.flag("is_host_transfer"):
        device.sent.setdefault(channel(i), []).append(value)
        if device.host.on_send is not None:
            device.host.on_send(channel(i), value)
    else:
        for target, source in _from(i, run).items():
            if source == device.number:
                device.post(channel(i), target, value)
    return value, np.zeros((), np.uint32), ()


def recv(i: Instruction, values: list[Literal], run: Run) -> Literal:
    """A place for the data (zeros), context and token: the value that arrives is `recv-done`'s."""
    return _zeros(i.shape.elements[0]), np.zeros((), np.uint32), ()


def recv_done(i: Instruction, values: list[Literal], run: Run) -> Literal:
    """The value that arrives for the operand's `recv`, and a token; zeros where nothing is sent to this device.

    Raises:
        HloError: nothing comes, or it is of another shape.
    """
    start, device, shape = i.operands[0], run.device, i.shape.elements[0]
    if start.opcode != "recv":
        start = i  # passed through a tuple or a loop: recv-done repeats recv's attributes
    if start.flag("is_host_transfer"):
        try:
            value = next(device.channels.get(channel(start), iter(())))
        except StopIteration:
            raise HloError(
                f"device {device.number} gets nothing more from the host on channel {channel(start)}"
            ) from None
    else:
        source = _from(start, run).get(device.number)
        if source is None:
            return _zeros(shape), ()
        value = device.receive(i, channel(start), source)
    return fitting(value, shape, f"channel {channel(start)}"), ()


def _from(i: Instruction, run: Run) -> dict[int, int]:
    """Target to source device; without pairs every device sends to itself."""
    text = frontend_text(i.attributes, "_xla_send_recv_source_target_pairs")
    if not text:
        return {run.device.number: run.device.number}
    return sources(i, run, lambda: [(int(s), int(t)) for s, t in _PAIR.findall(text)])


def _zeros(shape: Shape) -> Literal:
    if shape.is_array:
        return np.zeros(shape.dims, shape.dtype.stored)
    return tuple(_zeros(element) for element in shape.elements)
