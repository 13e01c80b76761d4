"""Work of a device: done by a thread, one after the other, in the order in which it was given.

A process made by `os.fork()` has none of its parent's threads: there a queue starts anew, and a task under way is
known to be lost instead of being waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, ExceptHookArgs, RLock, current_thread, excepthook, get_ident
from typing import Any, Generic, TypeVar

from systolith.isa.errors import SystolithError

T = TypeVar("T")


class LostTaskError(SystolithError):
    """A run was under way when `os.fork()` made this process."""


class Task(Generic[T]):
    """Work that is to be done, under way, or done; also the event of its end.

    Attributes:
        cancelled: set by `cancel`; the work looks at it.
    """

    def __init__(self, work: Callable[[], T], cancelled: Event | None = None) -> None:
        self._work: Callable[[], T] | None = work
        self._process = os.getpid()
        self._end = Event()
        self._done = False  # no lock is behind it that a fork could have left locked
        self._value: T
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []
        self.cancelled = cancelled or Event()

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
        self._call_back()

    @property
    def is_ready(self) -> bool:
        """Whether it is done."""
        return self._done

    def wait(self, timeout: float | None = None) -> bool:
        """Return once it is done, at once where it never will be, or after `timeout` seconds; says if it is done."""
        if not self._done and self._process == os.getpid():
            self._end.wait(timeout)
        return self._done

    def on_ready(self, callback: Callable[[], object]) -> None:
        """Call a function once it is done, in the thread that does it; at once if it is."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread has called it
                return
            try:
                callback()
            except Exception as error:
                excepthook(ExceptHookArgs((type(error), error, error.__traceback__, current_thread())))

    def cancel(self) -> None:
        """Ask it to end; then it has an exception instead of a value.  What is done stays."""
        self.cancelled.set()

    def error(self) -> BaseException | None:
        """Its exception, once it is done; None: it has a value."""
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def result(self) -> T:
        """The value of its function, once it is done; raises its exception.  Ctrl-C while it waits cancels it.

        Raises:
            LostTaskError: it is done in the parent of this process, which does not see it.
        """
        try:
            self.wait()
        except KeyboardInterrupt:
            self.cancel()
            raise
        if not self._done:
            raise LostTaskError("the run was under way when os.fork() made this process: its results are in the parent")
        if self._error is not None:
            raise _again(self._error)
        return self._value


def _again(error: BaseException) -> BaseException:
    """An exception to raise: one that is raised gets the frames around, and whoever keeps it keeps what they hold."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)


def finished() -> Task[None]:
    """A task that is done."""
    task: Task[None] = Task(lambda: None)
    task.run()
    return task


class ProcessLock:
    """A lock that a fork leaves open: held in the parent by a thread that the child does not have."""

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _note_thread(place: list[int]) -> None:
    place.append(get_ident())


class TaskQueue:
    """Does tasks by one thread.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: list[int] = []
        self._under_way: set[Task[Any]] = set()
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._worker.clear()
        self._under_way.clear()
        # Refers to the list only: the thread ends when the queue is no more.
        self._thread = ThreadPoolExecutor(1, self._name, _note_thread, (self._worker,))

    def submit(self, work: Callable[[], T], cancelled: Event | None = None) -> Task[T]:
        """Have something done after all that was submitted before."""
        if self._process != os.getpid():
            self._start()
        task = Task(work, cancelled)
        self._under_way.add(task)
        task.on_ready(partial(self._under_way.discard, task))
        self._thread.submit(task.run)
        return task

    def cancel(self) -> None:
        """Ask all to end that is not done."""
        for task in self._under_way.copy():
            task.cancel()

    def drain(self) -> None:
        """Return once all is done that was submitted before; at once where one of its own tasks calls it."""
        if get_ident() not in self._worker:
            self.submit(lambda: None).wait()


class CallerQueue:
    """Does tasks at once, in the thread that submits them, one after the other."""

    def __init__(self) -> None:
        self._turn = RLock()

    def submit(self, work: Callable[[], T], cancelled: Event | None = None) -> Task[T]:
        """Do something after all that was submitted before; it is done on return."""
        task = Task(work, cancelled)
        with self._turn:
            task.run()
        return task

    def cancel(self) -> None:
        """All is done that was submitted before."""

    def drain(self) -> None:
        """All is done that was submitted before."""
