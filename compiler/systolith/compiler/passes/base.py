"""The interface of passes, and their runner, which verifies before and after and names the pass in errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Decision
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify

_LOG = logging.getLogger("systolith.passes")


@dataclass(frozen=True)
class Outcome:
    """The result of a pass that makes decisions.

    Attributes:
        changed: whether anything did.
        decisions: what was chosen, for people.
    """

    changed: bool
    decisions: tuple[Decision, ...] = ()


class Pass(Protocol):
    """HLO to HLO.  A pass is a frozen dataclass; its fields are its options."""

    def run(self, module: Module) -> bool | Outcome:
        """Change the module in place; gives whether anything changed, and what was chosen if that is of interest."""


def pass_name(step: Pass) -> str:
    """Name of a pass for messages and dumps."""
    return type(step).__name__


def run_pass(module: Module, step: Pass, checked: bool = True) -> Outcome:
    """Run one pass over a module, in place, and check what it made; errors as for `run_passes`."""
    started = perf_counter()
    given = step.run(module)
    outcome = given if isinstance(given, Outcome) else Outcome(given)
    done = "changed the module" if outcome.changed else "changed nothing"
    _LOG.debug("%s %s in %.1f ms", pass_name(step), done, 1e3 * (perf_counter() - started))
    try:
        if outcome.changed and checked:
            verify(module)
    except HloError as problem:
        raise CompileError(f"pass {pass_name(step)} broke the module: {problem}") from problem
    return outcome


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
        if run_pass(module, step).changed and observe is not None:
            observe(pass_name(step), module)
    return module
