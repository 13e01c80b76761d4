"""Serial mode of vpu.run: an iteration sees the stores of those before it.

Iterations run together as long as none touches what an earlier one of the batch stores.  Accesses of an iteration count
as a region, from the lowest to the highest address; regions must be equal or disjoint for this, else iterations run one
by one.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from systolith.isa.instruction import Space
from systolith.sim import streams as io
from systolith.sim.kernel_code import loads_after_store
from systolith.sim.kernels import Positions, Registers, Run, run_chunk
from systolith.sim.plans import Array
from systolith.sim.streams import Access


def run_serial(r: Run) -> None:
    """Execute the iterations in order."""
    code = r.code
    if code.prologue or code.epilogue or code.carried:
        for position in product(*(range(n) for n in r.counts[: r.outer])):
            _one_by_one(r, position)
    else:
        _together(r, ())


def _one_by_one(r: Run, outer: tuple[int, ...]) -> None:
    """An outer iteration of a kernel that carries registers: body after body, in one register file."""
    code = r.code
    first = tuple((i, 1) for i in outer)
    regs = Registers(r, first + ((0, 1),) * r.inner)
    regs.execute(code.prologue)
    for inner in product(*(range(n) for n in r.counts[r.outer :])):
        regs.where = first + tuple((i, 1) for i in inner)
        regs.execute(code.body)
    regs.where = first + ((0, 1),) * r.inner
    regs.execute(code.epilogue)


def _together(r: Run, fixed: tuple[int, ...]) -> None:
    """Execute everything under the fixed outer positions, in batches along the next loop."""
    head: Positions = tuple((i, 1) for i in fixed)
    depth = len(fixed)
    if depth == len(r.counts):
        run_chunk(r, head)
        return
    count, tail = r.counts[depth], tuple((0, n) for n in r.counts[depth + 1 :])
    for start, stop in _batches(r, fixed, count):
        if stop - start == 1:
            _together(r, (*fixed, start))
        else:
            run_chunk(r, (*head, (start, stop - start), *tail))


def _batches(r: Run, fixed: tuple[int, ...], count: int) -> list[tuple[int, int]]:
    """Ranges of positions of the next loop that may run together."""
    rows = _regions(r, fixed, count)
    if rows is None:
        return [(i, i + 1) for i in range(count)]
    loads, stores = rows
    batches, start = [], 0
    stored: set[int] = set()
    loaded: set[int] = set()  # loaded after a store: a later iteration's store, run with it, comes first
    late = loads_after_store(r.code.body)
    for i in range(count):
        writes = stores[i]
        clash = len(set(writes)) < len(writes) or not stored.isdisjoint(loads[i]) or not stored.isdisjoint(writes)
        if (clash or not loaded.isdisjoint(writes)) and i > start:
            batches.append((start, i))
            start, stored, loaded = i, set(), set()
        stored.update(writes)
        loaded.update(loads[i] if late else ())
        if len(set(writes)) < len(writes):
            batches.append((i, i + 1))
            start, stored, loaded = i + 1, set(), set()
    if start < count:
        batches.append((start, count))
    return batches


def _regions(r: Run, fixed: tuple[int, ...], count: int) -> tuple[list[list[int]], list[list[int]]] | None:
    """For each position, the regions that it loads and stores; None if regions overlap in part."""
    depth = len(fixed)
    starts = (*fixed, *(0 for _ in r.counts[depth:]))
    counts = (*(1 for _ in fixed), *r.counts[depth:])
    steps = [s for s in r.code.body if s.op in ("ld", "st")]
    stored = {(r.accesses[s.stream].stream.space, r.accesses[s.stream].stream.buffer) for s in steps if s.op == "st"}
    found: dict[str, list[Array]] = {"ld": [], "st": []}
    size = 0
    for step in steps:
        stream = r.accesses[step.stream].stream
        if (stream.space, stream.buffer) not in stored or stream.space is Space.NONE:
            continue
        lows, reach = _lows(r, io.part(r.machine, r.accesses[step.stream], starts, counts))
        found[step.op].append(lows.reshape(count, -1))
        size = max(size, reach)
    if not found["st"]:
        nothing: list[list[int]] = [[] for _ in range(count)]
        return nothing, nothing
    written = np.concatenate([a.reshape(-1) for a in found["st"]])
    low, high = int(written.min()), int(written.max()) + size
    reads = [a for a in found["ld"] if not (a.max() + size <= low or a.min() >= high)]
    borders = np.unique(np.concatenate([written, *(a.reshape(-1) for a in reads)]))
    if (np.diff(borders) < size).any():
        return None
    loads = np.concatenate([np.empty((count, 0), np.int64), *reads], axis=1)
    return loads.tolist(), np.concatenate(found["st"], axis=1).tolist()


def _lows(r: Run, a: Access) -> tuple[Array, int]:
    """Lowest address of each iteration (bounds ignored), and the bytes from there to the highest."""
    p = a.pattern
    n = len(p.counts)
    total: Array = np.full((1,) * n, a.base, np.int64)
    reach = p.dtype.size
    strides = [float(s) for s in p.strides]
    for c in p.coords:
        total = total + int((c.offset + (a.bias[c.bias] if c.bias >= 0 else 0)) / c.div * c.stride)
        strides = [s + k / c.div * c.stride for s, k in zip(strides, c.coefs, strict=True)]
        reach += abs(c.stride) if c.div > 1 else 0
    for k, stride in enumerate(strides[:-2]):
        values = io.index_list(r.machine, a) if k == p.indirect else np.arange(p.counts[k])
        total = total + (stride * values).astype(np.int64).reshape([-1 if k == j else 1 for j in range(n)])
    for k in (n - 2, n - 1):
        values = io.index_list(r.machine, a) if k == p.indirect else np.array([0, p.counts[k] - 1])
        least, most = strides[k] * values.min(), strides[k] * values.max()
        total = total + int(min(least, most))
        reach += int(abs(most - least))
    return np.broadcast_to(total, (*p.counts[:-2], 1, 1)).reshape(p.counts[:-2]), reach
