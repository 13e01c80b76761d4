"""Explains a deadlock: which instruction waits for what, and who should provide it."""

from __future__ import annotations

from collections.abc import Iterable

from systolith.isa.errors import SystolithError
from systolith.sim.naming import Describe, Iterations
from systolith.sim.queues import Op, Queue, Record, Token


class DeadlockError(SystolithError):
    """Work is left and nothing can proceed."""


def explain(
    time: int,
    queues: Iterable[Queue],
    record: Record,
    stuck: Op | None,
    index: int,
    iterations: Iterations,
    describe: Describe,
) -> DeadlockError:
    """The error for a machine in which nothing can proceed.

    Args:
        time: how far SEQ got (cycles).
        queues: all unit queues.
        record: of the run.
        stuck: the instruction that SEQ cannot issue (or a sync that waits); None: it has issued everything.
        index: its instruction index.
        iterations: those in which SEQ is.
        describe: text for an executed instruction.
    """
    queues = list(queues)
    parts = [_head(q, queues, record, describe) for q in queues if q.pending]
    if stuck is None:
        parts.append("seq: has issued everything")
    elif stuck.queue.name == "seq":
        parts.append(f"seq: {describe(index, iterations)} waits for {_missing(stuck, queues, record, describe)}")
    else:
        parts.append(f"seq: {describe(index, iterations)} cannot be issued, the FIFO of {stuck.queue.name} is full")
    return DeadlockError(f"deadlock at cycle {time}: " + "; ".join(parts))


def _head(q: Queue, queues: list[Queue], record: Record, describe: Describe) -> str:
    op, i, iterations = q.pending[0]
    return f"{q.name}: {describe(record.index[i], iterations)} waits for {_missing(op, queues, record, describe)}"


def _missing(op: Op, queues: list[Queue], record: Record, describe: Describe) -> str:
    missing = [t for t in op.waits if t.used >= len(t.times)]
    return " and ".join(
        f"token {t.number} (count {len(t.times) - t.used}, signalled {len(t.times)} times by {t.producer}; "
        f"{_signaller(t, queues, record, describe)})"
        for t in missing
    )


def _signaller(token: Token, queues: list[Queue], record: Record, describe: Describe) -> str:
    for q in queues:
        for op, i, iterations in q.pending:
            if token in op.signals:
                return f"{describe(record.index[i], iterations)} in {q.name} will signal it"
    return "nothing issued will signal it"
