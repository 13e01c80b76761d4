"""A process whose processor rounds in another way than the chip: refused, as other bits would come out."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.errors import SystolithError
from systolith.isa.native.library import Library, pointer
from systolith.sim.simulate import simulate
from tests.sim_values.build import TINY, Builder

_MODES = {"flushed results": 0x8000, "flushed operands": 0x40, "down": 0x2000, "up": 0x4000, "to zero": 0x6000}
_BYTE = ir.IntType(8)


def _control(name: str) -> Any:
    """Loads or stores the control word of x86's vector arithmetic."""

    def body(b: ir.IRBuilder, address: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer()])
        b.call(ir.Function(b.module, kind, f"llvm.x86.sse.{name}"), [pointer(b, address, _BYTE)])

    return body


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's control word")
@pytest.mark.parametrize("mode", _MODES)
def test_a_changed_floating_point_mode_is_refused(mode: str) -> None:
    library = Library({"load": (1, _control("ldmxcsr")), "store": (1, _control("stmxcsr"))}, __file__)
    before, changed = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    b = Builder()
    b.add("halt")
    library["store"](before.ctypes.data)
    changed[0] = before[0] | _MODES[mode]
    try:
        library["load"](changed.ctypes.data)
        with pytest.raises(SystolithError, match="this thread rounds otherwise than to nearest, or flushes"):
            simulate(b.program, TINY, {})
    finally:
        library["load"](before.ctypes.data)
    simulate(b.program, TINY, {})
