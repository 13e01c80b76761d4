"""Native calls by a second thread: in order, all of them, and the same results."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.hw.fuzz.generate import program
from systolith.isa.instruction import Space, Stream
from systolith.isa.native.copies import blocks, copy_blocks
from systolith.isa.native.library import Library
from systolith.isa.numerics.images import U32, Array
from systolith.sim import calls as calls_module
from systolith.sim import native_kernels
from systolith.sim.call_queue import _SLOTS, Queue
from systolith.sim.calls import Direct, calls, threads
from systolith.sim.memory import Machine, SimulationError
from systolith.sim.simulate import simulate
from tests.examples import examples
from tests.sim_values.build import TINY, Builder


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15), st.booleans()), max_size=700))
def test_calls_are_made_in_order(moves: list[tuple[int, int, bool]]) -> None:
    """Copies among the rows of an array, with waits here and there."""
    ours, theirs = (np.arange(16 * 64, dtype=np.uint32).reshape(16, 64) for _ in range(2))
    queue = Queue()
    for source, target, wait in moves:
        if source != target:
            rows = [ours[n].ctypes.data for n in (source, target)]
            copy_blocks("4", blocks([(0, 0, [(64, 4, 4)])]), rows[0], rows[1], ours, queue)
            theirs[target] = theirs[source]
        if wait:
            queue.wait()
            assert np.array_equal(ours, theirs)
    queue.stop()
    assert np.array_equal(ours, theirs)


def test_memory_of_calls_is_held_until_they_are_made() -> None:
    held = []

    class Held:
        def __del__(self) -> None:
            held.append(1)

    numbers, four, queue = np.zeros(8, U32), blocks([(0, 0, [(4, 4, 4)])]), Queue()
    for _ in range(1000):
        copy_blocks("4", four, numbers.ctypes.data, numbers.ctypes.data + 16, Held(), queue)
    assert 1000 - len(held) <= _SLOTS
    queue.stop()
    assert len(held) == 1000


def test_functions_are_held_until_they_are_called() -> None:
    """A library that another thread has made as well is not kept."""
    function = Library({"nothing": (0, lambda b: None)}, __file__)["nothing"]
    held, queue = ref(function), Queue()
    queue(function, (), None)
    del function
    assert held() is not None
    queue.stop()
    assert held() is None


@pytest.mark.parametrize(
    ("told", "expected"), [("1", 1), ("1,4", 1), (" 1", 1), ("0", None), ("many", None), ("", None), ("1000", None)]
)
def test_threads(told: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    has = threads()
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert threads() == (expected or has)


def test_one_thread_makes_calls_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "threads", lambda: 1)
    with calls() as made:
        assert isinstance(made, Direct)
    monkeypatch.setattr(calls_module, "threads", lambda: 2)
    with calls() as made:
        assert isinstance(made, Queue)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for machine code, empty at first."""
    return tmp_path_factory.mktemp("cache")


@examples(12, 25)
@given(seed=st.integers(0, 2**20))
def test_any_program_leaves_the_same(cache: Path, seed: int) -> None:
    """One thread and numpy, two threads, and two threads with every kernel as machine code."""
    case = program(seed, TINY)
    kept = []
    for made, worth in ((1, 1 << 62), (2, 1 << 62), (2, 0)):
        machines: list[Machine] = []

        def setup(machine: Machine, machines: list[Machine] = machines) -> None:
            case.setup(machine)
            machines.append(machine)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls_module, "threads", lambda made=made: made)
            patch.setattr(native_kernels, "WORTH", worth)
            patch.setenv("XDG_CACHE_HOME", str(cache))
            result = simulate(case.program, case.chip, case.buffers(), setup=setup)
        m = machines[0]
        memories: list[Array] = [m.vmem, m.smem, *m.acc, *m.buffers, *(n.vmem for n in m.links.values())]
        kept.append((result.cycles, [memory.tobytes() for memory in memories]))
    assert kept[0] == kept[1]
    assert kept[0] == kept[2]


def test_an_error_leaves_what_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls under way are made, and the machine makes the next ones itself."""
    monkeypatch.setattr(calls_module, "threads", lambda: 2)
    b = Builder()
    source = Stream(Space.HBM, b.dense("f32", (4,)), 0, buffer=b.buffer(np.arange(4, dtype=np.float32)))
    b.add("dma.load", src=source, dst=b.vmem(0, 64))
    b.add("trap", code=3)
    machines: list[Machine] = []
    with pytest.raises(SimulationError, match="traps with code 3"):
        simulate(b.program, TINY, b.data, setup=machines.append)
    assert machines[0].vmem[64:80].view(np.float32).tolist() == [0, 1, 2, 3]
    assert isinstance(machines[0].calls, Direct)


def test_few_calls_need_no_thread() -> None:
    numbers, one, queue = np.array([7, 0], U32), blocks([(0, 0, [(1, 4, 4)])]), Queue()
    copy_blocks("4", one, numbers.ctypes.data, numbers.ctypes.data + 4, numbers, queue)
    queue.wait()
    assert numbers.tolist() == [7, 7]
    assert queue._thread is None
    queue.stop()


def _copied(queue: Queue, stop: bool = True) -> Array:
    """A queue's result of copies of one number from place to place."""
    numbers, four = np.array([7] + [0] * 600, U32), blocks([(0, 0, [(1, 4, 4)])])
    for n in range(600):
        copy_blocks("4", four, numbers.ctypes.data + 4 * n, numbers.ctypes.data + 4 * n + 4, numbers, queue)
    if stop:
        queue.stop()
    return numbers


def test_where_no_thread_can_be_started_calls_are_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    assert (_copied(Queue()) == 7).all()


@pytest.mark.parametrize("started", [False, True])
def test_an_interrupt_of_the_start_leaves_no_thread_and_no_call(started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads_made, begin, queue = list[Thread](), Thread.start, Queue()

    def start(thread: Thread) -> None:
        threads_made.append(thread)
        if started:
            begin(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        _copied(queue)
    numbers, one = np.array([1, 0], U32), blocks([(0, 0, [(1, 4, 4)])])
    copy_blocks("4", one, numbers.ctypes.data, numbers.ctypes.data + 4, numbers, queue)
    queue.stop()
    assert numbers.tolist() == [1, 1]
    if started:
        threads_made[0].join(10)
    assert len(threads_made) == 1
    assert not threads_made[0].is_alive()


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_wait_ends_the_thread(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts while memory that calls held is released: of a run, and of its end."""
    left, release, queue = [times], Queue._release, Queue()

    def interrupted(self: Queue) -> None:
        release(self)
        if left[0] and self._thread is not None:
            left[0] -= 1
            self._made = 0  # it had come no further
            raise KeyboardInterrupt

    monkeypatch.setattr(Queue, "_release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _copied(queue, stop=False)
    thread = queue._thread
    assert thread is not None
    if times == 1:
        queue.stop()
    else:
        with pytest.raises(KeyboardInterrupt):
            queue.stop()
    assert not thread.is_alive()
