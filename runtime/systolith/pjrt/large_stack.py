"""Threads with large stacks: jaxlib calls from threads with little, and the compiler recurses."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STACK = 256 << 20
"""Bytes of the stack of a thread that compiles.  Only pages that are used take memory."""

_starting = threading.Lock()

_at_work: set[threading.Thread] = set()
"""Threads that somebody waits for."""


_PAUSE = 0.05
"""Seconds."""


def on_large_stack(work: Callable[[], T]) -> T:
    """The result of a function that is called in a thread with a large stack; raises its exception."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="systolith compile", daemon=True)
    with _starting:
        before = threading.stack_size(STACK)
        try:
            thread.start()
        except RuntimeError:  # there is no room for one more
            return work()
        finally:
            threading.stack_size(before)
    _at_work.add(thread)
    try:
        thread.join()
    except BaseException:  # Ctrl-C: nobody wants the result
        _give_up(thread)
        raise
    finally:
        _at_work.discard(thread)
    if errors:
        raise errors[0]
    return results[0]


def end_all() -> None:
    """Give up what threads work on, as the interpreter ends.

    After Ctrl-C jaxlib's own thread still waits for a compilation.  In Python it would not survive the interpreter, and
    jaxlib, which waits for its threads, would never end.
    """
    waiting = [*_at_work]
    for thread in waiting:
        _give_up(thread)
    while _at_work:
        time.sleep(_PAUSE)
    if waiting:
        time.sleep(_PAUSE)  # they are on their way out of Python


def _give_up(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
