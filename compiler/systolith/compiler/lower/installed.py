"""Lowerings, and the evaluator's custom calls, of installed packages (`plugins.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values import custom_calls
from systolith.compiler.ops.table import OPS, TARGETS, Family, OpInfo, register, row_name
from systolith.compiler.plugins import CUSTOM_CALLS, LOWERINGS, installed
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Region, TileOp


@cache
def register_installed() -> None:
    """Let the compiler and the evaluator know what installed packages lower and compute; the first call does it.

    Raises:
        PluginError: an entry point cannot be used, or is for what systolith does itself.
    """
    lowerings, targets = installed(LOWERINGS), installed(CUSTOM_CALLS)
    for name, plugin in lowerings.items():
        if name in OPS and OPS[name].lowered:
            raise plugin.error(f"systolith has a lowering of {name}")
    for name, plugin in targets.items():
        if name in custom_calls.CUSTOM_CALLS:
            raise plugin.error("the evaluator has a custom call of this target")
    for name in lowerings:
        if name in OPS:
            register(OpInfo(name, Family.REGISTERED))
        else:
            TARGETS[name] = OpInfo("custom-call", Family.REGISTERED)
    for name, plugin in targets.items():
        custom_calls.register(name, plugin)


def lower_installed(
    builder: TileBuilder, instruction: Instruction, operands: Sequence[Array | int], results: Sequence[Array]
) -> None:
    """Lower an operation by the rule of an installed package.

    Raises:
        PluginError: the rule failed, or appended what is no tile IR.
    """
    plugin = installed(LOWERINGS)[row_name(instruction)]
    start = len(builder.block.items)
    plugin(builder, instruction, list(operands), list(results))
    for item in builder.block.items[start:]:
        if not isinstance(item, TileOp | Region):
            raise plugin.error(f"appends a {type(item).__name__} for {instruction.name!r}, not tile IR")
