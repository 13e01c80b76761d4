"""A client works in a process made by os.fork(), which has none of its threads; work under way there is lost."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from threading import Event, Thread

import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.task import LostTaskError, Task, TaskQueue

TEXT = "HloModule m\nENTRY e {\n a = f32[2] parameter(0)\n ROOT b = f32[2] add(a, a)\n}\n"
ONES = np.ones(2, np.float32)
# JAX, which other tests have imported, warns of every fork; a child does not come near it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")


def in_child(work: Callable[[], object]) -> object:
    """The result, or the exception, in a child process; fails where it takes longer than 30 s."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = work()
        except BaseException as error:
            result = error
        with open(writer, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writer)
    for _ in range(3000):
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    with open(reader, "rb") as pipe:
        return pickle.load(pipe)


@pytest.fixture(scope="module")
def used() -> tuple[sl.Client, sl.Executable, sl.Buffer]:
    client = sl.Client("tiny")
    executable = client.compile(TEXT)
    (result,) = executable(ONES)
    result.block()
    return client, executable, result


def test_what_was_done_before_is_there(used: tuple[sl.Client, sl.Executable, sl.Buffer]) -> None:
    _, executable, result = used
    assert executable.last_run is not None
    cycles = executable.last_run.cycles
    assert in_child(lambda: (result.numpy().tolist(), executable.last_run.cycles)) == ([2, 2], cycles)  # type: ignore[union-attr]


def test_runs_go_on_in_child_and_parent(used: tuple[sl.Client, sl.Executable, sl.Buffer]) -> None:
    client, executable, result = used
    assert in_child(lambda: executable(result)[0].numpy().tolist()) == [4, 4]
    assert in_child(lambda: client.compile(TEXT)(client.put(ONES))[0].numpy().tolist()) == [2, 2]
    assert executable(result)[0].numpy().tolist() == [4, 4]


def test_what_is_under_way_is_lost_in_the_child_only() -> None:
    begun, end = Event(), Event()
    queue = TaskQueue("test")

    def work() -> int:
        begun.set()
        end.wait(60)
        return 7

    first, second = queue.submit(work), queue.submit(lambda: 8)
    begun.wait(60)

    def look() -> list[str]:
        found = []
        for task in (first, second):
            try:
                found.append(str(task.result()))
            except LostTaskError as error:
                found.append(str(error))
        return [*found, str(queue.submit(lambda: 9).result())]

    lost = "the run was under way when os.fork() made this process: its results are in the parent"
    assert in_child(look) == [lost, lost, "9"]
    end.set()
    assert (first.result(), second.result()) == (7, 8)


def test_locks_that_another_thread_holds_are_open_in_the_child(
    used: tuple[sl.Client, sl.Executable, sl.Buffer],
) -> None:
    client, executable, result = used
    locked, end = Event(), Event()

    def hold() -> None:
        with client.devices[0].calling, client.devices[0].hbm._lock:
            locked.set()
            end.wait(60)

    thread = Thread(target=hold)
    thread.start()
    locked.wait(60)
    try:
        assert in_child(lambda: executable(result)[0].numpy().tolist()) == [4, 4]
    finally:
        end.set()
        thread.join()


def test_a_task_gives_what_it_made_or_raised() -> None:
    queue = TaskQueue("test")
    failed: Task[int] = queue.submit(lambda: 1 // 0)
    assert queue.submit(lambda: 3).result() == 3
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.result()
