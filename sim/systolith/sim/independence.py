"""Hostile mode: no iteration of a kernel that is not serial may load what another one stores.

Nor may two iterations store to one address from different micro-operations: their order is the schedule's.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from systolith.isa.instruction import Space
from systolith.sim import streams as io
from systolith.sim.kernel_code import Step
from systolith.sim.kernels import Run
from systolith.sim.plans import Array
from systolith.sim.streams import Access


class _Touched(NamedTuple):
    """Elements that a step visits: stream number, byte addresses and iterations (numbered over the whole nest)."""

    stream: int
    addresses: Array
    iterations: Array
    whole: bool  # in the body, not once an outer iteration


def check_independent(r: Run) -> None:
    """Compare what iterations load with what others store.

    Raises:
        SimulationError: naming the streams, the address and the iterations.
    """
    code = r.code
    uses = [(s, False) for s in (*code.prologue, *code.epilogue)] + [(s, True) for s in code.body]
    stores = [u for u in uses if u[0].op == "st" and io.is_memory(r.accesses[u[0].stream].stream)]
    loads = [u for u in uses if u[0].op == "ld" and io.is_memory(r.accesses[u[0].stream].stream)]
    inner = prod(r.counts[r.outer :])
    for n, (store, in_body) in enumerate(stores):
        for other, also in (*loads, *stores[n + 1 :]):
            if _apart(r.accesses[store.stream], r.accesses[other.stream]):
                continue
            # Steps of different sections are ordered within an outer iteration.
            unit = 1 if in_body and also else inner
            verb = "loads" if other.op == "ld" else "stores"
            _compare(r, _touched(r, store, in_body), _touched(r, other, also), unit, verb)


def _apart(a: Access, b: Access) -> bool:
    return (a.stream.space, a.stream.buffer) != (b.stream.space, b.stream.buffer) or a.stream.space is Space.NONE


def _touched(r: Run, step: Step, whole: bool) -> _Touched:
    access = r.accesses[step.stream]
    p = io.plan(r.machine, access, boxes=False)
    if p.positions is None or p.offsets is None:
        return _Touched(step.stream, np.empty(0, np.int64), np.empty(0, np.int64), whole)
    iterations = p.positions // prod(access.pattern.counts[-2:])
    addresses = p.offsets + access.base
    if not whole:
        first = iterations % prod(r.counts[r.outer :]) == 0
        addresses, iterations = addresses[first], iterations[first]
    size = access.pattern.dtype.size
    addresses = (addresses[:, None] + np.arange(size)).reshape(-1)
    return _Touched(step.stream, addresses, np.repeat(iterations, size), whole)


def _compare(r: Run, stored: _Touched, other: _Touched, unit: int, verb: str) -> None:
    """An address stored in one unit of iterations and loaded, or stored by another step, in another is an error."""
    if not len(stored.addresses) or not len(other.addresses):
        return
    order = np.argsort(stored.addresses, kind="stable")
    addresses, units = stored.addresses[order], stored.iterations[order] // unit
    for side in ("left", "right"):  # the first and the last to store there: one of them differs if any does
        at = np.searchsorted(addresses, other.addresses, side) - (side == "right")
        at = np.clip(at, 0, len(addresses) - 1)
        clash = (addresses[at] == other.addresses) & (units[at] != other.iterations // unit)
        if clash.any():
            i = int(clash.argmax())
            writer = stored.iterations[order][at[i]]
            raise r.machine.error(
                f"kernel {r.code.kernel.name}: iteration {other.iterations[i]} {verb} (stream {other.stream}) byte "
                f"{other.addresses[i]}, which iteration {writer} stores (stream {stored.stream})"
            )
