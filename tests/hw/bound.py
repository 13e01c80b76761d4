"""A program with its arguments, as a case for the simulator and the RTL."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.hw.lockstep import Case
from systolith.isa.program import Program, Role
from systolith.runtime.memories import bind, numbered


def bound(program: Program, given: list[npt.NDArray[Any]]) -> Case:
    """The case of arguments as bytes, in order, and of results that are zero before."""
    results = [np.zeros(d.bytes, np.uint8) for _, d in numbered(program, Role.RESULT)]
    return Case(program, bind(program, given, results))
