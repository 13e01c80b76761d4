"""Connecting to a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError

if TYPE_CHECKING:
    from systolith.runtime.service.stub import RemoteClient

WITHOUT_GRPC = "the service needs gRPC: pip install 'systolith[serve]'"


@checked
def connect(
    address: str | None = None, token_file: str | Path | None = None, ca_file: str | Path | None = None
) -> RemoteClient:
    """A client of a service (`systolith serve`) with devices of its own there, until it is closed.

    Args:
        address: `unix:PATH`, `HOST:PORT` or `[IPv6]:PORT`; None: the socket of this user's service.
        token_file: holds the service's token; TCP asks for one.
        ca_file: PEM certificate by which the service is known; with it TLS is used, and off loopback it must be.

    Raises:
        SystolithError: no service answers there, it refuses the client, or gRPC is not installed.
    """
    try:
        from systolith.runtime.service.access import read_token
        from systolith.runtime.service.address import Address, default_address
        from systolith.runtime.service.stub import connected
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise SystolithError(WITHOUT_GRPC) from None
    where = default_address() if address is None else Address.parse(address)
    return connected(where, None if token_file is None else read_token(Path(token_file)), ca_file)
