"""A server for all tests of a worker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from systolith import api as sl
from systolith.runtime.service.stub import RemoteClient
from tests.service.served import serving

Server = tuple[subprocess.Popen[str], str]
SHORT = ("--timeout", 3, "--clients", 4, "--max-transfer", 2, "--max-program", 1, "--client-memory", 512)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One on a Unix socket, with limits that are soon reached."""
    with serving(tmp_path_factory.mktemp("serve") / "s", "--devices", 2, *SHORT) as started:
        yield started


@pytest.fixture
def address(server: Server) -> str:
    return server[1]


@pytest.fixture
def client(address: str) -> Iterator[RemoteClient]:
    with sl.connect(address) as connected:
        yield connected
