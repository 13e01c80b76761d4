"""Passes and expanders of installed packages (`plugins.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.ops.table import row_name
from systolith.compiler.passes.base import Pass, check_made, run_passes
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.plugins import EXPANDERS, PASSES, Plugin, installed


@dataclass(frozen=True)
class Installed:
    """A pass of an installed package.

    Attributes:
        plugin: what names it.
    """

    plugin: Plugin

    def run(self, module: Module) -> bool:
        made = self.plugin()
        if not callable(getattr(made, "run", None)):
            raise self.plugin.error(f"gives a {type(made).__name__}, which has no run(module)")
        changed = self.plugin.call(made.run, module)
        if not isinstance(changed, bool):
            raise self.plugin.error(f"its run gives {changed!r}, not whether anything changed")
        try:
            verify(module)
        except HloError as problem:
            raise self.plugin.error(f"broke the module: {problem}") from problem
        return changed


@dataclass(frozen=True)
class InstalledPasses:
    """Run the passes of installed packages, in the order of their names.

    Attributes:
        after: passes that see to what later stages rely on, where one of them changed something.
    """

    after: Sequence[Pass]

    def run(self, module: Module) -> bool:
        changed = [Installed(plugin).run(module) for plugin in installed(PASSES).values()]
        if any(changed):
            run_passes(module, self.after)
        return any(changed)


@dataclass(frozen=True)
class InstalledExpanders:
    """Replace operations for which an installed package has an expander."""

    def run(self, module: Module) -> bool:
        changed = bool(installed(EXPANDERS)) and rewrite(module, _expanded)
        if changed:
            check_made(module, "pass InstalledExpanders")
        return changed


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    plugin = installed(EXPANDERS).get(row_name(i))
    if plugin is None:
        return None
    made = plugin(r, i)
    if made is not None and not isinstance(made, Instruction):
        raise plugin.error(f"gives a {type(made).__name__} for {i.name!r}, not an instruction or None")
    return made
