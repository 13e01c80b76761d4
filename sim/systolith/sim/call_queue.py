"""A second thread that makes native calls in the order in which they were asked for (`calls.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_void_p
from functools import lru_cache
from threading import Thread
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.native.library import I32, I64, MAX_ARGUMENTS, PACK, Function, Library, pointer

_SLOTS = 256  # calls that may be under way
_SLOT = 8 * (1 + MAX_ARGUMENTS)
_BASE, _ASKED, _DONE, _WANTED, _STOP = range(5)  # words of the queue's state
_SLEEPS, _WAITS = 5, 6  # whether the second thread, or the first one, has to be woken
_BATCH = 8  # calls told of at once
_FEW = 64  # calls that the first thread makes itself: they take less time than starting another one
_CODE = CFUNCTYPE(None, c_void_p)
_SPINS = 5000  # looks at a word (some microseconds) before a thread sleeps: waking it takes longer
_MUTEX, _WORK, _PROGRESS, _RING = 128, 256, 384, 512  # offsets; the first three are pthread's, with room to spare


class Queue:
    """A second thread that makes calls; `stop` ends it.

    An exception may come between any two statements (an interrupt from the keyboard): the record of a call is its
    slot's, so that noting it again does no harm, and the thread keeps the memory it looks at.
    """

    def __init__(self) -> None:
        native = _library()
        self._memory = np.zeros(_RING + _SLOTS * _SLOT, np.uint8)
        self._bytes = memoryview(self._memory)  # type: ignore[arg-type, unused-ignore]
        self._words = self._bytes[:_MUTEX].cast("q")
        self._words[_BASE] = self._base = self._memory.ctypes.data
        self._ask, self._finish = native["ask"].at, native["finish"].at
        self._asked = self._made = 0
        self._kept: list[object] = [None] * _SLOTS
        native["prepare"].at(self._base)
        self._thread: Thread | None = None
        self._alone = False

    def __call__(self, function: Function, arguments: Sequence[int], keep: object) -> None:
        if self._asked - self._made == _SLOTS:
            self._until(self._asked - _SLOTS // 2)
        slot = self._asked % _SLOTS
        PACK[1 + len(arguments)].pack_into(self._bytes, _RING + slot * _SLOT, function.address, *arguments)
        self._kept[slot] = function, keep
        self._asked += 1
        if not self._asked % _BATCH:
            self._publish()
            self._release()

    def _publish(self) -> None:
        if self._thread is None and not self._alone and self._asked > _FEW:
            self._start()
        if self._thread is None:
            self._make()
        else:
            self._words[_WANTED] = self._asked
            self._ask(self._base)

    def _start(self) -> None:
        """Start the thread; where there may be no more of them, this one makes the calls."""
        memory = self._memory.ctypes.data_as(c_void_p)  # holds the array
        thread = Thread(target=_library()["work"].at, args=(memory,), name="systolith-calls", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except BaseException as error:  # it may have started, or not
            self._alone = True
            self._end()
            if not isinstance(error, RuntimeError):
                raise

    def _end(self) -> None:
        """Let the thread end, with no further call."""
        self._words[_STOP] = 1
        self._words[_WANTED] = 1 << 62  # more than are ever made, however late the thread looks
        self._ask(self._base)

    def _make(self) -> None:
        """Make all calls in this thread."""
        for number in range(self._words[_DONE], self._asked):
            slot = _RING + number % _SLOTS * _SLOT
            _CODE(PACK[1].unpack_from(self._bytes, slot)[0])(self._base + slot + 8)
            self._words[_DONE] = number + 1

    def _until(self, made: int) -> None:
        self._publish()
        self._words[_WANTED] = made
        self._finish(self._base)
        self._release()

    def _release(self) -> None:
        made = self._words[_DONE]
        for number in range(self._made, made):
            self._kept[number % _SLOTS] = None
        self._made = made

    def wait(self) -> None:
        """Return when all calls have been made."""
        if self._made != self._asked:
            self._until(self._asked)

    def stop(self) -> None:
        """Make the calls that are left, then end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._end()
                self._thread.join()


@lru_cache(maxsize=1)
def _library() -> Library:
    """The queue's native side: functions of its state.

    Counts are atomic.  Who finds nothing to do looks again for a while, then says so and sleeps; who changes a count
    looks, after that, whether somebody sleeps.
    """
    bodies = {"prepare": _prepare, "ask": _ask, "finish": _finish, "work": _work}
    return Library({name: (1, body) for name, body in bodies.items()}, __file__)


def _pthread(b: ir.IRBuilder, name: str, *arguments: Any) -> None:
    """Call a function of the threads' library; arguments are addresses."""
    kind = ir.FunctionType(I32, [I64] * len(arguments))
    found = b.module.globals.get(f"pthread_{name}")
    b.call(found or ir.Function(b.module, kind, f"pthread_{name}"), arguments)


def _at(b: ir.IRBuilder, base: Any, offset: int) -> Any:
    return b.add(base, I64(offset))


def _get(b: ir.IRBuilder, base: Any, word: int) -> Any:
    return b.load_atomic(pointer(b, _at(b, base, 8 * word), I64), "seq_cst", 8)


def _set(b: ir.IRBuilder, base: Any, word: int, value: Any) -> None:
    b.store_atomic(value, pointer(b, _at(b, base, 8 * word), I64), "seq_cst", 8)


def _prepare(b: ir.IRBuilder, base: Any) -> None:
    _pthread(b, "mutex_init", _at(b, base, _MUTEX), I64(0))
    _pthread(b, "cond_init", _at(b, base, _WORK), I64(0))
    _pthread(b, "cond_init", _at(b, base, _PROGRESS), I64(0))


def _await(b: ir.IRBuilder, base: Any, event: int, sleeper: int, ready: Callable[[], Any]) -> None:
    """Return when `ready`: look, then sleep until there was an `event`, with word `sleeper` set."""
    spin, look, doze, test, sleep, woken, after = (b.append_basic_block() for _ in range(7))
    before = b.block
    b.branch(spin)
    b.position_at_end(spin)
    looks = b.phi(I64)
    looks.add_incoming(I64(0), before)
    b.cbranch(ready(), after, look)
    b.position_at_end(look)
    looks.add_incoming(b.add(looks, I64(1)), look)
    b.cbranch(b.icmp_signed("<", looks, I64(_SPINS)), spin, doze)
    b.position_at_end(doze)
    _pthread(b, "mutex_lock", _at(b, base, _MUTEX))
    _set(b, base, sleeper, I64(1))
    b.branch(test)
    b.position_at_end(test)
    b.cbranch(ready(), woken, sleep)
    b.position_at_end(sleep)
    _pthread(b, "cond_wait", _at(b, base, event), _at(b, base, _MUTEX))
    b.branch(test)
    b.position_at_end(woken)
    _set(b, base, sleeper, I64(0))
    _pthread(b, "mutex_unlock", _at(b, base, _MUTEX))
    b.branch(after)
    b.position_at_end(after)


def _wake(b: ir.IRBuilder, base: Any, event: int, sleeper: int) -> None:
    with b.if_then(b.icmp_signed("!=", _get(b, base, sleeper), I64(0)), likely=False):
        _pthread(b, "mutex_lock", _at(b, base, _MUTEX))
        _pthread(b, "cond_signal", _at(b, base, event))
        _pthread(b, "mutex_unlock", _at(b, base, _MUTEX))


def _ask(b: ir.IRBuilder, base: Any) -> None:
    """As many calls as wanted are asked for, or (stop being set) none ever again."""
    _set(b, base, _ASKED, _get(b, base, _WANTED))
    _wake(b, base, _WORK, _SLEEPS)


def _finish(b: ir.IRBuilder, base: Any) -> None:
    """Return when as many calls as wanted are made."""
    wanted = _get(b, base, _WANTED)
    _await(b, base, _PROGRESS, _WAITS, lambda: b.icmp_signed(">=", _get(b, base, _DONE), wanted))


def _work(b: ir.IRBuilder, base: Any) -> None:
    """Make calls until told to stop."""
    again, make, stop = (b.append_basic_block() for _ in range(3))
    b.branch(again)
    b.position_at_end(again)
    done = _get(b, base, _DONE)
    _await(b, base, _WORK, _SLEEPS, lambda: b.icmp_signed("<", done, _get(b, base, _ASKED)))
    b.cbranch(b.icmp_signed("!=", _get(b, base, _STOP), I64(0)), stop, make)
    b.position_at_end(make)
    slot = b.add(_at(b, base, _RING), b.mul(b.urem(done, I64(_SLOTS)), I64(_SLOT)))
    kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer()])
    b.call(pointer(b, b.load(pointer(b, slot, I64)), kind), [pointer(b, b.add(slot, I64(8)), I64)])
    _set(b, base, _DONE, b.add(done, I64(1)))
    _wake(b, base, _PROGRESS, _WAITS)
    b.branch(again)
    b.position_at_end(stop)
