"""What the command line does with its output streams."""

from __future__ import annotations

import subprocess
import sys

from systolith.runtime.cli import GOOD

MAIN = "from systolith.runtime.cli import main; main()"


def test_a_reader_that_goes_away_is_no_failure() -> None:
    ran = subprocess.Popen([sys.executable, "-c", MAIN, "chips"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ran.stdout is not None
    ran.stdout.close()
    assert ran.stderr is not None
    errors = ran.stderr.read()
    ran.wait()
    assert (ran.returncode, errors) == (GOOD, b"")
