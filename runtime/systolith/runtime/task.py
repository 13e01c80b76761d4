"""Work of a device: done by a thread, one after the other, in the order in which it was given.

A process made by `os.fork()` has none of its parent's threads: there a queue starts anew, and a task under way is
known to be lost instead of being waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, RLock
from typing import Generic, TypeVar

from systolith.isa.errors import SystolithError

T = TypeVar("T")


class LostTaskError(SystolithError):
    """A run was under way when `os.fork()` made this process."""


class Task(Generic[T]):
    """Work that is to be done, under way, or done."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._process = os.getpid()
        self._end = Event()
        self._done = False  # no lock is behind it that a fork could have left locked
        self._value: T
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, and keep its value or exception."""
        assert self._work is not None
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error
        self._work = None
        self._done = True
        self._end.set()

    def wait(self) -> None:
        """Return once it is done; at once, where it never will be."""
        if not self._done and self._process == os.getpid():
            self._end.wait()

    def result(self) -> T:
        """The value of its function, once it is done; raises its exception.

        Raises:
            LostTaskError: it is done in the parent of this process, which does not see it.
        """
        self.wait()
        if not self._done:
            raise LostTaskError("the run was under way when os.fork() made this process: its results are in the parent")
        if self._error is not None:
            raise self._error
        return self._value


class TaskQueue:
    """Does tasks by one thread.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)

    def submit(self, work: Callable[[], T]) -> Task[T]:
        """Have something done after all that was submitted before."""
        if self._process != os.getpid():
            self._start()
        task = Task(work)
        self._thread.submit(task.run)
        return task


class CallerQueue:
    """Does tasks at once, in the thread that submits them, one after the other."""

    def __init__(self) -> None:
        self._turn = RLock()

    def submit(self, work: Callable[[], T]) -> Task[T]:
        """Do something after all that was submitted before; it is done on return."""
        task = Task(work)
        with self._turn:
            task.run()
        return task
