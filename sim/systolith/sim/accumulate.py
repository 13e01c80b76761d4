"""The commonest recurrence: one carried register, one micro-operation that combines it with something new."""

from __future__ import annotations

from typing import Any

import numpy as np

from systolith.isa.numerics.images import F32, U32, Bits
from systolith.sim.kernel_code import Code, Step, next_name

# ufunc.accumulate works strictly in order, as loop order requires.
_UFUNCS: dict[str, tuple[Any, np.dtype[Any]]] = {
    "add.f32": (np.add, F32),
    "mul.f32": (np.multiply, F32),
    "add.s32": (np.add, U32),
    "mul.s32": (np.multiply, U32),
    "and": (np.bitwise_and, U32),
    "or": (np.bitwise_or, U32),
    "xor": (np.bitwise_xor, U32),
    "min.s32": (np.minimum, np.dtype(np.int32)),
    "max.s32": (np.maximum, np.dtype(np.int32)),
    "min.u32": (np.minimum, U32),
    "max.u32": (np.maximum, U32),
}
_SHORT = 4096  # elements of a step below which a loop over steps is mostly overhead


def sole_accumulation(code: Code) -> Step | None:
    """The core's only step, if it is `acc = op(acc, x)` or `op(x, acc)` with x from outside; else None."""
    if len(code.core) != 1 or len(code.carried) != 1:
        return None
    step = code.core[0]
    acc = code.carried[0]
    fits = (
        len(step.srcs) == 2
        and step.srcs.count(acc) == 1
        and step.dst == next_name(acc)
        and not step.clean
        and not step.finish
    )
    return step if fits and step.function is not None and all(s in (acc, *code.core_reads) for s in step.srcs) else None


def accumulate(
    step: Step, code: Code, inputs: dict[int, Bits], state: dict[int, Bits], length: int
) -> tuple[dict[int, Bits], dict[int, Bits]]:
    """Combine in loop order.

    Args:
        step: from `sole_accumulation`.
        code: the kernel.
        inputs: operands of the core, iterations first.
        state: the carried register at entry.
        length: iterations.

    Returns:
        The carried register at the end, and the recorded names' values, iterations first.
    """
    acc = code.carried[0]
    position = step.srcs.index(acc)
    values, start = inputs[step.srcs[1 - position]], state[acc]
    if step.op in _UFUNCS and (start.size < _SHORT or code.recorded):
        # Operand order does not matter to these, but for which NaN is kept, and that is made canonical later.
        ufunc, kind = _UFUNCS[step.op]
        steps = np.concatenate([start[None], values]).view(kind)
        history = ufunc.accumulate(steps, axis=0, dtype=kind).view(U32)
        names = {acc: history[:-1], next_name(acc): history[1:]}
        return {acc: history[-1]}, {n: names[n] for n in code.recorded}
    assert step.function is not None
    record: dict[int, Bits] = {n: np.empty((length, *start.shape), np.uint32) for n in code.recorded}
    total = start
    for i in range(length):
        if acc in record:
            record[acc][i] = total
        total = step.function(total, values[i]) if position == 0 else step.function(values[i], total)
        if next_name(acc) in record:
            record[next_name(acc)][i] = total
    return {acc: total}, record
