"""Host time an instruction of the time plane and of the race detector: a loop, and the same unrolled."""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

from systolith.isa.chip import Chip, load_chip
from systolith.isa.program import Program
from systolith.sim.simulate import simulate

TILES = 10_000
LOOP, BODY, JOIN = 4, range(5, 12), range(14, 17)


def unrolled(program: Program) -> Program:
    order = [*range(LOOP), *[*BODY] * TILES, *JOIN]
    program.code = [program.code[i] for i in order]
    program.debug = [program.debug[i] for i in order]
    return program


def measure(name: str, program: Program, chip: Chip, mode: str = "full", hostile: bool = False) -> None:
    started = process_time()
    result = simulate(program, chip, mode=mode, hostile=hostile)
    each = (process_time() - started) / result.instructions
    print(f"{name}: {result.instructions} instructions, {each * 1e6:.1f} us each")


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.sim_time.programs import matmul_program

    chip = load_chip("tiny")
    simulate(matmul_program(1), chip)  # checks and compilation that are done once
    measure("time, loop", matmul_program(TILES), chip, "time")
    measure("time, unrolled", unrolled(matmul_program(TILES)), chip, "time")
    measure("values", matmul_program(TILES // 10), chip, "values")
    measure("values and time", matmul_program(TILES // 10), chip)
    measure("values, time and races", matmul_program(TILES // 10), chip, hostile=True)


if __name__ == "__main__":
    main()
