"""The vector unit in RTL against the simulator: random instructions, memories equal and done in the same cycle.

python -m systolith.hw.tb.vpu_bench [first seed] [beyond]      on `tiny`
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from systolith.hw.kernels import kernel_tables
from systolith.hw.patterns import PATTERN_BITS, pattern_entry
from systolith.hw.tb.vpu_build import executable
from systolith.hw.tb.vpu_generate import INDEX_BYTES, Case, long_case, random_case
from systolith.isa.chip import Chip, load_chip
from systolith.isa.encode import encode_instruction
from systolith.isa.timing import cost
from systolith.sim import values
from systolith.sim.memory import Machine, SimulationError

Words = np.ndarray[tuple[int], np.dtype[np.uint32]]

VMEM_BYTES = 32768
_LIMIT = 2_000_000
_TABLES = ("kernels", "control", "constants")


@dataclass(frozen=True)
class Expected:
    """The simulator's result of a case: cycles until done, and the memories after it."""

    cycles: int
    memories: tuple[Words, ...]


@dataclass(frozen=True)
class Prepared:
    """A case, its seed, and the expected result."""

    seed: int
    case: Case
    want: Expected


def bench_chip(chip: Chip) -> Chip:
    """The chip with memories as small as the bench's and two matrix units."""
    rows = VMEM_BYTES // (4 * chip.mxu.cols)
    return replace(chip, vmem=replace(chip.vmem, bytes=VMEM_BYTES), mxu=replace(chip.mxu, acc_rows=rows, count=2))


def _memories(machine: Machine) -> tuple[Words, ...]:
    return (machine.vmem.view(np.uint32).copy(), *(acc.reshape(-1).copy() for acc in machine.acc))


def expected(case: Case) -> Expected | None:
    """None: the case accesses addresses that do not exist, or stores to its index lists."""
    machine = case.machine()
    with np.errstate(all="ignore"):
        try:
            values.vpu_run(machine, case.instruction)
        except SimulationError:
            return None
    if not np.array_equal(machine.vmem[:INDEX_BYTES], case.memory.view(np.uint8)[:INDEX_BYTES]):
        return None
    return Expected(cost(case.instruction, case.program, case.chip).occupancy, _memories(machine))


def _image(bits: int, size: int) -> list[int]:
    return [bits >> 32 * i & 0xFFFFFFFF for i in range(-(-size // 32))]


def commands(case: Case) -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    """The words that make `vpu_main` run a case: memories, tables, instruction, start, results."""
    tables = kernel_tables(case.program.kernels, case.chip)
    out: list[Sequence[int]] = []
    for number, name in enumerate(_TABLES):
        contents = getattr(tables, name)
        out += [(0, number, 0, len(contents)), contents]
    words = encode_instruction(case.instruction)
    out += [(2, len(words)), words]
    streams = case.instruction.args["streams"]
    assert isinstance(streams, tuple)
    for number, stream in enumerate(streams):
        entry = _image(pattern_entry(case.program.patterns[stream.pattern]), PATTERN_BITS)  # type: ignore[union-attr]
        out += [(3, number, len(entry)), entry]
    parts = [np.array(words, np.uint32) for words in out]
    memories = _memories(case.machine())
    before = [np.concatenate([np.array((1, m, 0, len(w)), np.uint32), w]) for m, w in enumerate(memories)]
    after = [np.array((5, m, 0, len(w)), np.uint32) for m, w in enumerate(memories)]
    return [*before, *parts, np.array((4, _LIMIT), np.uint32), *after, np.array((6, case.pause), np.uint32)]


def run(path: Path, cases: Sequence[Case], arguments: Sequence[str] = ()) -> list[Words]:
    """Answers of `vpu_main`: for each case its cycles, its memories, and in how many cycles of the pause it is done.

    Raises:
        AssertionError: an assertion of the RTL failed.
    """
    words = np.concatenate([part for case in cases for part in commands(case)])
    done = subprocess.run(
        [str(path), *arguments], input=words.tobytes(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode or len(done.stdout) % 4 or b"%Error" in done.stdout:
        raise AssertionError(done.stdout[-2000:].decode(errors="replace"))
    return np.split(np.frombuffer(done.stdout, np.uint32), len(cases))


def compare(what: str, got: Words, want: Expected) -> None:
    """Raises AssertionError if an answer is not the expected one."""
    assert got[0] == want.cycles, f"{what}: done after {got[0]} cycles, the simulator says {want.cycles}"
    at = 1
    for number, memory in enumerate(want.memories):
        found = got[at : at + len(memory)]
        at += len(memory)
        bad = np.flatnonzero(found != memory)
        if len(bad):
            i = bad[0]
            name = f"accumulators {number - 1}" if number else "VMEM"
            both = f"RTL {found[i]:#010x}, simulator {memory[i]:#010x}"
            raise AssertionError(f"{what}: {name} differ in {len(bad)} words; at {4 * i}: {both}")
    assert got[at] == 0, f"{what}: done {got[at]} times after the end"


def check(chip: Chip, seeds: Iterable[int]) -> int:
    """Run the cases of the seeds on the RTL and compare; how many of them could be run.

    Raises:
        AssertionError: naming the seed and the first difference.
    """
    legal = prepare(chip, seeds)
    play(executable(bench_chip(chip)), legal)
    return len(legal)


def prepare(chip: Chip, seeds: Iterable[int]) -> list[Prepared]:
    """The cases of the seeds that can be run, and the long one as seed -1."""
    small = bench_chip(chip)
    cases = [(-1, long_case(small)), *((seed, random_case(seed, small)) for seed in seeds)]
    return [Prepared(seed, case, want) for seed, case in cases if (want := expected(case)) is not None]


def play(path: Path, cases: Sequence[Prepared], arguments: Sequence[str] = ()) -> None:
    """Run cases on the RTL, and compare.

    Raises:
        AssertionError: naming the seed and the first difference.
    """
    for each, got in zip(cases, run(path, [c.case for c in cases], arguments), strict=True):
        compare(f"seed {each.seed}", got, each.want)


def main(argv: list[str]) -> int:
    """Check seeds in batches."""
    first, beyond = (int(a) for a in argv) if argv else (0, 200)
    chip = load_chip("tiny")
    for start in range(first, beyond, 50):
        many = check(chip, range(start, min(start + 50, beyond)))
        print(f"seeds from {start}: {many} instructions equal", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
