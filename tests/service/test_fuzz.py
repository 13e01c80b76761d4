"""Random requests never take the server down: bytes on the socket, and messages with the right token and session."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.service.messages import HEALTH, MESSAGES, METHODS, SERVING, SESSION_KEY, message_class, path_of
from systolith.runtime.service.stub import RemoteClient
from tests.examples import THOROUGH
from tests.service.conftest import Server
from tests.service.served import Raw, doubled, session_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SHAPES = ("f32[8]{0}", "f32[8]", "s4[3]", "(f32[2], (token[], pred[]))", "()", "f32[99999999999]", "f32[<=8]", "f32[?]",
          "opaque[]", "f32[-1]", "(" * 300, "", "f32[2,2]{0,0}", "x", "token[]", "c128[2]", "f32[]{:T(8)}")  # fmt: skip
TEXTS = (
    doubled().hlo_text(),
    "HloModule m",
    "",
    "HloModule m\nENTRY e {\n ROOT x = f32[8] iota(), iota_dimension=0\n}",
)


def junk(rng: random.Random, most: int) -> bytes:
    return rng.randbytes(rng.randrange(most))


def field(rng: random.Random, kind: str) -> object:
    """A value of a field: often one that means something."""
    small = rng.choice([0, 1, 2, 3, rng.randrange(40), 2**31 - 1])
    match kind:
        case "bytes":
            text = rng.choice(TEXTS).encode()
            return rng.choice([bytes(32), bytes(8), junk(rng, 80), text, text[: rng.randrange(len(text) + 1)]])
        case "string":
            return rng.choice([*SHAPES, "".join(rng.choices("f32[](){},8 ", k=rng.randrange(20)))])
        case "int32":
            return rng.choice([small, -small, -(2**31)])
        case "uint64*":
            return [rng.choice([small, 2**64 - 1]) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        case "uint64" | "uint64?":
            return small
        case _:
            raise AssertionError(kind)


def message(rng: random.Random, kind: str) -> bytes:
    """A message of a kind, at times of another kind, cut or changed."""
    kind = rng.choice([kind, kind, kind, kind, kind, *MESSAGES])
    fields = [item.split() for item in MESSAGES[kind].split(",") if item]
    values = {name: field(rng, type_) for _, name, type_ in fields if rng.random() < 0.8}
    data = bytearray(message_class(kind)(**values).SerializeToString())
    match rng.randrange(12):
        case 0:
            return junk(rng, 60)
        case 1:
            return bytes(data[: rng.randrange(len(data) + 1)])
        case 2 if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def requests(rng: random.Random, count: int) -> Iterator[tuple[str, list[bytes]]]:
    """Methods and their messages."""
    for _ in range(count):
        method = rng.choice([m for m in METHODS if m != "Attach"])
        kind = METHODS[method].split(",")[0].rstrip("*")
        yield method, [message(rng, kind) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3]))]


def send_messages(client: RemoteClient, raw: Raw, seed: int, count: int) -> int:
    """How many of random calls ended well; each ends in one of the ways that there are."""
    good = 0
    for method, messages in requests(random.Random(seed), count):
        status, text = raw.code(path_of(method), *messages, session=session_of(client))
        assert status in ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"), (method, messages, status, text)
        good += status == "OK"
    return good


def give_up(client: RemoteClient, raw: Raw, seed: int, count: int) -> None:
    """Calls that are cancelled under way, or end before their time."""
    rng = random.Random(seed)
    for method, messages in requests(rng, count):
        stub: Any = raw.channel.stream_stream(path_of(method))
        metadata = ((SESSION_KEY, session_of(client)),)
        call = stub(iter(messages), metadata=metadata, timeout=rng.choice([1e-4, 1e-3, 60]))
        time.sleep(rng.choice([0, 0, 1e-3]))
        call.cancel()


def send_bytes(path: str, seed: int, count: int) -> None:
    """Connections that speak no HTTP/2, or stop to."""
    rng = random.Random(seed)
    for _ in range(count):
        with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
            link.connect(path)
            start = rng.choice([b"", PREFACE, PREFACE + bytes(3) + b"\4" + bytes(5), PREFACE[:9]])
            link.sendall(start + _frames(rng) + junk(rng, 200))
            if rng.random() < 0.1:
                link.settimeout(0.01)
                link.recv(1000)


def _frames(rng: random.Random) -> bytes:
    """HTTP/2 frames of random types, flags, streams and contents."""
    parts = []
    for _ in range(rng.randrange(4)):
        body = junk(rng, 40)
        length = rng.choice([len(body)] * 3 + [rng.randrange(1 << 24)])
        head = length.to_bytes(3, "big") + bytes([rng.randrange(12), rng.randrange(256)])
        parts.append(head + rng.choice([0, 1, 3, rng.randrange(1 << 31)]).to_bytes(4, "big") + body)
    return b"".join(parts)


def works(address: str, old: RemoteClient, raw: Raw) -> None:
    """The server serves an old client and a new one."""
    x = sl.Literal.r1(np.arange(8, dtype=np.float32))
    for client in (old, new := sl.connect(address)):
        assert client.execute_and_transfer(doubled(), [client.transfer_to_server(x)]) == sl.Literal.r1(2 * x.array)
    new.close()
    assert raw.call(HEALTH) == [SERVING]


def attack(server: Server, client: RemoteClient, seed: int, count: int) -> None:
    """Each kind of attack, then a look whether all is well."""
    process, address = server
    with Raw(address) as raw, sl.connect(address) as other:
        assert send_messages(client, raw, seed, count * 6 // 10) > count // 20
        give_up(client, raw, seed + 1, count // 10)
        send_bytes(address.removeprefix("unix:"), seed + 2, count * 3 // 10)
        works(address, other, raw)
    assert process.poll() is None


def test_random_requests_leave_the_server_serving(server: Server, client: RemoteClient) -> None:
    attack(server, client, 0, 400 if THOROUGH else 200)


@pytest.mark.slow
def test_100_000_random_requests_leave_the_server_serving(server: Server) -> None:
    for seed in range(100):
        with sl.connect(server[1]) as client:
            attack(server, client, 1000 + 3 * seed, 1000)


def test_calls_of_no_session_are_refused(address: str) -> None:
    with Raw(address) as raw:
        for method in METHODS:
            if method not in ("Attach", "Metrics"):
                assert raw.code(path_of(method), b"")[0] == "FAILED_PRECONDITION"
        with pytest.raises(grpc.RpcError):
            raw.call("/systolith.service.Xla/Nothing")
