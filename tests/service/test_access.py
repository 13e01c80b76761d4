"""Who may use a service: addresses, tokens, certificates, and what a peer without a token gets."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.isa.cache import cache_home
from systolith.runtime.service.access import Access, bearer, server_access
from systolith.runtime.service.address import Address, clear_path, default_address, require_own
from systolith.runtime.service.messages import HEALTH, METHODS, SERVING, message_class, path_of
from systolith.runtime.service.stub import ServiceError
from tests.runtime.command import systolith
from tests.service.served import Raw, serving

X = sl.Literal.r1([1.0, 2.0])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """A server on TCP with TLS: its address, token file and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    options = ("--token-file", folder / "token", "--tls-certificate", folder / "cert.pem", "--tls-key",
               folder / "key.pem")  # fmt: skip
    with serving("127.0.0.1:0", *options) as (_, address):
        yield address, folder / "token", folder / "ca.pem"


def test_a_client_with_token_and_certificate_is_served(
    secured: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, token, ca = secured
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody else sees the token
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    with sl.connect(address, token, ca) as client:
        assert client.transfer(client.transfer_to_server(X)) == X
        assert "systolith_unauthenticated_total" in client.metrics()


def test_a_peer_without_the_token_learns_that_the_service_is_up_and_nothing_else(
    secured: tuple[str, Path, Path], tmp_path: Path
) -> None:
    address, token, ca = secured
    right = token.read_text().strip()
    root = ca.read_bytes()
    for wrong in ("", right[:-1], right + "x", right.swapcase(), "x" * 1000):
        with Raw(address, wrong, root) as raw:
            assert raw.call(HEALTH) == [SERVING]
            for path in (*map(path_of, METHODS), "/systolith.service.Xla/Nothing", "/a/b", path_of("Attach") + "x"):
                answer = raw.code(path, b"\xff" * 100, session="0" * 32)
                assert answer == ("UNAUTHENTICATED", "the token is missing or wrong"), path
    with Raw(address, right, root) as raw:
        assert raw.code("/systolith.service.Xla/Nothing")[0] == "UNIMPLEMENTED"
        assert "systolith_sessions 0" in message_class("Text").FromString(raw.call(path_of("Metrics"))[0]).text
    other = tmp_path / "token"
    other.write_text("y" * 43)
    other.chmod(0o600)
    with pytest.raises(ServiceError, match="the token is missing or wrong"):
        sl.connect(address, other, ca)


def test_the_wrong_certificate_and_plain_text_find_no_service(secured: tuple[str, Path, Path]) -> None:
    address, token, ca = secured
    for authority in (ca.with_name("other.pem"), None):
        with pytest.raises(ServiceError, match="no service answers"):
            sl.connect(address, token, authority)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("127.0.0.1:0",), "TCP asks for --token-file FILE"),
        (("localhost:0",), ":0: TCP asks for --token-file FILE"),
        (("0.0.0.0:0", "--token-file", "token"), "0.0.0.0:0: not loopback, so --tls-certificate and --tls-key are"),
        (("[::]:0", "--token-file", "token"), "[::]:0: not loopback"),
        (("[::ffff:192.0.2.1]:0", "--token-file", "token"), "not loopback"),
        (("127.0.0.1:0", "--token-file", "open"), "open: others can read or write this token; chmod 600 it"),
        (("127.0.0.1:0", "--token-file", "short"), "short: expected a token, 32 to 1024 printable"),
        (("127.0.0.1:0", "--token-file", "nowhere/token"), "nowhere/token: No such file or directory"),
        (("127.0.0.1:0", "--token-file", "token", "--tls-key", "open"), "belong together"),
        (("./s", "--tls-key", "open", "--tls-certificate", "open"), "a Unix socket takes no TLS"),
        (("127.0.0.1:0", "--token-file", "token", "--tls-key", "open", "--tls-certificate", "open"), "no certificate"),
        (("./open",), "there is a file that is no socket"),
        (("nowhere/s",), "nowhere does not exist"),
        (("./" + "x" * 200,), "the path of a Unix socket has at most 107 bytes"),
        (("host",), "'host' is no address: expected unix:PATH, HOST:PORT or [IPv6]:PORT"),
        (("127.0.0.1:99999",), "is no address"),
        (("name.invalid:1", "--token-file", "token"), "name.invalid:1: "),
        (("./s", "--chip", "nobody"), "nobody"),
        (("./s", "--set", "vmem.bytes=no"), "vmem.bytes"),
        (("./s", "--clients", "0"), "--clients"),
        (("./s", "--timeout", "nan"), "--timeout"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open").write_text("z" * 40)
    Path("open").chmod(0o644)
    Path("short").write_text("z" * 31)
    Path("short").chmod(0o600)
    ran = systolith(capsys, "serve", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert says in ran.err


def test_an_address_in_use_is_refused(secured: tuple[str, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    address, token, _ = secured
    ran = systolith(capsys, "serve", address, "--token-file", token)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert f"{address}: cannot be bound" in ran.err


def test_a_token_goes_off_loopback_with_a_certificate_only(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("z" * 40)
    token.chmod(0o600)
    with pytest.raises(sl.SystolithError, match=r"192\.0\.2\.1:1: not loopback, so ca_file is needed"):
        sl.connect("192.0.2.1:1", token)
    with pytest.raises(sl.SystolithError, match=r"ca\.pem: No such file"):
        sl.connect("192.0.2.1:1", token, tmp_path / "ca.pem")


def test_a_file_without_certificates_is_refused_by_name(
    secured: tuple[str, Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address, token, _ = secured
    for text in (b"", b"y" * 43, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"):
        (tmp_path / "ca.pem").write_bytes(text)
        with pytest.raises(sl.SystolithError, match=r"ca\.pem: no certificates \(PEM\)"):
            sl.connect(address, token, tmp_path / "ca.pem")
    assert capfd.readouterr().err == ""


def test_a_socket_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(path))
        require_own(path)
        if os.geteuid() == 0:
            os.chown(path, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(sl.SystolithError, match="no socket of this user"):
            sl.connect(str(path))
    (tmp_path / "file").touch()
    with pytest.raises(sl.SystolithError, match="no socket of this user"):
        require_own(tmp_path / "file")
    with pytest.raises(sl.SystolithError, match=r"no service at unix:.*start one with `systolith serve`"):
        require_own(tmp_path / "nothing")
    with pytest.raises(sl.SystolithError, match=r"folder .* does not exist"):
        clear_path(tmp_path / "no" / "s")


def test_the_default_is_a_socket_in_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_address().path == tmp_path / "systolith.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_address().path == cache_home() / "serve.sock"


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"[\[\]a-f0-9.:/x]*", fullmatch=True))
def test_every_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = Address.parse(text)
    except sl.SystolithError:
        return
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1"])
def test_loopback_is_private(host: str) -> None:
    assert Address(host=host).private


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.0.2.1", "localhost.a", "128.0.0.1", "fe80::1"])
def test_other_addresses_are_not(host: str) -> None:
    assert not Address(host=host).private


@settings(max_examples=50)
@given(st.none() | st.text() | st.binary())
def test_only_the_token_is_admitted(shown: str | bytes | None) -> None:
    access = Access("z" * 40)
    assert access.admits(bearer("z" * 40))
    assert not access.admits(shown)
    assert Access().admits(shown)


def test_a_token_is_made_once(tmp_path: Path) -> None:
    address = Address(host="127.0.0.1")
    first = server_access(address, tmp_path / "token", None, None).token
    assert first
    assert len(first) >= 32
    assert server_access(address, tmp_path / "token", None, None).token == first
    assert server_access(address, tmp_path / "another", None, None).token != first


def test_without_grpc_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("systolith.runtime.service.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    says = "the service needs gRPC: pip install 'systolith[serve]'"
    with pytest.raises(sl.SystolithError) as error:
        sl.connect("./s")
    assert str(error.value) == says
    ran = systolith(capsys, "serve", "./s")
    assert (ran.code, ran.out, ran.err) == (2, "", f"systolith: {says}\n")
