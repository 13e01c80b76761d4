"""Servers in processes of their own, and calls to them by bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import grpc

from systolith import api as sl
from systolith.runtime.service.messages import SESSION_KEY, TOKEN_KEY


@contextmanager
def serving(address: object, *options: object, chip: str = "tiny") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`systolith serve` as a user starts it: the process and the address that it prints; it says no more."""
    words = [sys.executable, "-m", "systolith", "serve", str(address), "--chip", chip, *map(str, options)]
    with TemporaryFile() as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line.startswith("serving ")
            yield process, line.split(" at ")[1].strip()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise
            errors.seek(0)
            said = errors.read()
            assert not said, said  # neither faults, nor what peers send


class Raw:
    """Calls of bytes."""

    def __init__(self, address: str, token: str = "", root: bytes = b"") -> None:
        self.metadata: tuple[tuple[str, str], ...] = ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
        if root:
            self.channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(root))
        else:
            self.channel = grpc.insecure_channel(address)

    def stream(self, path: str, messages: Iterable[bytes], session: str = "") -> Any:
        """A call under way: its replies."""
        metadata = (*self.metadata, (SESSION_KEY, session)) if session else self.metadata
        method: Any = self.channel.stream_stream(path)
        return method(iter(messages), metadata=metadata, timeout=60)

    def call(self, path: str, *messages: bytes, session: str = "") -> list[bytes]:
        """The replies; raises a `grpc.RpcError`."""
        return list(self.stream(path, messages, session))

    def code(self, path: str, *messages: bytes, session: str = "") -> tuple[str, str]:
        """Status and text of a call."""
        try:
            self.call(path, *messages, session=session)
        except grpc.RpcError as error:
            failed: Any = error
            return failed.code().name, failed.details()
        return "OK", ""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def session_of(client: Any) -> str:
    """The name of a client's session."""
    return str(client._session)


def sessions(client: Any) -> int:
    """How many clients the service has."""
    line = next(line for line in client.metrics().splitlines() if line.startswith("systolith_sessions "))
    return int(line.split()[1])


def alive(number: int) -> bool:
    """Whether there is a process."""
    try:
        return Path(f"/proc/{number}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def workers(server: subprocess.Popen[str]) -> list[int]:
    """The processes of a server's clients: children of the one that it forks them from."""
    return [child for forker in _children(server.pid) for child in _children(forker)]


def _children(number: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == number:
                found.append(int(folder.name))
    return found


def doubled(size: int = 8) -> sl.XlaComputation:
    """X + x of f32[size]."""
    builder = sl.XlaBuilder("doubled")
    x = builder.Parameter(0, sl.make_shape(sl.F32, [size]), "x")
    builder.Add(x, x)
    return builder.build()


def endless() -> sl.XlaComputation:
    """A loop that does not end."""
    module = sl.parse_hlo(
        "HloModule endless\n"
        "body {\n p = s32[] parameter(0)\n one = s32[] constant(1)\n ROOT n = s32[] add(p, one)\n}\n"
        "condition {\n p = s32[] parameter(0)\n limit = s32[] constant(-1)\n"
        " ROOT c = pred[] compare(p, limit), direction=NE\n}\n"
        "ENTRY e {\n p = s32[] parameter(0)\n ROOT w = s32[] while(p), condition=condition, body=body\n}\n"
    )
    return sl.XlaComputation.of(module)


def hungry() -> sl.XlaComputation:
    """A run that waits for its infeed, and takes no processor meanwhile."""
    module = sl.parse_hlo(
        "HloModule hungry\nENTRY e {\n k = token[] after-all()\n a = (s32[], token[]) infeed(k)\n"
        " ROOT x = s32[] get-tuple-element(a), index=0\n}\n"
    )
    return sl.XlaComputation.of(module)
