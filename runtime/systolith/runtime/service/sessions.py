"""The front's end of a client's process."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.context import ForkServerProcess

from systolith.isa.chip import Chip
from systolith.runtime.service.frames import HEADER, NO_MEMORY, OVERTIME, Kind, Status, frame, how_ended
from systolith.runtime.service.limits import Limits

LAST_SECONDS = 5.0
"""For the end of a call whose time is over, or whose process is gone."""

REPLIES = 4
"""Replies of a call that wait in the front."""

Read = Callable[[], Awaitable[bytes | None]]
Write = Callable[[bytes], Awaitable[None]]

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Replies = asyncio.Queue[tuple[Kind, bytes] | None]

_context = multiprocessing.get_context("forkserver")


def prepare() -> None:
    """Start the process that workers are forked from; it imports the simulator meanwhile."""
    from multiprocessing.forkserver import ensure_running

    _context.set_forkserver_preload(["systolith.runtime.service.worker"])
    ensure_running()


def _work(link: socket.socket, chip: Chip, devices: int, limits: Limits) -> None:
    from systolith.runtime.service.worker import serve_session  # the front does without the simulator

    serve_session(link, chip, devices, limits)


class SessionEndedError(Exception):
    """The client's process has ended; says why."""


@dataclass(frozen=True)
class System:
    """The devices that each client gets."""

    chip: Chip
    devices: int
    limits: Limits


class Session:
    """A client's process, and the calls passed on to it.

    Attributes:
        name: by which the client's calls name it.
        why: it has ended.
        ended: set once the process is killed or seen to be gone.
        calls: how many are not done.
    """

    def __init__(self, process: ForkServerProcess, link: Link, limits: Limits) -> None:
        self.name = secrets.token_hex(16)
        self.ended = asyncio.Event()
        self.limits = limits
        self._process = process
        self._reader, self._writer = link
        self.why = ""
        self._numbers = count()
        self._replies: dict[int, Replies] = {}
        self._receiving = asyncio.create_task(self._receive())

    @property
    def calls(self) -> int:
        return len(self._replies)

    @staticmethod
    async def start(system: System) -> Session:
        """Start a process; not to be cancelled while it does."""
        ours, theirs = socket.socketpair()
        process = _context.Process(target=_work, args=(theirs, system.chip, system.devices, system.limits), daemon=True)
        try:
            await asyncio.to_thread(process.start)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return Session(process, await asyncio.open_connection(sock=ours), system.limits)

    def close(self, why: str = "the session was closed") -> None:
        """Kill the process, and tell the calls; closing twice is allowed."""
        if self.ended.is_set():
            return
        self.why = why
        self.ended.set()
        if self._process.is_alive():
            self._process.kill()
        self._writer.close()
        if self._receiving is not asyncio.current_task():
            self._receiving.cancel()
        for queue in self._replies.values():
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    async def reap(self) -> None:
        """Wait for the end of a closed session's process."""
        await asyncio.to_thread(self._process.join)
        self._process.close()

    async def call(self, method: str, read: Read, write: Write) -> tuple[Status, str]:
        """Pass a call on: its messages to the worker, and the replies back.

        Where the task that waits for it is cancelled, the worker is told, and its time goes on.

        Raises:
            SessionEndedError: the process is gone, or takes too long.
        """
        if self.ended.is_set():
            raise self.lost()
        number = next(self._numbers) % 2**32
        self._replies[number] = asyncio.Queue(REPLIES)
        exchange = _Exchange(self, number, read, write)
        task = asyncio.create_task(exchange.run(method, self._replies[number]))
        task.add_done_callback(lambda _: self._replies.pop(number))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            exchange.give_up()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            raise

    async def send(self, data: bytes) -> None:
        """Send a frame to the worker."""
        self.post(data)
        with suppress(ConnectionError):  # the receiver sees it, too
            await self._writer.drain()

    def post(self, data: bytes) -> None:
        """Send a frame that nobody waits for."""
        if not self.ended.is_set():
            self._writer.write(data)

    async def _receive(self) -> None:
        """The worker's replies to those who wait for them; its end ends the session."""
        try:
            while True:
                kind, call, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                contents = await self._reader.readexactly(size)
                if call in self._replies:
                    await self._replies[call].put((Kind(kind), contents))
        except (asyncio.IncompleteReadError, ConnectionError):
            await asyncio.to_thread(self._process.join, 1)
            code = self._process.exitcode
            known = {
                OVERTIME: f"a run took more than {self.limits.seconds:g} s, the limit of the service",
                NO_MEMORY: "messages take more memory than the limit of the service",
            }
            self.close(f"the session has ended: {known.get(code or 0, f'its process ended with status {code}')}")

    def overtime(self) -> None:
        """End a session whose call takes too long."""
        self.close(f"the session has ended: a call took more than {self.limits.seconds:g} s, the limit of the service")

    def lost(self) -> SessionEndedError:
        """The session has ended."""
        return SessionEndedError(self.why)


class _Exchange:
    """One call on its way through the front."""

    def __init__(self, session: Session, number: int, read: Read, write: Write) -> None:
        self._session = session
        self._number = number
        self._read = read
        self._write = write
        self._given_up = False
        self._pump: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """The client is not there any more: the worker is told, and what it still says goes nowhere."""
        self._given_up = True
        if self._pump:
            self._pump.cancel()

    async def run(self, method: str, replies: Replies) -> tuple[Status, str]:
        session = self._session
        session.post(frame(Kind.CALL, self._number, method.encode()))
        self._pump = asyncio.create_task(self._messages())
        self._pump.add_done_callback(self._input_over)
        if self._given_up:
            self._pump.cancel()
        try:
            async with asyncio.timeout(session.limits.seconds):
                return await self._pass_back(replies)
        except TimeoutError:
            self.give_up()
        finally:
            self._pump.cancel()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._pass_back(replies)
        except TimeoutError:
            session.overtime()
            raise session.lost() from None
        return Status.CANCELLED, f"the call took more than {session.limits.seconds:g} s, the limit of the service"

    async def _messages(self) -> None:
        """The client's messages to the worker."""
        while (message := await self._read()) is not None:
            await self._session.send(frame(Kind.MESSAGE, self._number, message))

    def _input_over(self, pump: asyncio.Task[None]) -> None:
        whole = not pump.cancelled() and pump.exception() is None
        self._session.post(frame(Kind.END if whole else Kind.ABORT, self._number))

    async def _pass_back(self, replies: Replies) -> tuple[Status, str]:
        """The worker's replies to the client."""
        while (item := await replies.get()) is not None:
            kind, contents = item
            if kind is Kind.DONE:
                return how_ended(contents)
            if not self._given_up:
                await self._reply(contents)
        raise self._session.lost()

    async def _reply(self, contents: bytes) -> None:
        try:
            await self._write(contents)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise  # the time is over; else gRPC says so that the client is gone
            self.give_up()
        except Exception:  # gRPC's own, of a call that has ended
            self.give_up()
