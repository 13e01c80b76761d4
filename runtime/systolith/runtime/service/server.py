"""The front of the service: it lets peers in, and passes their calls on to their processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar

import grpc
from grpc import StatusCode

from systolith.isa.errors import SystolithError
from systolith.runtime.service.access import Access
from systolith.runtime.service.address import Address, clear_path
from systolith.runtime.service.frames import Status
from systolith.runtime.service.limits import MESSAGE
from systolith.runtime.service.messages import (
    HEALTH,
    METHODS,
    NOT_SERVING,
    SERVING,
    SESSION_KEY,
    TOKEN_KEY,
    WITHOUT_SESSION,
    message_class,
    path_of,
)
from systolith.runtime.service.metrics import Metrics
from systolith.runtime.service.sessions import LAST_SECONDS, Session, SessionEndedError, System, prepare

PRIVATE = 0o177
"""The umask under which a socket is made."""

Context = Any  # grpc.aio.ServicerContext of bytes
Behaviour = Callable[[Any, Context], Awaitable[None]]
T = TypeVar("T")
_METHODS = {path_of(method): method for method in METHODS}
_CODES = {code.value[0]: code for code in StatusCode}


class ServeError(SystolithError):
    """The server cannot start."""


@dataclass(frozen=True)
class Place:
    """Where a server is, and who may come in."""

    address: Address
    access: Access


class Front(grpc.GenericRpcHandler):
    """All methods: of bytes, which only the client's process reads.

    Args:
        system: the devices of each client.
        access: what peers must show.
    """

    def __init__(self, system: System, access: Access) -> None:
        self.metrics = Metrics()
        self._system = system
        self._access = access
        self._sessions: dict[str, Session] = {}
        self._starting = 0
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._kept: set[asyncio.Task[Any]] = set()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Give the handler of a call.  Nothing about the service depends on the method before the token is seen."""
        return grpc.stream_stream_rpc_method_handler(self._behaviour(details))

    def _behaviour(self, details: grpc.HandlerCallDetails) -> Behaviour:
        given = dict(details.invocation_metadata)
        if details.method == HEALTH:
            return self._health
        if not self._access.admits(given.get(TOKEN_KEY)):
            self.metrics.refused()
            return partial(_refuse, StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
        method = _METHODS.get(details.method)
        if method is None:
            return partial(_refuse, StatusCode.UNIMPLEMENTED, "there is no such method")
        if self._draining:
            return partial(_refuse, StatusCode.UNAVAILABLE, "the service is ending")
        if method in WITHOUT_SESSION:
            return self._attach if method == "Attach" else self._metrics
        session = self._sessions.get(str(given.get(SESSION_KEY, "")))
        if session is None:
            return partial(_refuse, StatusCode.FAILED_PRECONDITION, "there is no such session, or it has ended")
        if session.calls >= self._system.limits.client_calls:
            text = f"this client has {session.calls} calls under way, the limit of the service"
            return partial(_refuse, StatusCode.RESOURCE_EXHAUSTED, text)
        return partial(self._pass_on, method, session)

    async def _health(self, _: Any, context: Context) -> None:
        await context.write(NOT_SERVING if self._draining else SERVING)

    async def _metrics(self, _: Any, context: Context) -> None:
        await context.write(message_class("Text")(text=self.metrics.text()).SerializeToString())

    async def _attach(self, _: Any, context: Context) -> None:
        """A session, for as long as the stream is open."""
        if len(self._sessions) + self._starting >= self._system.limits.clients:
            text = f"the service has {self._system.limits.clients} clients, its limit; come back later"
            await context.abort(StatusCode.RESOURCE_EXHAUSTED, text)
        session = await self._started()
        self._sessions[session.name] = session
        self.metrics.session_opened()
        try:
            first = message_class("Session")(
                name=session.name,
                chip=self._system.chip.name,
                devices=self._system.devices,
                version=version("systolith"),
            )
            await context.write(first.SerializeToString())
            await session.ended.wait()
            await context.abort(StatusCode.ABORTED, session.why)
        finally:
            session.close()
            del self._sessions[session.name]
            self.metrics.session_closed()
            self._keep(session.reap())

    async def _started(self) -> Session:
        """A new session; one whose client is gone meanwhile is closed."""

        async def start() -> Session:
            self._starting += 1
            try:
                return await Session.start(self._system)
            finally:
                self._starting -= 1

        task = self._keep(start())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._discard)
            raise

    def _discard(self, started: asyncio.Task[Session]) -> None:
        if not started.exception():
            started.result().close()
            self._keep(started.result().reap())

    def _keep(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Have something done, whoever waits for it."""
        task = asyncio.create_task(work)
        self._kept.add(task)  # asyncio alone would let it be collected
        task.add_done_callback(self._kept.discard)
        return task

    async def _pass_on(self, method: str, session: Session, _: Any, context: Context) -> None:
        began, outcome = monotonic(), StatusCode.CANCELLED
        self._calls += 1
        self._idle.clear()

        async def read() -> bytes | None:
            message = await context.read()
            if message is grpc.aio.EOF:
                return None
            self.metrics.moved(method, received=len(message))
            return bytes(message)

        async def write(message: bytes) -> None:
            self.metrics.moved(method, sent=len(message))
            await context.write(message)

        try:
            status, text = await session.call(method, read, write)
            outcome = _CODES[status]
            if status is not Status.OK:
                await context.abort(outcome, text)
        except SessionEndedError as error:
            outcome = StatusCode.ABORTED
            await context.abort(outcome, str(error))
        finally:
            self.metrics.ended(method, outcome.name, int(1000 * (monotonic() - began)))
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def drain(self, hurry: asyncio.Event) -> None:
        """Refuse new calls, give those under way their seconds or up to `hurry`, then end all sessions."""
        self._draining = True
        waits = [asyncio.ensure_future(self._idle.wait()), asyncio.ensure_future(hurry.wait())]
        await asyncio.wait(waits, timeout=self._system.limits.grace, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        for session in list(self._sessions.values()):
            session.close("the session has ended: the service is ending")
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._idle.wait()  # the calls tell their clients


async def _refuse(code: StatusCode, text: str, _: Any, context: Context) -> None:
    await context.abort(code, text)


def serve_until_signal(system: System, place: Place, started: Callable[[Address], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        system: the devices of each client.
        place: with an IP address.
        started: called with the address, its port the real one, once peers can connect.

    Raises:
        SystolithError: the address cannot be used.
    """
    if place.address.path:
        clear_path(place.address.path)
    asyncio.run(_serve(system, place, started))


async def _serve(system: System, place: Place, started: Callable[[Address], None]) -> None:
    prepare()
    front = Front(system, place.access)
    limits = system.limits
    server = grpc.aio.server(
        handlers=[front],
        maximum_concurrent_rpcs=limits.calls,
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MESSAGE),
            ("grpc.max_concurrent_streams", limits.calls),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.server_handshake_timeout_ms", 10_000),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.max_connection_idle_ms", 30_000),
        ],
    )
    signalled, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (hurry if signalled.is_set() else signalled).set())
    port = _bind(server, place)
    await server.start()
    started(place.address if place.address.path else Address(host=place.address.host, port=port))
    await signalled.wait()
    await front.drain(hurry)
    await server.stop(1)  # gRPC removes its socket


def _bind(server: grpc.aio.Server, place: Place) -> int:
    """Take the address; its port."""
    address, access = place.address, place.access
    before = os.umask(PRIVATE)
    try:
        if access.certificate:
            credentials = grpc.ssl_server_credentials([(access.key, access.certificate)])
            return server.add_secure_port(str(address), credentials)
        return server.add_insecure_port(str(address))
    except RuntimeError:
        raise ServeError(f"{address}: cannot be bound: in use, not of this machine, or not allowed") from None
    finally:
        os.umask(before)
