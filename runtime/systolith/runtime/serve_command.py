"""`systolith serve`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from systolith.isa.errors import SystolithError
from systolith.runtime.connect import WITHOUT_GRPC
from systolith.runtime.console import emit

FILE = click.Path(path_type=Path)
MIB = 1 << 20


@click.command()
@click.argument("address", required=False)
@click.option("--chip", default="tpu_v3", show_default=True, help="Preset name or chip TOML file.")
@click.option("--devices", type=click.IntRange(1, 4096), default=1, show_default=True, help="Devices of each client.")
@click.option("--token-file", type=FILE, help="Clients must show the token in this file; it is made if not there.")
@click.option("--tls-certificate", type=FILE, help="Certificate (PEM): TLS, which addresses off loopback ask for.")
@click.option("--tls-key", type=FILE, help="Its private key (PEM).")
@click.option("--clients", type=click.IntRange(1, 1024), default=8, show_default=True, help="Most clients at a time.")
@click.option(
    "--client-memory",
    type=click.IntRange(64),
    default=8192,
    show_default=True,
    metavar="MIB",
    help="Memory of each client's process.",
)
@click.option(
    "--max-transfer",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="Size of one value that is transferred.",
)
@click.option(
    "--max-program",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Size of one program's HLO text.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Longest call, and longest run.",
)
@click.option(
    "--grace", type=click.FloatRange(0), default=10, show_default=True, metavar="SECONDS",
    help="What calls under way have once SIGTERM or Ctrl-C comes.",
)  # fmt: skip
def serve(
    address: str | None, chip: str, devices: int, token_file: Path | None, tls_certificate: Path | None,
    tls_key: Path | None, clients: int, client_memory: int, max_transfer: int, max_program: int, timeout: float,
    grace: float,
) -> None:  # fmt: skip
    """Serve simulated devices to other processes, at ADDRESS: unix:PATH, HOST:PORT or [IPv6]:PORT.

    Each client has devices of its own; `sl.connect` in Python makes one.  Without ADDRESS: a socket in
    $XDG_RUNTIME_DIR, else in the cache folder, for this user only.  TCP asks for --token-file, and for TLS
    off loopback.  SIGTERM and Ctrl-C end it.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would print what peers without a token send
    try:
        from systolith.runtime.service.server import Place, serve_until_signal
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise SystolithError(WITHOUT_GRPC) from None
    from systolith.isa.chip import load_chip
    from systolith.runtime.service.access import server_access
    from systolith.runtime.service.address import Address, default_address
    from systolith.runtime.service.limits import Limits
    from systolith.runtime.service.sessions import System

    where = (default_address() if address is None else Address.parse(address)).resolved()
    limits = Limits(
        clients=clients,
        memory=client_memory * MIB,
        transfer=max_transfer * MIB,
        program=max_program * MIB,
        seconds=timeout,
        grace=grace,
    )
    system = System(load_chip(chip), devices, limits)
    place = Place(where, server_access(where, token_file, tls_certificate, tls_key))

    def started(at: Address) -> None:
        emit(f"serving {devices} x {system.chip.name} at {at}")

    serve_until_signal(system, place, started)
