"""The façade: values and time of one small program, in every mode."""

import numpy as np
import pytest

from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.program import Program, TokenDecl
from systolith.sim.deadlock import DeadlockError
from systolith.sim.memory import Machine
from systolith.sim.sequencer import TraceNeededError
from systolith.sim.simulate import simulate
from tests.sim_time.programs import CHIP, matmul_program

Buffers = dict[int, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]


def inputs() -> tuple[Buffers, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Small integers as bf16, and their product."""
    rng = np.random.default_rng(1)
    w = rng.integers(-4, 5, (8, 8)).astype(np.float32)
    x = rng.integers(-4, 5, (16, 8)).astype(np.float32)
    bf16 = [(a.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1).copy() for a in (w, x)]
    return {0: bf16[0], 1: bf16[1]}, x @ w


def test_full_and_time_agree_on_every_cycle() -> None:
    buffers, product = inputs()
    full = simulate(matmul_program(), CHIP, buffers)
    timed = simulate(matmul_program(), CHIP, mode="time")
    assert full.trace is not None
    assert timed.trace is not None
    assert (full.cycles, full.units, full.instructions) == (timed.cycles, timed.units, timed.instructions)
    for column in ("index", "queue", "issue", "start", "end", "retire", "stall_cycles"):
        assert np.array_equal(getattr(full.trace, column), getattr(timed.trace, column))
    np.testing.assert_array_equal(full.outputs[0], product)
    assert timed.outputs == []


def test_values_agree_with_full_and_have_no_cycles() -> None:
    buffers, product = inputs()
    values = simulate(matmul_program(), CHIP, buffers, mode="values")
    assert (values.cycles, values.units, values.trace) == (None, {}, None)
    np.testing.assert_array_equal(values.outputs[0], product)
    full = simulate(matmul_program(), CHIP, buffers)
    assert (values.hbm_bytes, values.macs, values.instructions) == (full.hbm_bytes, full.macs, full.instructions)


# Index, queue, issue, start, end, retire; by hand: tiny fetches 8 words a cycle; HBM gives 32 bytes every other cycle
# after the first two, its latency is 20; the array adds 8 + 8 + 2 cycles to a matmul and 2 to a weight load.
TIMES = [
    (0, "w0", 1, 2, 3, 3),
    (1, "s0", 2, 3, 4, 4),
    (2, "vpu", 3, 4, 5, 5),
    (3, "st", 4, 5, 6, 6),
    # SEQ: `loop` until 5; 15 words a transfer.
    (5, "ld", 7, 8, 14, 34),  # grants in 8, 9, 11, 13
    (6, "ld", 9, 14, 30, 50),  # grants in 15, 17, ..., 29
    (7, "w0", 11, 34, 42, 44),  # 8 rows
    (8, "s0", 12, 44, 45, 45),
    (9, "s0", 14, 50, 66, 86),  # 16 rows, waits for the second transfer
    (10, "vpu", 18, 86, 97, 97),  # 7 iterations and 4 cycles
    (11, "st", 20, 97, 127, 147),  # grants in 97, 98, 100, ..., 126
    (14, "st", 23, 127, 128, 147),  # retires in order; SEQ added twice before
    (15, "seq", 23, 147, 148, 148),
]


def test_the_times_of_one_tile_are_those_computed_by_hand() -> None:
    result = simulate(matmul_program(1), CHIP, mode="time")
    t = result.trace
    assert t is not None
    columns = (t.index, t.queue, t.issue, t.start, t.end, t.retire)
    rows = [(i, t.queues[q], *times) for i, q, *times in zip(*(c.tolist() for c in columns), strict=True)]
    assert rows == TIMES
    assert result.cycles == 149  # and `halt`
    assert result.units["st"] == {
        "busy": 18, "fifo_empty": 20, "wait_vpu": 76, "hbm_bandwidth": 14, "hbm_latency": 19, "idle": 2
    }  # fmt: skip
    assert result.units["s0"] == {
        "busy": 18, "fifo_empty": 12, "wait_w0": 21, "weight_shift": 10, "hbm_latency": 5, "drain": 20, "idle": 63
    }  # fmt: skip


def test_hostile_mode_finds_a_race_and_only_then() -> None:
    buffers, _ = inputs()
    assert simulate(matmul_program(), CHIP, buffers, hostile=True).ok
    program = matmul_program()
    vpu = next(i for i, c in enumerate(program.code) if c.op == "vpu.run")
    c = program.code[vpu]
    program.code[vpu] = Instruction(c.op, c.args, c.unit, (9,), c.signals)
    result = simulate(program, CHIP, buffers, hostile=True)
    assert not result.ok
    assert str(result.hazards[0]) == (
        "race, read after write: acc 0 bytes 0 to 511: instruction 9 (mxu.matmul, matmul of dot.1) in iteration 1 of 3 "
        "and instruction 10 (vpu.run, epilogue of add.2) in iteration 1 of 3 are not ordered"
    )


def test_a_deadlock_names_instructions_and_hlo() -> None:
    program = matmul_program()
    vpu = next(i for i, c in enumerate(program.code) if c.op == "vpu.run")
    c = program.code[vpu]
    program.code[vpu] = Instruction(c.op, c.args, c.unit, c.waits, (8,))
    waits = r"st: instruction 11 \(dma.store\) in iteration 1 of 3 waits for token 5 \(count 0, .* by vpu"
    with pytest.raises(DeadlockError, match=waits):
        simulate(program, CHIP, mode="time")


def data_dependent() -> Program:
    """SEQ reads a trip count from scalar memory."""
    program = Program("loop", CHIP.name, CHIP.digest(), tokens=[TokenDecl("vpu", "seq")])
    nop = Instruction("nop", {"queue": "vpu"}, signals=(0,))
    program.code = [
        Instruction("lds", {"rd": Reg(1), "ra": Reg(0), "imm": 8}),
        Instruction("loop", {"count": Reg(1), "end": 4}),
        nop,
        Instruction("sync", {}, 0, (0,)),
        Instruction("halt"),
    ]
    return program


def test_time_replays_the_decisions_of_a_full_run_and_refuses_without() -> None:
    def five(machine: Machine) -> None:
        machine.smem[8] = 5

    full = simulate(data_dependent(), CHIP, setup=five)
    assert full.instructions == 2 + 5 * 2 + 1
    timed = simulate(data_dependent(), CHIP, mode="time", decisions=full.decisions)
    assert (timed.cycles, timed.units) == (full.cycles, full.units)
    with pytest.raises(TraceNeededError, match="trip count depends on data"):
        simulate(data_dependent(), CHIP, mode="time")


class Watcher:
    before = frozenset([10])
    after = frozenset([10])

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def reached(self, index: int, machine: Machine) -> None:
        self.seen.append(("reached", machine.at))

    def done(self, index: int, machine: Machine) -> None:
        self.seen.append(("done", index))


def test_an_observer_is_called_around_each_execution() -> None:
    watcher = Watcher()
    simulate(matmul_program(2), CHIP, inputs()[0], observer=watcher)
    assert watcher.seen == [("reached", 10), ("done", 10)] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode 'fast': must be one of full, time, values"),
        ({"mode": "time", "hostile": True}, "mode time has no values"),
        ({"decisions": [1]}, "mode time only"),
    ],
)
def test_arguments_that_do_not_go_together(options: dict[str, object], message: str) -> None:
    with pytest.raises(SystolithError, match=message):
        simulate(matmul_program(), CHIP, **options)  # type: ignore[arg-type]
