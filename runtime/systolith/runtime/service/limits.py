"""How much the clients of a service may take."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30

CHUNK = MIB
"""Bytes of data in one message."""

MESSAGE = 4 * MIB
"""Most bytes of one message."""


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Attributes:
        clients: sessions at a time.
        memory: bytes of a client's process, beyond those that it starts with.
        transfer: bytes of one value.
        program: bytes of one program's HLO text.
        seconds: of one call, and of one run.
        grace: seconds for calls under way when the server is to end.
        handles: values and programs of one client.
    """

    clients: int = 8
    memory: int = 8 * GIB
    transfer: int = GIB
    program: int = 64 * MIB
    seconds: float = 600
    grace: float = 10
    handles: int = 65_536

    @property
    def client_calls(self) -> int:
        """Calls at a time, of one client."""
        return 16

    @property
    def calls(self) -> int:
        """Calls at a time, of all clients."""
        return 32 * self.clients

    @property
    def connections(self) -> int:
        """Connections at a time, those of peers without a token included."""
        return 32 * self.clients
