"""The cache folder: a file that somebody else can have written, or can exchange, is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from systolith.isa.cache import UntrustedError, cache_home, is_own, make_private, read_own

NOBODY = 65534


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file in a folder of the user's."""
    path = tmp_path / "above" / "folder" / "file"
    make_private(path.parent)
    path.write_bytes(b"code")
    path.chmod(0o600)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a path belong to another user: only root can; others take another user's part themselves."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)


def refused(path: Path) -> bool:
    with pytest.raises(UntrustedError):
        read_own(path)
    return not is_own(path)


def test_the_user_s_own_file_is_read(kept: Path) -> None:
    assert read_own(kept) == b"code"
    assert is_own(kept)
    assert not is_own(kept.with_name("none"))


@pytest.mark.parametrize("mask", [0, 0o022])
def test_folders_are_made_for_the_user_alone(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        make_private(tmp_path / "above" / "folder")
    finally:
        os.umask(before)
    assert [oct((tmp_path / p).stat().st_mode & 0o777) for p in ("above", "above/folder")] == ["0o700", "0o700"]


def test_a_folder_that_others_may_list_is_closed(kept: Path) -> None:
    kept.parent.chmod(0o755)
    make_private(kept.parent)
    assert kept.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(kept: Path, mode: int) -> None:
    kept.chmod(mode)
    assert refused(kept)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("up", [0, 1, 2])
def test_a_folder_that_others_may_write_is_not_used(kept: Path, up: int, mode: int) -> None:
    kept.parents[up].chmod(mode)
    assert refused(kept)
    with pytest.raises(UntrustedError):
        make_private(kept.parent)


@pytest.mark.parametrize("up", [-1, 0, 1])
def test_what_belongs_to_another_user_is_not_used(kept: Path, up: int, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(kept if up < 0 else kept.parents[up], monkeypatch)
    assert refused(kept)


def test_a_folder_below_a_sticky_one_is_used(kept: Path) -> None:
    kept.parents[1].chmod(0o1777)  # as /tmp: others cannot rename the user's files
    assert read_own(kept) == b"code"


def test_a_folder_below_a_sticky_one_of_another_user_is_not_used(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.parents[1].chmod(0o1777)
    give_away(kept.parents[1], monkeypatch)  # who may rename its entries
    assert refused(kept)


def test_a_link_in_place_of_the_file_is_not_followed(kept: Path) -> None:
    kept.rename(kept.with_name("other"))
    kept.symlink_to("other")
    assert not is_own(kept)


def test_a_pipe_in_place_of_the_file_is_not_waited_for(kept: Path) -> None:
    kept.unlink()
    os.mkfifo(kept, 0o600)
    assert refused(kept)


@pytest.mark.parametrize("target", ["real", "../folder/real", "{}/real"])
def test_links_of_the_user_s_are_followed(kept: Path, target: str) -> None:
    (kept.parent / "real").mkdir(0o700)
    (kept.parent / "link").symlink_to(target.format(kept.parent))
    make_private(kept.parent / "link" / "deeper")
    (kept.parent / "real" / "deeper" / "file").write_bytes(b"x")
    assert read_own(kept.parent / "link" / "deeper" / "file") == b"x"


def test_a_link_where_others_may_make_one_is_not_followed(kept: Path) -> None:
    kept.parents[1].chmod(0o1777)
    (kept.parents[1] / "link").symlink_to(kept.parent)
    assert refused(kept.parents[1] / "link" / "file")


def test_links_in_a_circle_end(kept: Path) -> None:
    (kept.parent / "link").symlink_to("link")
    assert not is_own(kept.parent / "link" / "file")


def test_users_without_a_home_have_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_home().name == f"systolith-{os.geteuid()}"
