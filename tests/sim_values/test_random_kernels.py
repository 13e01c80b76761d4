"""Whole kernels (overlapping streams, every section, serial or not) against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from systolith.sim import kernels
from systolith.sim.independence import check_independent
from systolith.sim.memory import SimulationError
from systolith.sim.serial import run_serial
from tests.examples import examples
from tests.sim_values.random_kernels import machine_for, random_kernel
from tests.sim_values.slow import SlowVpu, Touch


def dependent(a: Touch, b: Touch) -> bool:
    """Whether the order of a store and another access of other iterations decides the result."""
    apart = a.outer != b.outer or (a.inner is not None and b.inner is not None and a.inner != b.inner)
    return apart and "st" in (a.op.op, b.op.op) and a.op is not b.op and not a.touched.isdisjoint(b.touched)


@examples(65, 400)
@given(st.integers(0, 2**32))
@example(11348)  # a store of a later outer iteration where an earlier one stores in a later inner one
@example(1422096)  # a store outside memory
def test_any_kernel(seed: int) -> None:
    b = random_kernel(seed)
    instr = b.program.code[0]
    fast, slow = machine_for(b, seed), machine_for(b, seed)
    definition = SlowVpu(slow, instr)
    with np.errstate(all="ignore"):
        try:
            definition.run()
        except KeyError:
            assume(False)  # a register that only one section of two wrote
        except IndexError:
            assume(False)  # a stream outside memory
        touched = {a for t in definition.log for a in t.touched}
        assume(all(400 <= a < 16000 for a in touched))
        run = kernels.prepare(fast, instr)
        if instr.args["serial"]:
            run_serial(run)
        else:
            stores = [t for t in definition.log if t.op.op == "st"]
            legal = not any(dependent(s, t) for s in stores for t in definition.log)
            assert independent(run) == legal
            if not legal:
                return
            kernels.run(run)
    assert np.array_equal(fast.vmem, slow.vmem)


def independent(run: kernels.Run) -> bool:
    """Whether hostile mode finds iterations independent."""
    try:
        check_independent(run)
    except SimulationError:
        return False
    return True
