"""Trip counts of `while` loops that count from a constant to a constant, as XLA's `backend_config` states them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.trip_count import stated, trip_count
from systolith.compiler.passes.simplify.algebraic_arithmetic import value_range

_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_LONGEST = 1 << 31


@dataclass(frozen=True)
class AnnotateTripCounts:
    """State the trip count of every loop for which it can be proved."""

    def run(self, module: Module) -> bool:
        changed = False
        for instruction in module.instructions():
            if instruction.opcode == "while" and trip_count(instruction) is None:
                count = proved_trip_count(instruction)
                if count is not None:
                    told = str(instruction.attributes.get("backend_config", ""))
                    instruction.attributes["backend_config"] = stated(count, told)
                    changed = True
        return changed


def known_trip_count(loop: Instruction) -> int | None:
    """The trip count that can be proved, or else the one that is stated."""
    proved = proved_trip_count(loop)
    return trip_count(loop) if proved is None else proved


def proved_trip_count(loop: Instruction) -> int | None:
    """The trip count, where an element of the state starts at a constant, steps by a constant, and is compared with
    one.
    """
    test = loop.computation("condition").result
    if test.opcode != "compare":
        return None
    a, b = test.operands
    direction = test.word("direction")
    number, bound = element(a, loop.computation("condition")), scalar(b)
    if number is None:
        number, bound, direction = element(b, loop.computation("condition")), scalar(a), _FLIPPED[direction]
    start = initial(loop, number)
    step = step_of(loop.computation("body"), number)
    if number is None or bound is None or start is None or step is None:
        return None
    return _count(start, step, bound, direction, value_range(a.shape.dtype))


def _count(start: int, step: int, bound: int, direction: str, values: tuple[int, int]) -> int | None:
    """Iterations of `for (i = start; i <direction> bound; i += step)`; None where i would leave its type's values."""
    bound += {"LE": 1, "GE": -1}.get(direction, 0)
    if direction in ("LT", "LE") and step > 0:
        count = max(0, -(-(bound - start) // step))
    elif direction in ("GT", "GE") and step < 0:
        count = max(0, -(-(start - bound) // -step))
    elif direction == "NE" and step and (bound - start) % step == 0 and (bound - start) // step >= 0:
        count = (bound - start) // step
    else:
        return None
    return count if count < _LONGEST and values[0] <= start + count * step <= values[1] else None


def scalar(i: Instruction) -> int | None:
    """The value of an integer constant."""
    if i.opcode != "constant" or not isinstance(i.literal, np.ndarray) or i.literal.size != 1:
        return None
    return int(i.literal.reshape(-1)[0]) if i.shape.dtype.is_integer else None


def element(i: Instruction, computation: Computation) -> int | None:
    """Which element of the state an instruction is."""
    if i.opcode == "get-tuple-element" and i.operands[0] is computation.first_parameter:
        return i.integer("index")
    return None


def keeps(loop: Instruction, number: int) -> bool:
    """Whether a loop leaves an element of its state as it is."""
    body = loop.computation("body")
    root = body.result
    return root.opcode == "tuple" and element(root.operands[number], body) == number


def initial(loop: Instruction, number: int | None) -> int | None:
    """The constant that an element of the state starts at."""
    (state,) = loop.operands
    return scalar(state.operands[number]) if number is not None and state.opcode == "tuple" else None


def step_of(body: Computation, number: int | None) -> int | None:
    """The constant that each iteration adds to an element of the state."""
    root = body.result
    if number is None or root.opcode != "tuple":
        return None
    update = root.operands[number]
    if update.opcode not in ("add", "subtract"):
        return None
    a, b = update.operands
    if element(a, body) == number:
        step = scalar(b)
        return -step if step is not None and update.opcode == "subtract" else step
    return scalar(a) if update.opcode == "add" and element(b, body) == number else None
