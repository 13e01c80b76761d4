"""The interface of passes, and their runner, which verifies what they made.

To verify takes longer than most passes, so a compilation does so after its stages, and after each pass only with
`SYSTOLITH_VERIFY` set to anything: tests and fuzzers run so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Decision
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify

VERIFY = "SYSTOLITH_VERIFY"

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


def after_each() -> bool:
    """Whether a compilation verifies after each pass."""
    return bool(os.environ.get(VERIFY))


def run_pass(module: Module, step: Pass, checked: bool = True) -> Outcome:
    """Run one pass over a module, in place, and check what it made; errors as for `run_passes`."""
    started = perf_counter()
    given = step.run(module)
    outcome = given if isinstance(given, Outcome) else Outcome(given)
    done = "changed the module" if outcome.changed else "changed nothing"
    _LOG.debug("%s %s in %.1f ms", pass_name(step), done, 1e3 * (perf_counter() - started))
    if outcome.changed and checked:
        check_made(module, f"pass {pass_name(step)}")
    return outcome


def check_made(module: Module, by: str) -> None:
    """Check what a pass, or several, made of a module.

    Raises:
        CompileError: a rule of HLO is broken; says who did it.
    """
    try:
        verify(module)
    except HloError as problem:
        which = "" if by.startswith("pass ") else f" ({VERIFY}=1 says which pass)"
        raise CompileError(f"{by} broke the module{which}: {problem}") from problem


def run_passes(
    module: Module, passes: Sequence[Pass], observe: Callable[[str, Module], None] | None = None, stage: str = ""
) -> Module:
    """Run passes over a module, in place.

    Args:
        module: changed in place and returned.
        passes: in order.
        observe: called with the name of each pass that changed something, and the module.
        stage: of a compilation, by name: what the passes made is checked once, unless `after_each`.

    Raises:
        CompileError: a pass broke the module; names the pass, or the stage.
    """
    verify(module)
    checked = not stage or after_each()
    changed = False
    for step in passes:
        if run_pass(module, step, checked).changed:
            changed = True
            if observe is not None:
                observe(pass_name(step), module)
    if changed and not checked:
        check_made(module, stage)
    return module
