"""Who may use a service: its token and its TLS certificate."""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from systolith.isa.errors import SystolithError
from systolith.isa.files import read_bytes
from systolith.runtime.service.address import Address

SHORTEST_TOKEN, LONGEST_TOKEN = 32, 1024


class AccessError(SystolithError):
    """A token or a certificate is missing or cannot be used."""


@dataclass(frozen=True)
class Access:
    """Credentials: the token that clients must send, and the certificate that the server shows.

    Attributes:
        token: None: none is asked for.
        certificate, key: PEM; empty without TLS.
    """

    token: str | None = None
    certificate: bytes = b""
    key: bytes = b""

    def admits(self, shown: str | bytes | None) -> bool:
        """Whether the value of `authorization` is right; the time taken does not depend on where it differs."""
        if self.token is None:
            return True
        given = shown.encode() if isinstance(shown, str) else shown or b""
        return hmac.compare_digest(given, bearer(self.token).encode())


def bearer(token: str) -> str:
    """The value of `authorization` with a token."""
    return f"Bearer {token}"


def server_access(address: Address, token: Path | None, certificate: Path | None, key: Path | None) -> Access:
    """Give the access control of a server at an address.

    Args:
        address: with an IP address.
        token: a file; it is made, with a random token, if it is not there.
        certificate, key: PEM files.

    Raises:
        AccessError: the address asks for a token or for TLS and there is none, or a file is not usable.
    """
    if (certificate is None) != (key is None):
        raise AccessError("--tls-certificate and --tls-key belong together")
    if address.path is not None and certificate is not None:
        raise AccessError(f"{address}: a Unix socket takes no TLS")
    if address.path is None and token is None:
        raise AccessError(f"{address}: TCP asks for --token-file FILE, which is made if it is not there")
    if not address.private and certificate is None:
        raise AccessError(f"{address}: not loopback, so --tls-certificate and --tls-key are needed")
    pair = _certificate(certificate, key) if certificate and key else (b"", b"")
    return Access(_made_token(token) if token else None, *pair)


def read_token(path: Path) -> str:
    """The token in a file that others cannot read.

    Raises:
        AccessError: they can, or it holds none.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AccessError(f"{path}: others can read or write this token; chmod 600 it")
    try:
        token = read_bytes(path, AccessError).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not token.isprintable() or " " in token:
        raise AccessError(f"{path}: expected a token, {SHORTEST_TOKEN} to {LONGEST_TOKEN} printable ASCII characters")
    return token


def _made_token(path: Path) -> str:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(path)
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from None
    with open(handle, "w") as file:
        file.write(secrets.token_urlsafe(SHORTEST_TOKEN) + "\n")
    return read_token(path)


def _certificate(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    pair = read_bytes(certificate, AccessError), read_bytes(key, AccessError)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise AccessError(f"{certificate}, {key}: no certificate and its key (PEM, no password): {error}") from None
    return pair


def read_authorities(path: str | Path) -> bytes:
    """The certificates (PEM) in a file, by which a client knows a service.

    Raises:
        AccessError: it cannot be read, or holds none.
    """
    text = read_bytes(path, AccessError)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text.decode("ascii"))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise AccessError(f"{path}: no certificates (PEM): {error}") from None
    return text
