"""`scan`: a computation run along one dimension, with values carried from step to step.

Operands are the arrays, then the first carries; the computation takes a slice of each array and the carries, and gives
a slice of each result, then the carries.  Source: XLA's `scan_expander`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal


def scan(i: Instruction, operands: Sequence[np.ndarray], call: Callable[[Sequence[Literal]], Literal]) -> Literal:
    """The stacked results, then the last carries.

    Args:
        i: the instruction.
        operands: arrays, then carries.
        call: runs the computation on its arguments.
    """
    (dim,) = i.ints("dimensions")
    count = i.integer("num_carries", 0)
    arrays, carries = operands[: len(operands) - count], list(operands[len(operands) - count :])
    every = i.shape.elements if i.shape.is_tuple else (i.shape,)
    results_count = len(every) - count
    shapes = every[:results_count]
    steps = arrays[0].shape[dim] if arrays else shapes[0].dims[dim]
    results = [np.zeros(s.dims, s.dtype.stored) for s in shapes]
    for step in reversed(range(steps)) if i.flag("is_reverse") else range(steps):
        slices = [np.take(x, step, axis=dim) for x in arrays]
        value = call([*slices, *carries])
        parts = [np.asarray(part) for part in (value if isinstance(value, tuple) else (value,))]
        for result, part in zip(results, parts, strict=False):
            np.moveaxis(result, dim, 0)[step] = part
        carries = parts[results_count:]
    final = (*results, *carries)
    return final if i.shape.is_tuple else final[0]
