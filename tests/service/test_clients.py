"""Clients beside each other: isolation, limits, and ends of clients and of the server."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.service.address import clear_path
from systolith.runtime.service.messages import message_class, path_of
from systolith.runtime.service.stub import RemoteClient, ServiceError
from tests.service.conftest import Server
from tests.service.served import Raw, alive, doubled, endless, hungry, serving, session_of, sessions, workers

X = sl.Literal.r1(np.arange(8, dtype=np.float32))
DEADLINE = 20
LABEL = r'[a-z]+="[A-Za-z_]+"'
SAMPLE = rf"([a-z_]+(?:\{{{LABEL}(?:,{LABEL})*\}})?) (\d+(?:\.\d+)?)"


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def spin(client: RemoteClient) -> sl.GlobalData:
    """Have a device of the service busy for ever."""
    return client.execute(endless(), [client.transfer_to_server(sl.Literal.r0(0))])


def test_a_handle_of_another_client_is_not_found(client: RemoteClient, address: str) -> None:
    data, program = client.transfer_to_server(X), doubled()
    client.execute(program, [data])
    with sl.connect(address) as other, Raw(address) as raw:
        handles, execute = message_class("Handles"), message_class("Execute")
        for request in (
            handles(values=[1], shape="f32[8]{0}"),
            handles(values=[2**64 - 1], shape="f32[8]{0}"),
        ):
            code, text = raw.code(path_of("TransferFromServer"), request.SerializeToString(), session=session_of(other))
            assert (code, text) == ("NOT_FOUND", f"this client has no value {request.values[0]}")
        code, text = raw.code(
            path_of("Execute"), execute(program=2, arguments=[1]).SerializeToString(), session=session_of(other)
        )
        assert (code, text) == ("NOT_FOUND", "this client has no program 2")
        assert (
            raw.code(path_of("Delete"), handles(values=[1], programs=[2]).SerializeToString(), session="0" * 32)[0]
            == "FAILED_PRECONDITION"
        )
        raw.code(path_of("Delete"), handles(values=[1], programs=[2]).SerializeToString(), session=session_of(other))
        other.transfer_to_infeed(X)
    assert client.transfer(data) == X
    assert client.execute_and_transfer(program, [data]) == sl.Literal.r1(2 * X.array)


def test_a_client_that_is_killed_in_a_transfer_frees_what_it_held(server: Server, client: RemoteClient) -> None:
    process, address = server
    before = workers(process)
    killed = subprocess.Popen([sys.executable, "-c", _STALLED, address], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "half\n"
    (worker,) = set(workers(process)) - set(before)
    killed.kill()
    killed.wait()
    killed.stdout.close()
    assert within(DEADLINE, lambda: not alive(worker))
    assert within(DEADLINE, lambda: sessions(client) == 1), client.metrics()
    assert client.execute_and_transfer(doubled(), [client.transfer_to_server(X)]) == sl.Literal.r1(2 * X.array)


_STALLED = """
import grpc, sys, time
from systolith.runtime.service.messages import message_class, path_of
channel, value = grpc.insecure_channel(sys.argv[1]), message_class("Value")
stream = channel.stream_stream(path_of("Attach"))(iter([b""]))
name = message_class("Session").FromString(next(stream)).name
def half():
    yield value(shape="f32[400000]{0}").SerializeToString()
    yield value(data=bytes(800000)).SerializeToString()
    print("half", flush=True)
    time.sleep(60)
list(channel.stream_stream(path_of("TransferToServer"))(half(), metadata=(("systolith-session", name),)))
"""


def test_a_call_that_is_given_up_leaves_the_session_as_it_was(client: RemoteClient, address: str) -> None:
    data = client.transfer_to_server(X)
    value = message_class("Value")

    def half() -> Iterator[bytes]:
        yield value(shape="f32[8]{0}").SerializeToString()
        time.sleep(1)

    with Raw(address) as raw:
        for _ in range(2):
            call = raw.stream(path_of("TransferToServer"), half(), session_of(client))
            time.sleep(0.1)
            call.cancel()
    assert client.transfer(data) == X


def test_calls_go_on_while_one_waits_for_a_run(address: str) -> None:
    with sl.connect(address) as client:
        result = spin(client)
        failed: list[bool] = []
        (waiting := Thread(target=lambda: failed.append(_fails(client, result)))).start()
        assert client.transfer(client.transfer_to_server(X, device=1)) == X
        assert not failed
        client.close()
        waiting.join(10)
        assert failed == [True]


def _fails(client: RemoteClient, data: sl.GlobalData) -> bool:
    try:
        client.transfer(data)
    except sl.SystolithError:
        return True
    return False


def test_many_threads_use_one_client(client: RemoteClient) -> None:
    program = doubled()

    def work(number: int) -> bool:
        x = np.arange(8, dtype=np.float32) + number
        results = [client.execute(program, [client.transfer_to_server(sl.Literal.r1(x))]) for _ in range(4)]
        return all(client.transfer(one) == sl.Literal.r1(2 * x) for one in results)

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(12)))


def test_one_client_cannot_take_all_calls(client: RemoteClient, address: str) -> None:
    with sl.connect(address) as other, Raw(address) as raw:
        ended = Event()

        def stalled() -> Iterator[bytes]:
            ended.wait(20)
            yield b""

        held = [raw.stream(path_of("TransferToServer"), stalled(), session_of(other)) for _ in range(15)]

        def full() -> bool:
            """One more call; it, too, counts while it lasts, so that the one that follows may be refused for it."""
            held.append(raw.stream(path_of("TransferToServer"), stalled(), session_of(other)))
            return raw.code(path_of("Delete"), b"", session=session_of(other))[0] != "OK"

        assert within(DEADLINE, full)
        status, text = raw.code(path_of("Delete"), b"", session=session_of(other))
        assert (status, text) == ("RESOURCE_EXHAUSTED", "this client has 16 calls under way, the limit of the service")
        assert client.transfer(client.transfer_to_server(X)) == X
        ended.set()
        held.clear()


def test_metrics_count_calls_and_bytes(client: RemoteClient, address: str) -> None:
    """Source of the grammar: Prometheus' text format 0.0.4."""

    def read() -> dict[str, float]:
        text = client.metrics()
        assert text.endswith("\n")
        found: dict[str, float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                said = re.fullmatch(SAMPLE, line)
                assert said, line
                assert said[1] not in found
                found[said[1]] = float(said[2])
            else:
                assert re.fullmatch(r"# (HELP systolith_[a-z_]+ .+|TYPE systolith_[a-z_]+ (counter|gauge))", line), line
        return found

    client.transfer_to_server(X)
    before = read()
    client.transfer_to_server(X)
    with pytest.raises(sl.SystolithError):
        client.transfer_to_server(X, device=9)
    after = read()

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more('systolith_calls_total{method="TransferToServer",status="OK"}') == 1
    assert more('systolith_calls_total{method="TransferToServer",status="INVALID_ARGUMENT"}') == 1
    assert 2 * 32 < more('systolith_received_bytes_total{method="TransferToServer"}') < 2 * 64
    assert more('systolith_call_seconds_total{method="TransferToServer"}') >= 0
    assert after["systolith_sessions"] >= 1


def test_sessions_leave_nothing_in_the_server(server: Server, client: RemoteClient) -> None:
    process, address = server
    files = Path(f"/proc/{process.pid}/fd")
    sl.connect(address).close()
    assert within(DEADLINE, lambda: len(workers(process)) == 1)
    before = len(list(files.iterdir()))
    for _ in range(10):
        with sl.connect(address) as other:
            other.transfer_to_server(X)
    assert within(DEADLINE, lambda: len(workers(process)) == 1 and len(list(files.iterdir())) <= before)


def test_a_run_that_takes_too_long_ends_its_session_only(client: RemoteClient, address: str) -> None:
    """Three seconds here."""
    waited = sl.connect(address)
    result = waited.execute(hungry())
    with pytest.raises(ServiceError, match=r"the session has ended: .* took more than 3 s, the limit of the service"):
        waited.transfer(result)
    with pytest.raises(ServiceError, match=r"the session has ended: .* took more than 3 s"):
        waited.transfer_to_server(X)
    assert client.transfer(client.transfer_to_server(X)) == X
    waited.close()
    assert within(DEADLINE, lambda: sessions(client) == 1), client.metrics()


@pytest.mark.slow
def test_a_run_that_nobody_waits_for_takes_no_longer(client: RemoteClient, address: str) -> None:
    with sl.connect(address) as forgotten:
        spin(forgotten)
        assert within(DEADLINE, lambda: sessions(client) == 1), client.metrics()
        with pytest.raises(ServiceError, match="the session has ended: a run took more than 3 s"):
            forgotten.transfer_to_server(X)


def test_what_is_too_large_is_refused(client: RemoteClient, address: str) -> None:
    with pytest.raises(ServiceError, match=r"f32\[600000\].* has 2400000 bytes: the limit of the service is 2097152"):
        client.transfer_to_server(sl.Literal.create(np.zeros(600_000, np.float32)))
    with pytest.raises(ServiceError, match="has 400000000 bytes: the limit"):
        client.transfer_from_outfeed(sl.Shape.parse("f32[100000000]"))
    value = message_class("Value")
    with Raw(address) as raw:
        code, _ = raw.code(
            path_of("TransferToServer"), value(data=bytes(5 << 20)).SerializeToString(), session=session_of(client)
        )
        assert code == "RESOURCE_EXHAUSTED"
        for size in (31, 33):
            messages = [value(shape="f32[8]{0}"), value(data=bytes(size))]
            code, text = raw.code(
                path_of("TransferToServer"), *(m.SerializeToString() for m in messages), session=session_of(client)
            )
            assert code == "INVALID_ARGUMENT"
            assert "has 32 bytes, got more or fewer" in text
        messages = [value(shape="pred[2]"), value(data=b"\1\2")]
        assert raw.code(
            path_of("TransferToServer"), *(m.SerializeToString() for m in messages), session=session_of(client)
        ) == ("INVALID_ARGUMENT", "a value of shape pred[2] has bytes other than 0 and 1")
        text = message_class("Program")(text=bytes(400_000)).SerializeToString()
        assert raw.code(path_of("Compile"), *[text] * 3, session=session_of(client)) == (
            "RESOURCE_EXHAUSTED",
            "the program has more than 1048576 bytes, the limit of the service",
        )
    assert client.transfer(client.transfer_to_server(X)) == X


def test_connections_have_a_limit_that_clients_do_not_notice(client: RemoteClient, address: str) -> None:
    path = address.removeprefix("unix:")
    idle = [socket.socket(socket.AF_UNIX) for _ in range(32 * 4 + 20)]
    for one in idle:
        one.setblocking(False)
        one.connect(path)
    assert within(5, lambda: any(_closed(one) for one in idle)), "they are closed in 10 s anyway"
    assert client.transfer(client.transfer_to_server(X)) == X
    for one in idle:
        one.close()
    assert within(DEADLINE, lambda: _served(address))


def _closed(link: socket.socket) -> bool:
    try:
        return link.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _served(address: str) -> bool:
    try:
        sl.connect(address).close()
    except ServiceError:
        return False
    return True


@pytest.mark.slow
def test_memory_is_limited(tmp_path: Path) -> None:
    literal = sl.Literal.create(np.zeros(20 << 20, np.uint8))
    with (
        serving(tmp_path / "s", "--client-memory", 64, chip="tpu_v3") as (_, address),
        sl.connect(address) as greedy,
        sl.connect(address) as client,
    ):
        held = []
        with pytest.raises(ServiceError, match="out of memory: the call needs more than the limit"):
            held += [greedy.transfer_to_server(literal) for _ in range(10)]
        assert client.transfer(client.transfer_to_server(X)) == X


def test_one_client_too_many_is_refused(server: Server) -> None:
    process, address = server
    assert within(DEADLINE, lambda: not workers(process))
    clients = [sl.connect(address) for _ in range(4)]
    with pytest.raises(ServiceError, match="the service has 4 clients, its limit"):
        sl.connect(address)
    for one in clients:
        one.close()
    assert within(DEADLINE, lambda: not workers(process))
    sl.connect(address).close()


def test_a_worker_that_dies_takes_its_session_only(server: Server, client: RemoteClient) -> None:
    process, address = server
    before = workers(process)
    with sl.connect(address) as other:
        (worker,) = set(workers(process)) - set(before)
        os.kill(worker, signal.SIGSEGV)
        with pytest.raises(ServiceError, match="the session has ended: its process ended with status -11"):
            other.transfer_to_server(X)
        assert client.transfer(client.transfer_to_server(X)) == X


def test_the_socket_is_private_and_a_second_server_is_refused(server: Server) -> None:
    path = Path(server[1].removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(path.stat().st_mode)
    with pytest.raises(sl.SystolithError, match="another server is there"):
        clear_path(path)
    assert path.exists()


def test_a_server_ends_within_its_seconds_and_removes_its_socket(tmp_path: Path) -> None:
    """A client waits for a run without end; a stale socket was in the way at the start."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with serving(path, "--grace", 1) as (process, address):
        (client, failed) = (sl.connect(address), [])

        def wait() -> None:
            try:
                client.transfer(client.execute(hungry()))
            except sl.SystolithError as error:
                failed.append(str(error))

        (waiting := Thread(target=wait)).start()
        assert within(DEADLINE, lambda: bool(workers(process)) and "Execute" in client.metrics())
        (worker,) = workers(process)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert time.monotonic() - began < 1 + 5
        waiting.join(10)
        assert process.returncode == 0
        assert not path.exists()
        assert within(DEADLINE, lambda: not alive(worker))
        (said,) = failed  # by the session, or by the connection, whichever ends first
        assert said.startswith(f"{address}: ")
        assert "has ended" in said
        with pytest.raises(sl.SystolithError, match=r"no service at unix:.*start one with `systolith serve`"):
            sl.connect(address)


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_no_process_and_a_socket_that_the_next_one_takes(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving(path) as (process, address):
        client = sl.connect(address)
        spin(client)
        (worker,) = workers(process)
        process.kill()
        assert within(DEADLINE, lambda: not alive(worker))
        with pytest.raises(ServiceError, match=r"no service answers|has ended"):
            client.transfer_to_server(X)
    assert path.exists()
    with serving(path) as (_, address), sl.connect(address) as client:
        assert client.transfer(client.transfer_to_server(X)) == X


@pytest.mark.slow
def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    with serving(tmp_path / "s", "--grace", 600) as (process, address):
        client = sl.connect(address)
        waiting = Thread(target=_fails, args=(client, spin(client)))
        waiting.start()
        assert within(DEADLINE, lambda: "TransferToServer" in client.metrics())
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None
        with pytest.raises(ServiceError, match="the service is ending"):
            sl.connect(address)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        waiting.join(10)
