"""Tests of passes as text: `lit tests/lit`, or `pytest tests/test_lit.py`."""

import sys
from pathlib import Path

from lit.TestingConfig import TestingConfig

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.lit.in_process import InProcess  # noqa: E402

config: TestingConfig  # lit gives it
config.name = "systolith"
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(ROOT / "build" / "lit")
config.suffixes = [".hlo", ".tile"]
config.test_format = InProcess()
Path(config.test_exec_root).mkdir(parents=True, exist_ok=True)
