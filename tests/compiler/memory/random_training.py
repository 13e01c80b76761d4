"""Random modules like a training step: a chain of values that are needed again in the opposite order.

So many of them are alive in the middle, in every order of the operations.
"""

from __future__ import annotations

import numpy as np

from tests.compiler.machine import Array
from tests.compiler.memory.random_donations import CONSTANTS, COUNT, DIMS, SHAPE, Donations


def random_training(seed: int) -> tuple[str, list[Array]]:
    """A module's text and its arguments; small integers, so that everything is exact."""
    made = Donations(seed)
    rng = made.rng
    values = [f"p{k}" for k in range(COUNT)]
    head = [f"{v} = {SHAPE} parameter({k})" for k, v in enumerate(values)]
    lines = [*head, f"row = s32[] parameter({COUNT})", *CONSTANTS]
    chain = [values[0]]
    for _ in range(int(rng.integers(4, 10))):
        # The next value is made of the last one, and of anything.
        known = [*values, *([chain[-1]] * 9 * len(values))]
        made.step(lines, known, int(rng.integers(0, 6) > 0))
        chain.append(known[-1])
        values.append(known[-1])
    back = chain.pop()
    while chain:
        name, other = made.fresh(), chain.pop()
        op = rng.choice(["add", "subtract", "maximum", "minimum"])
        lines.append(f"{name}s = {SHAPE} {op}({back}, {other})")
        lines.append(f"{name}c = {SHAPE} clamp(low, {name}s, high)")
        lines.append(f"{name}r = f32[2,48] slice({back}), slice={{[3:5], [0:48]}}")
        lines.append(f"{name} = {SHAPE} dynamic-update-slice({name}c, {name}r, row, zero)")
        back = name
    lines.append(f"ROOT r = ({SHAPE}) tuple({back})")
    donated = ", ".join(f"({k}, {{}})" for k in range(COUNT) if not rng.integers(0, 3))
    text = f"HloModule training{seed}, buffer_donor={{ {donated} }}\n\n" + "\n".join(made.computations)
    args: list[Array] = [rng.integers(-9, 10, DIMS).astype(np.float32) for _ in range(COUNT)]
    text += "\nENTRY e {\n " + "\n ".join(lines) + "\n}\n"
    return text, [*args, np.array(rng.integers(0, 7), np.int32)]
