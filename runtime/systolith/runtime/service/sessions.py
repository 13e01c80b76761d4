"""The front's end of a client's process."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess

from systolith.isa.chip import Chip
from systolith.runtime.service.frames import HEADER, OVERTIME, Kind, Status, frame
from systolith.runtime.service.limits import Limits

RESYNC = 5.0
"""Seconds that a worker has to end a call that was given up."""

Read = Callable[[], Awaitable[bytes | None]]
Write = Callable[[bytes], Awaitable[None]]

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
    """A client's process, and the calls passed on to it."""

    def __init__(
        self, process: ForkServerProcess, link: tuple[asyncio.StreamReader, asyncio.StreamWriter], limits: Limits
    ):
        self.name = secrets.token_hex(16)
        self.ended = asyncio.Event()
        self._process = process
        self._reader, self._writer = link
        self.limits = limits
        self._turn = asyncio.Lock()
        self._why = ""

    @staticmethod
    async def start(system: System) -> Session:
        """Start a process."""
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
        """Kill the process; closing twice is allowed."""
        if not self._why:
            self._why = why
        self.ended.set()
        self._process.kill()
        self._writer.close()

    async def reap(self) -> None:
        """Wait for the end of a closed session's process."""
        await asyncio.to_thread(self._process.join)

    async def call(self, method: str, read: Read, write: Write) -> tuple[Status, str]:
        """Pass a call on: its messages to the worker, and the replies back.

        A call whose task is cancelled is ended in the worker before the next one begins.

        Raises:
            SessionEndedError: the process is gone, or takes too long.
        """
        await self._turn.acquire()
        exchange = _Exchange(self, read, write)
        task = asyncio.create_task(exchange.run(method))
        task.add_done_callback(lambda _: self._turn.release())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            exchange.give_up()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            raise

    async def send(self, data: bytes) -> None:
        """Send frames to the worker."""
        self._writer.write(data)
        await self._writer.drain()

    def post(self, data: bytes) -> None:
        """Send frames that nobody waits for."""
        if not self.ended.is_set():
            self._writer.write(data)

    async def receive(self) -> tuple[Kind, bytes]:
        """The next frame of the worker."""
        kind, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        return Kind(kind), await self._reader.readexactly(size)

    async def lost(self) -> SessionEndedError:
        """Why the process is gone; closes the session."""
        if not self._why:
            await asyncio.to_thread(self._process.join, 1)
            code = self._process.exitcode
            seconds = f"{self.limits.seconds:g} s, the limit of the service"
            why = f"a run took more than {seconds}" if code == OVERTIME else f"its process ended with status {code}"
            self.close(f"the session has ended: {why}")
        return SessionEndedError(self._why)

    def overtime(self) -> SessionEndedError:
        """Ends a session whose call takes too long."""
        self.close(f"the session has ended: a call took more than {self.limits.seconds:g} s, the limit of the service")
        return SessionEndedError(self._why)


class _Exchange:
    """One call on its way through the front."""

    def __init__(self, session: Session, read: Read, write: Write) -> None:
        self._session = session
        self._read = read
        self._write = write
        self._given_up = False
        self._pump: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """The client is not there any more: the worker is told, and what it still says goes nowhere."""
        self._given_up = True
        if self._pump:
            self._pump.cancel()

    async def run(self, method: str) -> tuple[Status, str]:
        session = self._session
        try:
            await session.send(frame(Kind.CALL, method.encode()))
            self._pump = asyncio.create_task(self._messages())
            if self._given_up:
                self._pump.cancel()
            try:
                async with asyncio.timeout(session.limits.seconds):
                    return await self._replies()
            except TimeoutError:
                self.give_up()
                async with asyncio.timeout(RESYNC):
                    await self._replies()
                return Status.CANCELLED, f"the call took more than {session.limits.seconds:g} s"
        except TimeoutError:
            raise session.overtime() from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await session.lost() from None
        finally:
            if self._pump:
                self._pump.cancel()
                await asyncio.gather(self._pump, return_exceptions=True)

    async def _messages(self) -> None:
        """The client's messages to the worker."""
        last = Kind.ABORT
        try:
            while (message := await self._read()) is not None:
                await self._session.send(frame(Kind.MESSAGE, message))
            last = Kind.END
        finally:
            self._session.post(frame(last))

    async def _replies(self) -> tuple[Status, str]:
        """The worker's replies to the client."""
        while True:
            kind, contents = await self._session.receive()
            if kind is Kind.DONE:
                return Status(contents[0]), contents[1:].decode()
            if not self._given_up:
                await self._reply(contents)

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
