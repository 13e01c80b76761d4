"""Keys of JAX's compilation cache depend on the compiler and on the packages installed that extend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from systolith.pjrt.devices import compiler_stamp, platform_version
from systolith.pjrt.settings import Settings
from tests.installed import install

PASS = "class Nothing:\n    def run(self, module):\n        return False\n"


def test_an_installed_package_and_its_file_are_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        compiler_stamp.cache_clear()
        return platform_version(Settings.read({}, {}))

    monkeypatch.syspath_prepend(tmp_path)
    keys = [key(), key()]
    install(tmp_path, "extension_of_a_test", PASS, {"systolith.passes": {"nothing": "extension_of_a_test:Nothing"}})
    keys += [key(), key()]
    (tmp_path / "extension_of_a_test.py").write_text(PASS + "# changed\n")
    keys += [key()]
    compiler_stamp.cache_clear()
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert len(set(keys)) == 3
