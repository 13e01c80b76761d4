"""Hostile mode: an instruction may not read memory that it writes elsewhere in its course.

No iteration of a kernel that is not serial may load from an address of another one's store, nor may two iterations
store to one address from different micro-operations: their order is the schedule's.  A copy or a reduction may not
write memory that it reads, index lists included: hardware writes while it reads.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from systolith.isa.instruction import Space
from systolith.sim import streams as io
from systolith.sim.kernel_code import Step
from systolith.sim.kernels import Run
from systolith.sim.memory import Machine
from systolith.sim.plans import Array
from systolith.sim.streams import Access


class _Touched(NamedTuple):
    """Elements that a step visits: stream number, byte addresses and iterations (numbered over the whole nest)."""

    stream: int
    addresses: Array
    iterations: Array
    whole: bool  # in the body, not once an outer iteration


def check_independent(r: Run) -> None:
    """Compare the loads of iterations with the stores of others.

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


def check_apart(machine: Machine, src: Access, dst: Access) -> None:
    """Compare the elements that a copy or a reduction reads with those that it writes.

    Raises:
        SimulationError: naming the first byte that is both.
    """
    if not io.is_memory(dst.stream):
        return
    memory, read = machine.region(dst.stream), list[tuple[Array, str]]()
    if io.is_memory(src.stream) and machine.region(src.stream).data is memory.data:
        read.append((_bytes(machine, src), f"{memory.name}: src and dst"))
    for access, name in ((src, "src"), (dst, "dst")):
        if access.pattern.indirect >= 0 and dst.stream.space is Space.VMEM:
            words = access.index + np.arange(4 * access.pattern.counts[access.pattern.indirect])
            read.append((words, f"vmem: the index list of {name} and dst"))
    if read:  # of most copies nothing lies in the memory that is written
        written = np.unique(_bytes(machine, dst))
        for addresses, what in read:
            _compare_bytes(machine, written, addresses, what)


def check_rows_apart(machine: Machine, src: Access, unit: int, first: int, count: int) -> None:
    """Compare the elements that a matmul streams with the `count` accumulator rows of its unit, from `first` on.

    Raises:
        SimulationError: naming the first byte that is both.
    """
    memory = machine.memory(Space.ACC, unit)
    if machine.region(src.stream).data is memory.data:
        row = 4 * machine.chip.mxu.cols
        written = np.arange(first * row, (first + count) * row)
        _compare_bytes(machine, written, _bytes(machine, src), f"{memory.name}: src and acc")


def _bytes(machine: Machine, access: Access) -> Array:
    """Addresses of the bytes of all elements inside."""
    p = io.plan(machine, access, boxes=False)
    if p.offsets is None:
        return np.empty(0, np.int64)
    return (p.offsets[:, None] + (access.base + np.arange(access.pattern.dtype.size))).reshape(-1)


def _compare_bytes(machine: Machine, written: Array, read: Array, what: str) -> None:
    both = read[np.isin(read, written)]
    if len(both):
        raise machine.error(f"{what} share byte {both.min()}: what one instruction reads and writes must be apart")


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
