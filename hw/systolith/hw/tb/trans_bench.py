"""The transcendental micro-operations in RTL against the model, bit for bit, at native speed.

python -m systolith.hw.tb.trans_bench [operands of each function, in millions]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from systolith.hw.tb.data import Words
from systolith.hw.tb.native import build
from systolith.hw.tb.trans_operands import corners, operands
from systolith.isa.microops import MICROOPS
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS
from systolith.isa.numerics.transcendental import FUNCTIONS

BATCH = 1 << 20  # operands at a time


def run(executable: Path, name: str, a: Words, b: Words) -> Words:
    """The RTL's results of function `name`."""
    command = [str(executable), str(MICROOPS[f"{name}.f32"].code)]
    pairs = np.stack([a, b], axis=1).tobytes()
    return np.frombuffer(subprocess.run(command, input=pairs, stdout=subprocess.PIPE, check=True).stdout, np.uint32)


def model(name: str, a: Words, b: Words) -> Words:
    """The same from the model."""
    arguments = (a, b)[: MICROOPS[f"{name}.f32"].sources]
    return MICROOP_FUNCTIONS[f"{name}.f32"](*arguments)


def check(executable: Path, name: str, a: Words, b: Words) -> None:
    """Compare the RTL with the model.

    Raises:
        AssertionError: they differ; the message has the first operands for which they do.
    """
    got, want = run(executable, name, a, b), model(name, a, b)
    assert len(got) == len(want), f"{name}: {len(got)} results of {len(want)}"
    bad = np.flatnonzero(got != want)
    if len(bad):
        i = bad[0]
        found = f"RTL {got[i]:#010x}, model {want[i]:#010x}"
        raise AssertionError(f"{name}: {len(bad)} of {len(got)} differ; {a[i]:#010x}, {b[i]:#010x}: {found}")


def main(argv: list[str]) -> int:
    """Check every function, and print the processor time that one result takes."""
    batches = int(argv[0]) if argv else 1
    executable = build("trans")
    for name in FUNCTIONS:
        check(executable, name, *corners())
        for seed in range(batches):
            check(executable, name, *operands(name, seed, BATCH))
        before = os.times().children_user
        run(executable, name, *operands(name, 0, BATCH))
        taken = (os.times().children_user - before) / BATCH
        print(f"{name:9} {batches * BATCH:>11,} operands equal  {taken * 1e9:4.0f} ns each", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
