"""`systolith serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from systolith.isa.errors import SystolithError
from systolith.runtime.commands.chip_options import chip_options
from systolith.runtime.commands.console import emit
from systolith.runtime.commands.options import FILE
from systolith.runtime.service.limits import MIB, Limits

# Option to its field of `Limits`, its unit and bytes in it, the least and the greatest, and its help.
_LIMITS = {
    "--clients": ("clients", "N", 1, 1, 1024, "Most clients at a time."),
    "--client-memory": ("memory", "MIB", MIB, 64, 1 << 24, "Memory of each client's process, beyond its first."),
    "--max-transfer": ("transfer", "MIB", MIB, 1, 1 << 20, "Size of one value that is transferred."),
    "--max-program": ("program", "MIB", MIB, 1, 1 << 12, "Size of one program's HLO text."),
    "--timeout": ("seconds", "SECONDS", 1, 1, 1 << 20, "Longest call, and longest run."),
    "--grace": ("grace", "SECONDS", 1, 0, 3600, "What calls under way have once SIGTERM or Ctrl-C comes."),
}


def _limits(command: Callable[..., None]) -> Callable[..., None]:
    """The options of limits."""
    for name, (field, unit, scale, least, most, text) in reversed(_LIMITS.items()):
        default = getattr(Limits(), field) // scale
        kind = click.IntRange(least, most)
        option = click.option(name, field, type=kind, default=default, show_default=True, metavar=unit, help=text)
        command = option(command)
    return command


@click.command()
@click.argument("address", required=False)
@chip_options("tpu_v3")
@click.option("--devices", type=click.IntRange(1, 4096), default=1, show_default=True, help="Devices of each client.")
@click.option("--token-file", type=FILE, help="Clients must show the token in this file; it is made if not there.")
@click.option("--tls-certificate", type=FILE, help="Certificate (PEM): TLS, which addresses off loopback ask for.")
@click.option("--tls-key", type=FILE, help="Its private key (PEM).")
@click.option("--proto", is_flag=True, help="Print the service's .proto file, for clients in other languages, and end.")
@_limits
def serve(
    address: str | None,
    chip: str,
    changes: Mapping[str, str],
    devices: int,
    token_file: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    proto: bool,
    **limits: Any,
) -> None:
    """Serve simulated devices to other processes, at ADDRESS: unix:PATH, HOST:PORT or [IPv6]:PORT.

    Each client has devices of its own; `sl.connect` in Python makes one.  Without ADDRESS: a socket in
    $XDG_RUNTIME_DIR, else in the cache folder, for this user only.  TCP asks for --token-file, and for TLS
    off loopback.  SIGTERM and Ctrl-C end it.
    """
    if proto:
        from systolith.runtime.service.proto import TARGET

        emit(TARGET.read_text(encoding="utf-8"), newline=False)
        return
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would print what peers without a token send
    try:
        from systolith.runtime.service.server import Place, serve_until_signal
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        from systolith.runtime.connect import WITHOUT_GRPC

        raise SystolithError(WITHOUT_GRPC) from None
    from systolith.isa.chip import load_chip
    from systolith.runtime.service.access import server_access
    from systolith.runtime.service.address import Address, default_address
    from systolith.runtime.service.sessions import System

    where = (default_address() if address is None else Address.parse(address)).resolved()
    scales = {field: scale for field, _, scale, *_ in _LIMITS.values()}
    system = System(load_chip(chip, changes), devices, Limits(**{f: n * scales[f] for f, n in limits.items()}))
    place = Place(where, server_access(where, token_file, tls_certificate, tls_key))

    def started(at: Address) -> None:
        emit(f"serving {devices} x {system.chip.name} at {at}")

    serve_until_signal(system, place, started)
