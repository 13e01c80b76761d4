"""Where jobs are done: in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from itertools import chain, islice
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Protocol

from systolith.isa.collection import collection_paused
from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.extras import need
from systolith.runtime.sweep.points import version
from systolith.runtime.sweep.work import FAILED, Job, Row, measure, measure_alone

_ATTEMPTS = 2  # of a job alone, whose process dies
_AHEAD = 2  # jobs of each worker that wait for it
_CLUSTER_SECONDS = 20

Results = list[tuple[str, Row]]


class ClusterError(SystolithError):
    """A Dask cluster cannot be used."""


class Pool(Protocol):
    """Does jobs.

    Attributes:
        workers: how many at a time.
    """

    workers: int

    def run(self, batches: Iterable[Sequence[Job]]) -> Iterator[Results]:
        """The results of each job, as they come; those of a batch have most of their making in common."""

    def close(self) -> None:
        """Give back what it holds; jobs under way are lost."""


class Here:
    """Does jobs in this process, whose collector of cycles is off until the end."""

    workers = 1

    def __init__(self) -> None:
        self._paused = ExitStack()
        self._paused.enter_context(collection_paused())

    def run(self, batches: Iterable[Sequence[Job]]) -> Iterator[Results]:
        return map(measure_alone, chain.from_iterable(batches))

    def close(self) -> None:
        self._paused.close()


class _Flow:
    """Gives jobs to workers, a few ahead of each."""

    workers: int

    def run(self, batches: Iterable[Sequence[Job]]) -> Iterator[Results]:
        lanes = self._lanes(iter(batches))
        running: dict[Future[Results], tuple[int, Job]] = {}
        suspects: list[Job] = []  # under way when a worker died
        while True:
            for n in range(self.workers):
                ahead = _AHEAD - sum(lane == n for lane, _ in running.values())
                for job in islice(lanes[n], 0 if suspects else ahead):
                    running[self._submitted(job, n)] = n, job
            if running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    _, job = running.pop(future)
                    if self._died(future):
                        suspects.append(job)
                    else:
                        yield future.result()
            elif suspects:
                yield from self._alone(suspects.pop())
            else:
                return

    def _lanes(self, batches: Iterator[Sequence[Job]]) -> Sequence[Iterator[Job]]:
        """The jobs of each worker, which takes the next batch when it has done one."""
        return [chain.from_iterable(batches) for _ in range(self.workers)]

    def _alone(self, job: Job) -> Iterator[Results]:
        """A suspect's results, with nothing beside it whose fault it could be that a worker dies."""
        for _ in range(_ATTEMPTS):
            future = self._submitted(job, 0)
            wait([future])
            if not self._died(future):
                yield future.result()
                return
        if len(job.points) == 1:
            yield lost(job)
        else:
            for point in job.points:
                yield from self._alone(Job(job.model, job.options, [point]))

    def _died(self, future: Future[Results]) -> bool:
        """Whether the worker ended, so that the job is worth another attempt."""
        problem = future.exception()
        return problem is not None and self._dead(problem)

    def _submitted(self, job: Job, worker: int) -> Future[Results]:
        raise NotImplementedError

    def _dead(self, problem: BaseException) -> bool:
        raise NotImplementedError


def lost(job: Job) -> Results:
    """Results of a job whose processes died."""
    reason = "its process ended each time: not enough memory, perhaps"
    return [(key, {"status": FAILED, "reason": reason}) for key, *_ in job.points]


class _Process(SpawnProcess):
    """A process that does not begin with the script of this one, which may be what called for the sweep."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # has neither the name nor the file that is to be run there
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    """Makes such processes; not forked, as this one may have threads."""

    Process = _Process


class Processes(_Flow):
    """Does jobs in several processes of this machine; those that die are made anew."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executors = [self._made() for _ in range(workers)]

    def _made(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, _Context(), _begun)

    def _submitted(self, job: Job, worker: int) -> Future[Results]:
        return self._submit(worker, measure_alone, job)

    def _submit(self, worker: int, work: Callable[[Any], Any], argument: Any) -> Future[Any]:
        try:
            return self._executors[worker].submit(work, argument)
        except BrokenProcessPool:
            self._executors[worker].shutdown(wait=False)
            self._executors[worker] = self._made()
            return self._executors[worker].submit(work, argument)

    def _dead(self, problem: BaseException) -> bool:
        return isinstance(problem, BrokenProcessPool)

    @property
    def processes(self) -> list[Any]:
        """Those that work now."""
        return [process for executor in self._executors for process in (executor._processes or {}).values()]

    def close(self) -> None:
        processes = self.processes
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(ProcessLookupError, ValueError):
                process.terminate()


def _begun() -> None:
    """Leave Ctrl-C to the process that began the sweep, and end when that ends: even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Cluster(_Flow):
    """Does jobs on the workers of a Dask scheduler.

    Args:
        address: of the scheduler, such as `tcp://10.0.0.1:8786`.

    Raises:
        ClusterError: nobody answers, there are no workers, or one has another version of systolith.
    """

    def __init__(self, address: str) -> None:
        distributed = need("distributed")
        self._killed = distributed.KilledWorker
        try:
            self._client = distributed.Client(address, timeout=_CLUSTER_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as problem:
            text = " ".join(str(problem).split())
            raise ClusterError(f"--dask {address}: no scheduler answers there: {text}") from None
        try:
            self.workers = self._ready(address)
        except BaseException:
            self._client.close()
            raise
        self._executor = self._client.get_executor(pure=False)

    def _ready(self, address: str) -> int:
        """How many jobs its workers do at a time."""
        threads: dict[str, int] = self._client.nthreads()
        if not threads:
            raise ClusterError(f"--dask {address}: the scheduler has no workers")
        for worker, found in self._client.run(_version_there, on_error="return").items():
            if found != version():
                raise ClusterError(f"--dask {address}: worker {worker} has systolith {found}, this is {version()}")
        return sum(threads.values())

    def _lanes(self, batches: Iterator[Sequence[Job]]) -> Sequence[Iterator[Job]]:
        """The scheduler chooses who does a job."""
        return [chain.from_iterable(batches)] * self.workers

    def _submitted(self, job: Job, worker: int) -> Future[Results]:
        future: Future[Results] = self._executor.submit(measure, job)
        return future

    def _dead(self, problem: BaseException) -> bool:
        return isinstance(problem, self._killed)

    def close(self) -> None:
        self._client.close()


def _version_there() -> str:
    return version()


def pool_for(workers: int | None, dask: str | None) -> Pool:
    """A pool.

    Args:
        workers: processes; None: one for each processor.
        dask: address of a scheduler, in their place.
    """
    if dask is not None:
        return Cluster(dask)
    workers = workers or len(os.sched_getaffinity(0))
    return Here() if workers == 1 else Processes(workers)
