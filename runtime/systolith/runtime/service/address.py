"""Addresses of a service: a Unix socket, or TCP."""

from __future__ import annotations

import os
import re
import socket
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from systolith.isa.cache import cache_home, make_private
from systolith.isa.errors import SystolithError

LONGEST_PATH = 107  # bytes of `sun_path`, less the NUL
_TCP = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:/\[\]\s]+)):(?P<port>\d{1,5})")


class AddressError(SystolithError):
    """An address is none, or cannot be used."""


@dataclass(frozen=True)
class Address:
    """Where a service is.

    Attributes:
        path: of a Unix socket; None: TCP.
        host: a name or an IP address.
        port: 0 lets the system choose.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0

    @staticmethod
    def parse(text: str) -> Address:
        """`unix:PATH`, a path with a slash, `HOST:PORT`, `[IPv6]:PORT`.

        Raises:
            AddressError: it is none of these.
        """
        if text.startswith("unix:") or "/" in text:
            path = Path(text.removeprefix("unix:")).absolute()
            if "\0" in text or len(os.fsencode(path)) > LONGEST_PATH:
                raise AddressError(f"{path}: the path of a Unix socket has at most {LONGEST_PATH} bytes")
            return Address(path=path)
        found = _TCP.fullmatch(text)
        if not found or int(found["port"]) > 65_535:
            raise AddressError(f"{text!r} is no address: expected unix:PATH, HOST:PORT or [IPv6]:PORT")
        return Address(host=found["v6"] or found["host"], port=int(found["port"]))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def resolved(self) -> Address:
        """The same with an IP address for a name.

        Raises:
            AddressError: the name has none.
        """
        if self.path is not None:
            return self
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise AddressError(f"{self}: {getattr(error, 'strerror', None) or error}") from None
        return Address(host=str(found[0][4][0]), port=self.port)

    @property
    def private(self) -> bool:
        """Whether its bytes stay on this machine: a Unix socket, or an IP address of loopback."""
        if self.path is not None:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def default_address() -> Address:
    """The socket of this user's service.

    Raises:
        AddressError: there is no folder for it that only the user can write.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Address.parse(f"unix:{runtime}/systolith.sock")
    home = cache_home()
    try:
        make_private(home)
    except OSError as error:
        raise AddressError(f"{home}: {error.strerror or error}; give the address of the service") from None
    return Address.parse(f"unix:{home}/serve.sock")


def clear_path(path: Path) -> None:
    """Remove a socket that nothing answers on.

    Raises:
        AddressError: a server answers there, there is something else, or the folder is not there.
    """
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise AddressError(f"{path}: folder {path.parent} does not exist") from None
        return
    except OSError as error:
        raise AddressError(f"{path}: {error.strerror}") from None
    if not stat.S_ISSOCK(kind):
        raise AddressError(f"{path}: there is a file that is no socket; remove it or take another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1)
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise AddressError(f"{path}: {error.strerror or error}") from None
    raise AddressError(f"{path}: another server is there")


def require_own(path: Path) -> None:
    """Check that a socket is of this user, or of root.

    Raises:
        AddressError: it is not, or is not there.
    """
    try:
        there = os.lstat(path)
    except OSError as error:
        raise AddressError(f"no service at unix:{path}: {error.strerror}; start one with `systolith serve`") from None
    if not stat.S_ISSOCK(there.st_mode) or there.st_uid not in (os.geteuid(), 0):
        raise AddressError(f"unix:{path}: no socket of this user")
