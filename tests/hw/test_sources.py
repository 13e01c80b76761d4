"""The order of sources: packages after those that they use, and the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from systolith.hw.tb.native import files

SHOW = "from systolith.hw.tb.native import files; print([p.name for p in files('trans')])"


def test_packages_come_after_those_that_they_use() -> None:
    names = [path.stem for path in files("trans")]
    assert names.index("f32_pkg") < names.index("trans_steps_pkg") < names.index("trans_pkg")
    assert names.index("systolith_pkg") < names.index("trans_pkg")


def test_every_process_has_the_same_order() -> None:
    def order(seed: int) -> str:
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        return subprocess.run(
            [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert len({order(seed) for seed in range(2)}) == 1
