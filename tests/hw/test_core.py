"""The whole core in lockstep with the simulator: hand-written programs, the rules of queues and tokens, other chips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.hw.lockstep import Case, Lockstep, Result
from systolith.hw.model import HW, NO_PARAMETER, PARAMETERS
from systolith.isa.asm import assemble
from systolith.isa.chip import SCHEMA, Chip, load_chip
from systolith.isa.program import Role
from systolith.sim.host_times import HostTimes
from systolith.sim.memory import Machine
from tests.compiler.driver.test_sorts import sorting
from tests.compiler.index_cases import ADD, TAKE, lookup, row_arguments, update
from tests.compiler.loops import rows, scans
from tests.compiler.loops.cases import BODIES, module, rolled_everywhere
from tests.compiler.loops.rows import NESTS, ROWS
from tests.compiler.machine import Array, compiled, memory
from tests.compiler.window_cases import select_and_scatter_text, window_arguments
from tests.host import test_configs as configs
from tests.host.test_feeds import ITEM, LOOP, TURNS, item
from tests.hw.full_queues import full_queues
from tests.hw.queue_programs import queue_program
from tests.programs.cases import CASES
from tests.programs.run import arguments


@pytest.fixture(scope="module")
def core() -> Iterator[Lockstep]:
    with Lockstep(load_chip("tiny")) as both:
        yield both


def written_by_hand(name: str, chip: Chip) -> Case:
    """A program of tests/programs with its arguments, in buffers or in the infeed queue."""
    program = assemble(CASES[name].path.read_text(), chip)
    given = arguments(name)

    def fill(machine: Machine) -> None:
        for array in given:
            machine.infeed[0].push(array)

    if CASES[name].host:
        return Case(program, setup=fill)
    parameters = {b.number: i for i, b in enumerate(program.buffers) if b.role is Role.PARAMETER}
    return Case(program, {parameters[n]: np.frombuffer(a.tobytes(), np.uint8) for n, a in enumerate(given)})


def compiled_case(text: str, arguments: Sequence[Array]) -> Case:
    """A module's program with its arguments."""
    program = compiled(text).program
    buffers = {b.number: n for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER}
    return Case(program, {buffers[k]: np.frombuffer(a.tobytes(), np.uint8) for k, a in enumerate(arguments)})


def agree(core: Lockstep, case: Case) -> Result:
    result = core.run(case)
    assert result.ok, result.difference
    assert result.words > 0
    return result


def test_every_field_of_a_chip_is_a_parameter() -> None:
    assert set(PARAMETERS) | set(NO_PARAMETER) == set(SCHEMA)
    text = (HW / "rtl" / "core.sv").read_text()
    assert all(f" {name} = " in text for name in PARAMETERS.values())


@pytest.mark.parametrize("name", CASES)
def test_programs_written_by_hand(core: Lockstep, name: str) -> None:
    agree(core, written_by_hand(name, core.chip))


@pytest.mark.parametrize("name", ["transpose", "product", "indices"])
def test_rolled_tile_loops(core: Lockstep, name: str) -> None:
    """Addresses and coordinates from registers that loops move, tokens over the way back, nests."""
    sizes = {"transpose": (100, 100, 0), "product": (32, 50, 100), "indices": (200, 128, 0)}
    with rolled_everywhere():
        program = compiled(module(BODIES[name], *sizes[name])).program
    assert any(i.op == "loop" for i in program.code)
    rng = np.random.default_rng(0)
    given = {
        n: rng.integers(0, 63, b.bytes, np.uint8) for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER
    }
    agree(core, Case(program, given))


@pytest.mark.parametrize("name", ["recurrence", "backwards", "two_loops", "fibonacci"])
def test_loops_of_known_trip_counts(core: Lockstep, name: str) -> None:
    """Indices from induction variables, iterations that overlap, the first of which is not in the loop."""
    args = scans.arguments(name)
    program = compiled(scans.hlo(scans.PROGRAMS[name][0], args)).program
    assert any(i.op == "loop" for i in program.code)
    agree(core, Case(program, memory(program, args)))


@pytest.mark.parametrize("name", NESTS)
def test_nests_of_loops_whiles_and_branches(core: Lockstep, name: str) -> None:
    agree(core, Case(rows.program(NESTS[name].body), {0: np.arange(ROWS * 160, dtype=np.uint32).view(np.uint8)}))


@pytest.mark.parametrize(
    "text", [lookup(90, 5, 70), update(90, 5, 40, ADD), update(90, 5, 40, TAKE, width=3), update(900, 64, 40, ADD)]
)
def test_windows_through_lists_of_indices(core: Lockstep, text: str) -> None:
    """Copies through a list, and a kernel in serial mode; of equal indices the order counts."""
    agree(core, compiled_case(text, row_arguments(text)))


def test_the_gradient_of_max_pooling(core: Lockstep) -> None:
    """Windows that overlap, and padding before and after: strided streams with bounds and fills."""
    text = select_and_scatter_text((2, 9, 8, 3), [WindowDim(1), *[WindowDim(3, 2, 1, 1)] * 2, WindowDim(1)])
    agree(core, compiled_case(text, window_arguments(parse_hlo(text), 0)))


def test_networks_that_turn_the_matrix(core: Lockstep) -> None:
    """A sort: kernels that store two pieces of each array, and copies by the cross-lane unit between them."""
    text, args = sorting("floats as JAX sorts them")
    program = compiled(text).program
    assert any(i.op == "xlu.shuffle" for i in program.code)
    given = {
        n: args[b.number].reshape(-1).view(np.uint8) for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER
    }
    agree(core, Case(program, given))


@pytest.mark.parametrize("seed", range(100))
def test_queues_fences_and_tokens(core: Lockstep, seed: int) -> None:
    agree(core, queue_program(core.chip, seed))


COPIES = """
.program copies
.buffer a parameter u8 [64] number=0
.buffer b result u8 [64] number=0
.token loaded ld -> st
.pattern bytes u8 counts=(37) strides=(1)
.pattern reversed u8 counts=(37) strides=(-1)
.pattern words u32 counts=(5) strides=(4)
    dma.load hbm(a)[3]:bytes, vmem[1]:bytes
    dma.load host(1)[0]:words, smem[8]:words
    fence dma.load smem[8]:words, vmem[1001]:words
    fence dma.load vmem[1]:bytes, vmem[120]:bytes signal loaded
    dma.store vmem[120]:bytes, hbm(b)[44]:reversed wait loaded
    dma.store vmem[1001]:words, link(1)[4]:words
    dma.store smem[8]:words, smem[100]:words
    dma.store vmem[1]:bytes, host(0)[0]:bytes
    fence dma.store smem[100]:words, host(0)[0]:words
    halt
"""


def test_every_memory_is_reached_by_copies(core: Lockstep) -> None:
    chip = core.chip
    program = assemble(COPIES, chip)
    rng = np.random.default_rng(1)

    def setup(machine: Machine) -> None:
        machine.links[1] = Machine(program, chip, {})
        machine.infeed[1].push(rng.integers(0, 2**32, 9, np.uint32))

    agree(core, Case(program, {0: rng.integers(0, 256, 64, np.uint8)}, setup))


@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_comes_late_and_takes_slowly(core: Lockstep, seed: int) -> None:
    """A compiled loop whose items arrive, and whose outfeed is taken, at random cycles; seed 0: all are there."""
    rng = np.random.default_rng(seed)
    program = compiled(LOOP).program

    def fill(machine: Machine) -> None:
        for n in range(TURNS):
            machine.infeed[0].push(item(n), "f32")

    def steps(last: int) -> list[tuple[int, int]]:
        cycles = np.sort(rng.integers(0, last, TURNS)).tolist()
        return [(cycle, ITEM) for cycle in cycles]

    host = HostTimes({0: steps(200 * seed * TURNS)}, {0: steps(300 * seed * TURNS)}) if seed else HostTimes()
    (entry,) = (n for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER)
    agree(core, Case(program, {entry: np.zeros(ITEM, np.uint8)}, fill, host=host))


@pytest.mark.parametrize("seed", range(8))
def test_full_infeed_queues_hold_the_host_as_long(core: Lockstep, seed: int) -> None:
    held = agree(core, full_queues(core.chip, seed)).host_held
    assert sum(held.values()) > 0


@pytest.mark.parametrize("seed", range(3))
def test_queues_of_several_configs(core: Lockstep, seed: int) -> None:
    """Two infeed queues and two outfeed queues, each with times of its own; seed 0: all are there."""
    rng = np.random.default_rng(seed)
    program = compiled(configs.TEXT).program
    counts = {"images": 2 * configs.TURNS, "": configs.TURNS}

    def fill(machine: Machine) -> None:
        for config, values in configs.ITEMS.items():
            for array in (a for value in values for a in configs.flat(value)):
                machine.infeed[program.host_queue(Role.INFEED, config)].push(array)

    def steps(count: int, size: int) -> list[tuple[int, int]]:
        return [(cycle, size) for cycle in np.sort(rng.integers(0, 3000 * seed + 1, count)).tolist()]

    sent = {config: steps(count, 256) for config, count in counts.items()}
    taken = {config: steps(configs.TURNS, 256) for config in ("sums", "seen")}
    (entry,) = (n for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER)
    start = {entry: configs.START.view(np.uint8)}
    agree(core, Case(program, start, fill, host=HostTimes(sent, taken) if seed else HostTimes()))


def test_what_a_run_leaves_does_not_show_in_the_next(core: Lockstep) -> None:
    agree(core, written_by_hand("host_queues", core.chip))
    agree(core, written_by_hand("conv_stem", core.chip))
    agree(core, Case(assemble(".program nothing\n    halt\n", core.chip)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_programs_written_by_hand_on_a_larger_chip(small: Lockstep, name: str) -> None:
    agree(small, written_by_hand(name, small.chip))


@pytest.fixture(scope="module")
def small() -> Iterator[Lockstep]:
    with Lockstep(load_chip("small")) as both:
        yield both


def odd_chip() -> Chip:
    """Two of everything, the shallowest queues, the shortest latencies, and bandwidth that does not divide."""
    chip = load_chip("tiny")
    return replace(
        chip,
        name="odd",
        seq=replace(chip.seq, fetch_words=6, branch_penalty=0),
        fifo=replace(chip.fifo, depth=1),
        token=replace(chip.token, max=63),
        mxu=replace(chip.mxu, count=2, rows=16, segments=3, load_latency=1, pipeline=3),
        vpu=replace(chip.vpu, load_slots=2, store_slots=2, alu_latency=1, load_latency=1, trans_latency=1),
        xlu=replace(chip.xlu, latency=2),
        hbm=replace(chip.hbm, p=7, q=3, latency=1),
        dma=replace(chip.dma, segments=1, local_latency=3),
        host=replace(chip.host, queues=3, p=7, q=3, setup=0, latency=1, room=512),
        link=replace(chip.link, count=0),
    )


@pytest.mark.slow
def test_another_chip() -> None:
    with Lockstep(odd_chip()) as both:
        for name in ("conv_stem", "ragged_dot", "sort", "scatter", "fft", "host_queues"):
            agree(both, written_by_hand(name, both.chip))
        for seed in range(100):
            agree(both, queue_program(both.chip, seed))
