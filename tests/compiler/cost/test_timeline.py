"""The timeline of a chip's units, against the rules that it is for and against the simulator."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.cost.timeline import Timeline
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Origin, Program, Role
from systolith.isa.timing import Cost
from systolith.sim.simulate import simulate

V3 = load_chip("tpu_v3")

Operation = tuple[str, int, int, int]
"""Queue, time at which its operands are there, occupancy, latency beyond that."""

operations = st.lists(
    st.tuples(st.sampled_from(["ld", "st", "vpu", "s0"]), st.integers(0, 200), st.integers(1, 60), st.integers(0, 60)),
    max_size=20,
)


def put(timeline: Timeline, operation: Operation) -> tuple[int, int]:
    """Start of an operation, and when it is done."""
    queue, ready, occupancy, more = operation
    start = timeline.start(queue, [ready])
    return start, timeline.run(queue, start, Cost(occupancy, occupancy + more, int(queue in ("ld", "st"))))


@given(operations)
def test_a_queue_starts_one_operation_after_another(given: list[Operation]) -> None:
    timeline = Timeline()
    free: dict[str, int] = {}
    for operation in given:
        queue, ready, occupancy, more = operation
        start, done = put(timeline, operation)
        assert start >= max(ready, free.get(queue, 0))
        if queue in ("vpu", "s0"):
            assert (start, done) == (max(ready, free.get(queue, 0)), start + occupancy + more)
        assert done >= start + occupancy + more
        free[queue] = done - more


@given(operations)
def test_transfers_take_all_of_the_bandwidth_while_there_are_any(given: list[Operation]) -> None:
    """Loads and stores that are all there at the start: no cycle of HBM is lost, and none is given twice."""
    timeline = Timeline()
    work = {"ld": 0, "st": 0}
    for queue, _, occupancy, _ in given:
        if queue in work:
            put(timeline, (queue, 0, occupancy, 0))
            work[queue] += occupancy
    ends = {queue: timeline.start(queue, []) for queue in work}
    assert max(ends.values()) == sum(work.values())
    assert min(ends.values()) == min(2 * min(work.values()), sum(work.values()))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 24)), min_size=1, max_size=6), st.sampled_from([1, 3]))
@settings(max_examples=30)
def test_random_transfers_end_when_the_simulator_says(transfers: list[tuple[bool, int]], slower: int) -> None:
    """Against the arbiter, which grants chunk by chunk: a few cycles for each transfer."""
    chip = replace(V3, hbm=replace(V3.hbm, q=slower * V3.hbm.q))
    sizes = [kilobytes << 10 for _, kilobytes in transfers]
    patterns = [Pattern(dtype("f32"), (size // 4,), (4,)) for size in sizes]
    hbm, vmem = Space.HBM, Space.VMEM
    code = [
        Instruction("dma.load" if load else "dma.store", {"src": Stream(a, n), "dst": Stream(b, n)})
        for n, (load, _) in enumerate(transfers)
        for a, b in [(hbm, vmem) if load else (vmem, hbm)]
    ]
    buffer = BufferDecl("a", Role.TEMP, "u8", (1 << 20,), 1 << 20)
    program = Program("p", chip.name, chip.digest(), [*code, Instruction("halt")], patterns, buffers=[buffer])
    program.debug, program.origins = [0] * len(program.code), [Origin("o", "g", "move")]
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    timeline = Timeline()
    for (load, _), size in zip(transfers, sizes, strict=True):
        taken = size * chip.hbm.q // chip.hbm.p
        put(timeline, ("ld" if load else "st", 0, taken, 0))
    last = max(timeline.start(queue, []) for queue in ("ld", "st"))
    assert abs(last + chip.hbm.latency - cycles) <= 3 * len(transfers)
