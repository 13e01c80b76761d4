"""What a pass is, and how passes are run: verified before and after, an error names the pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify


class Pass(Protocol):
    """HLO to HLO.  A pass is a frozen dataclass; its fields are its options."""

    def run(self, module: Module) -> bool:
        """Change the module in place; gives whether anything changed."""


def pass_name(step: Pass) -> str:
    """Name of a pass for messages and dumps."""
    return type(step).__name__


def run_passes(module: Module, passes: Sequence[Pass], observe: Callable[[str, Module], None] | None = None) -> Module:
    """Run passes over a module, in place.

    Args:
        module: changed in place and returned.
        passes: in order.
        observe: called with the name of each pass that changed something, and the module.

    Raises:
        CompileError: a pass broke the module; names the pass.
    """
    verify(module)
    for step in passes:
        if not step.run(module):
            continue
        try:
            verify(module)
        except HloError as problem:
            raise CompileError(f"pass {pass_name(step)} broke the module: {problem}") from problem
        if observe is not None:
            observe(pass_name(step), module)
    return module
