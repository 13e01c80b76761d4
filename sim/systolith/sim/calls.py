"""Native calls of a run: made at once, or by a second thread in the order in which they were asked for.

The value plane makes calls whose operands it knows (addresses, strides) before the values are there.  A second thread
can therefore make them while the first one goes on: interprets instructions, keeps time, prepares the next calls.
Whoever looks at memory itself calls `wait` first.  The order of the calls is the program's, so results are the same.

The second thread runs native code only, and so never waits for the interpreter's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # LLVM's library takes long to import, and runs without values do without it
    from systolith.isa.native.library import Function


class Calls(Protocol):
    """Makes native calls in order."""

    def __call__(self, function: Function, arguments: Sequence[int], keep: object) -> None:
        """Make a call, perhaps later; `keep` is held until then."""

    def wait(self) -> None:
        """Return when all of them have been made."""


class Direct:
    """Makes each call at once."""

    def __call__(self, function: Function, arguments: Sequence[int], keep: object) -> None:
        function(*arguments)

    def wait(self) -> None:
        """Nothing is under way."""


def threads() -> int:
    """How many threads a run may use: the processors it has, or fewer if `OMP_NUM_THREADS` says so."""
    has = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list: one for each level of nesting
    return min(has, int(told)) if told.isdecimal() and int(told) else has


@contextmanager
def calls() -> Iterator[Calls]:
    """Calls by a second thread if there may be one; all of them have been made at the end."""
    if threads() < 2:
        yield Direct()
        return
    from systolith.sim.call_queue import Queue

    queue = Queue()
    try:
        yield queue
    finally:
        queue.stop()
