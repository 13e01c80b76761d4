"""The time plane: when each instruction is issued, starts, ends and retires.

The start rule (docs/machine.md, section Time) is a recurrence over maxima and sums, so times follow directly in any
order their inputs become known: there is no event queue.  Only HBM is arbitrated.  The end of a transfer is left open
until SEQ can issue nothing more and no queue can start anything with the times known.  Every open time then depends
on the completion of a transfer that is at the arbiter, so nothing else can arrive there before the next completion, and
the arbiter may jump to it.

The cost is per instruction, whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systolith.isa.errors import ProgramError, SystolithError
from systolith.isa.program import TokenDecl
from systolith.sim import causes as why
from systolith.sim.deadlock import explain
from systolith.sim.hbm import Arbiter
from systolith.sim.host_credits import Credits
from systolith.sim.host_times import HostClock, HostTimesError, NumberedTimes
from systolith.sim.naming import Describe, Iterations
from systolith.sim.queues import SEQ, Limits, Op, Queue, Record, Token, Work


class TokenOverflowError(SystolithError):
    """A token is signalled beyond `token.max`."""


class Engine:
    """Times a stream of instructions given in program order.

    `prepare` resolves a `Work` once; then `issue`, `sync` and `scalar` take each executed instruction, and `finish`
    ends the run.  Results are in `record` (unit instructions and syncs, in program order), `cycles` and `units`.

    Args:
        limits: of the chip.
        queues: names of the unit queues, without `seq`.
        tokens: the program's tokens.
        describe: text for an executed instruction, in error messages.
        host: when it has data and room; None: at all times.

    Attributes:
        iterations: of the hardware loops around the next instruction, for error messages.
        credits: of the infeed queues.
    """

    def __init__(
        self,
        limits: Limits,
        queues: Sequence[str],
        tokens: Sequence[TokenDecl],
        describe: Describe,
        host: NumberedTimes | None = None,
    ) -> None:
        self.limits = limits
        self.describe = describe
        self.seq = Queue(SEQ, 0)
        self.queues = {name: Queue(name, n) for n, name in enumerate(queues, 1)}
        self.tokens = [Token(n, t.producer, t.consumer) for n, t in enumerate(tokens)]
        self.record = Record()
        self.iterations: Iterations = ()
        self.cycles = 0
        self._depth = limits.fifo_depth
        self._time = 0
        self._clients: list[Queue] = []
        self._arbiter = Arbiter(limits.p, limits.q, limits.chunk, len(limits.hbm_clients))
        self._ready: list[Queue] = []
        self._prepared: dict[Work, Op] = {}
        host = host or NumberedTimes({}, {})
        self._host = {
            "ld": HostClock("infeed", host.infeed, 0),
            "st": HostClock("outfeed", host.outfeed, limits.host_room),
        }
        self.credits = Credits(host.infeed, limits.host_room)
        for client, name in enumerate(limits.hbm_clients):
            self.queues[name].client = client
            self._clients.append(self.queues[name])

    @property
    def units(self) -> dict[str, dict[str, int]]:
        """Cycles by cause for SEQ and each queue; see `causes.DOCS`."""
        every = (self.seq, *self.queues.values())
        return {q.name: {why.BUSY: 0} | {cause: n for cause, n in q.causes.items() if n} for q in every}

    @property
    def now(self) -> int:
        """SEQ's time, in cycles."""
        return self._time

    def prepare(self, work: Work) -> Op:
        """Resolve the names and numbers in `work`.

        Raises:
            ProgramError: a token that the queue may not wait for or signal, or named twice, or signalled by one that
                retires alone and by others; a transfer on a queue without HBM.
        """
        known = self._prepared.get(work)
        if known is not None:
            return known
        queue = self.seq if work.queue == SEQ else self.queues[work.queue]
        waits = tuple(self.tokens[t] for t in work.waits)
        signals = tuple(self.tokens[t] for t in work.signals)
        for t in waits:
            if t.consumer != queue.name:
                raise ProgramError(f"queue {queue.name} waits for token {t.number}, which {t.consumer} waits for")
        for t in signals:
            if t.producer != queue.name:
                raise ProgramError(f"queue {queue.name} signals token {t.number}, which {t.producer} signals")
            if t.alone not in (None, work.alone):
                raise ProgramError(f"token {t.number}: its signallers do not retire in order")
            t.alone = work.alone
            if work.chunks or work.shifts:
                t.delay = why.HBM_LATENCY if work.chunks else why.WEIGHT_SHIFT
        if work.chunks and queue.client < 0:
            raise ProgramError(f"queue {queue.name} has no access to HBM")
        if len(set(work.waits)) < len(work.waits) or len(set(work.signals)) < len(work.signals):
            raise ProgramError(f"queue {queue.name}: waits {work.waits}, signals {work.signals}: a token named twice")
        op = self._prepared[work] = Op(work, queue, waits, signals)
        return op

    def scalar(self, taken: bool = False) -> None:
        """SEQ executes a scalar instruction; `taken`: a branch that is taken."""
        self._time += 1
        self.seq.causes[why.BUSY] += 1
        if taken:
            self._time += self.limits.branch_penalty
            self.seq.causes[why.BRANCH] += self.limits.branch_penalty

    def sync(self, op: Op, index: int) -> None:
        """SEQ itself waits for tokens and signals others; `index`: the instruction's, for records.

        Raises:
            DeadlockError: it never can.
        """
        seq = self.seq
        for token in op.waits:
            while token.used >= len(token.times):
                self._complete_one(op, index)
        i = self.record.add(index, 0, self._time)
        start = self._after_waits(op, i, self._time)
        self._time = start + 1
        seq.causes[why.BUSY] += 1
        seq.retire = self._time
        self.record.set(i, start, self._time, self._time)
        self._signal(op, self._time, self._time)
        self._run_ready()

    def issue(self, op: Op, index: int) -> None:
        """SEQ issues an instruction to a unit; `index`: the instruction's, for records.

        Raises:
            DeadlockError: its FIFO stays full for ever.
        """
        q = op.queue
        time = self._time + op.fetch
        self.seq.causes[why.FETCH] += op.fetch
        slot = q.pushed - self._depth
        if slot >= 0:
            while slot >= len(q.starts):
                self._complete_one(op, index)
            freed = q.starts[slot]
            if freed > time:
                self.seq.causes[q.full] += freed - time
                time = freed
        q.pushed += 1
        self._time = time
        q.pending.append((op, self.record.add(index, q.number, time), self.iterations))
        if not q.blocked:
            self._run(q)
            if self._ready:
                self._run_ready()

    def finish(self) -> None:
        """Complete everything that was issued, and account for the rest of the time.

        Raises:
            DeadlockError: something can never start.
            TokenOverflowError: a token exceeded its largest count.
        """
        while any(q.blocked for q in self.queues.values()):
            self._complete_one(None, -1)
        self._check_tokens()
        self.cycles = max(self._time, *(max(q.free, q.retire) for q in self.queues.values()))
        self.seq.causes[why.IDLE] += self.cycles - self._time
        for q in self.queues.values():
            last = max(q.free, q.retire)
            q.causes[q.tail] += last - q.free
            q.causes[why.IDLE] += self.cycles - last
        self._add_stalls()
        why.check(self.units, self.cycles)

    def _add_stalls(self) -> None:
        r, queues = self.record, (self.seq, *self.queues.values())
        names = list(r.cause_numbers)
        of = np.array(r.queue, np.int64)[np.array(r.stall_at, np.int64)]
        table = np.zeros((len(queues), len(names)), np.int64)
        np.add.at(table, (of, np.array(r.stall_cause, np.int64)), np.array(r.stall_cycles, np.int64))
        for n, cause in np.argwhere(table):
            queues[n].causes[names[cause]] += int(table[n, cause])

    def _run_ready(self) -> None:
        while self._ready:
            self._run(self._ready.pop())

    def _run(self, q: Queue) -> None:
        """Start instructions of `q` as far as their inputs are known."""
        pending, record = q.pending, self.record
        while pending:
            op, i, _ = pending[0]
            for token in op.waits:
                if token.used >= len(token.times):
                    token.waiter = q
                    q.blocked = True
                    return
            pending.popleft()
            start = q.free
            issued = record.issue[i] + 1
            if issued > start:
                record.stall(i, why.FIFO_EMPTY, issued - start)
                start = issued
            if op.waits:
                start = self._after_waits(op, i, start)
            if op.fence and q.retire > start:
                record.stall(i, why.FENCE, q.retire - start)
                start = q.retire
            q.starts.append(start)
            if op.chunks:
                self._arbiter.submit(q.client, start, op.chunks)
                q.transfer = (op, i, start)
                q.blocked = True
                return
            begin = start if op.host < 0 else self._begin(q, op, i, start)
            q.free = end = begin + op.occupancy
            retire = begin + op.latency
            if retire > q.retire:
                q.retire = retire
                q.tail = why.DRAIN
            elif not op.alone:
                retire = q.retire
            q.causes[why.BUSY] += op.busy
            for cause, n in op.losses:
                q.causes[cause] += n
            record.set(i, start, end, retire)
            if op.signals:
                self._signal(op, retire, start if op.shifts else retire)

    def _begin(self, q: Queue, op: Op, i: int, start: int) -> int:
        """When the host is ready for a transfer that starts.

        Raises:
            HostTimesError: it never is.
        """
        try:
            begin = self._host[q.name].begin(op.host, op.host_bytes, start)
        except HostTimesError as problem:
            raise HostTimesError(f"{self.describe(self.record.index[i], ())}: {problem}") from None
        if begin > start:
            self.record.stall(i, why.HOST, begin - start)
        if q.name == "ld":
            self.credits.give(op.host, op.host_bytes, begin + op.occupancy)
        return begin

    def _after_waits(self, op: Op, i: int, start: int) -> int:
        """Consume the tokens that `op` (position `i`) waits for: when all are there, at `start` or later."""
        waits = op.waits
        if len(waits) > 1:
            waits = tuple(sorted(waits, key=lambda t: t.times[t.used]))
        for token in waits:
            at = token.times[token.used]
            if at > start:
                known = token.delays[token.used]
                if known > start:
                    self.record.stall(i, token.cause, known - start)
                    start = known
                if at > start:
                    self.record.stall(i, token.delay, at - start)
                    start = at
        for token in waits:
            token.used += 1
            token.taken.append(start)
        return start

    def _signal(self, op: Op, time: int, known: int) -> None:
        """Signal the tokens of `op` at `time`; from `known` on it is only a matter of a known delay."""
        for token in op.signals:
            token.times.append(time)
            token.delays.append(known)
            waiter = token.waiter
            if waiter is not None:
                token.waiter = None
                waiter.blocked = False
                self._ready.append(waiter)

    def _complete_one(self, op: Op | None, index: int) -> None:
        """Let the next transfer complete; `op`, `index`: the instruction that SEQ is stuck at (None: at the end).

        Raises:
            DeadlockError: there is no transfer under way.
        """
        done = self._arbiter.advance()
        if done is None:
            self._check_tokens()
            raise explain(self._time, self.queues.values(), self.record, op, index, self.iterations, self.describe)
        q = self._clients[done.client]
        assert q.transfer is not None
        current, i, start = q.transfer
        q.transfer = None
        q.blocked = False
        q.tail = why.HBM_LATENCY
        q.free = end = done.end
        q.retire = retire = max(end + current.latency, q.retire)
        q.causes[why.BUSY] += current.busy
        for cause, n in current.losses:
            q.causes[cause] += n
        q.causes[why.HBM_CONTENTION] += done.contended
        q.causes[why.HBM_BANDWIDTH] += end - start - current.chunks - done.contended
        self.record.set(i, start, end, retire)
        self._signal(current, retire, end)
        self._run(q)
        self._run_ready()

    def _check_tokens(self) -> None:
        """The counter of a token never exceeds `token.max`: signal k + max is not before consumption k is."""
        most = self.limits.token_max
        for t in self.tokens:
            for k, time in enumerate(t.times[most:]):
                if k >= len(t.taken) or t.taken[k] > time:
                    raise TokenOverflowError(
                        f"token {t.number} ({t.producer} to {t.consumer}) is signalled at cycle {time} beyond its "
                        f"largest count {most} (token.max): compiled programs need two more than fifo.depth"
                    )
