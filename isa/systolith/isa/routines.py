"""Routines: custom calls that run a text in assembly on the chip, by target (`asm_routine.py` has their syntax).

The compiler writes a routine out where the call stands, so a program holds its instructions, and nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from systolith.isa import host_functions
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.isa.host_functions import Array, HostFunction, Signature

GROUP = "systolith.routines"
"""The group of entry points: target to `Routine`."""


class RoutineError(SystolithError):
    """A routine cannot be registered, or breaks a rule: names its target."""


@dataclass(frozen=True)
class Routine:
    """What a custom call runs.

    Attributes:
        text: in assembly.
        reference: from the operands as numpy arrays to the result, or a sequence of them for a tuple: what the
            evaluator and `--check` compare with; None: they cannot.
        ulp: units in the last place by which floats may differ from the reference.
    """

    text: str
    reference: HostFunction | None = None
    ulp: float = 0.0


_ROUTINES: dict[str, Routine] = {}


@checked
def register(target: str, text: str, reference: Callable[..., Any] | None = None, ulp: float = 0.0) -> None:
    """Let custom calls of `target` run a routine, instead of one that was registered before.

    Args:
        target: as `custom_call_target` has it.
        text: of the routine, in assembly.
        reference: see `Routine`.
        ulp: see `Routine`.

    Raises:
        RoutineError: the target is empty or a function of the host has it, or `reference` is no function.
    """
    if not target or not (reference is None or callable(reference)):
        raise RoutineError(f"custom-call target {target!r}: takes a name, a text and a function, got {reference!r}")
    if host_functions.is_known(target):
        raise RoutineError(f"custom-call target {target!r}: a function of the host is registered for it")
    _ROUTINES[target] = Routine(text, reference, ulp)


def unregister(target: str) -> None:
    """Forget a routine."""
    _ROUTINES.pop(target, None)


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def registered() -> dict[str, str]:
    """The texts of routines that were registered in this process, by target."""
    return {target: routine.text for target, routine in sorted(_ROUTINES.items())}


def known() -> list[str]:
    """All targets with a routine."""
    return sorted({*_ROUTINES, *_installed()})


def is_known(target: str) -> bool:
    """Whether a routine is registered for a target."""
    return target in _ROUTINES or target in _installed()


def find(target: str) -> Routine:
    """The routine of a target that has one.

    Raises:
        RoutineError: it is an entry point that cannot be imported, or is no `Routine`.
    """
    if target in _ROUTINES:
        return _ROUTINES[target]
    where = f"entry point {GROUP} {target!r} ({_installed()[target].value})"
    try:
        found = _installed()[target].load()
    except (Exception, SystemExit) as problem:
        what = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise RoutineError(f"{where}: cannot be imported: {what}") from problem
    if not isinstance(found, Routine):
        raise RoutineError(f"{where}: must be a Routine, is a {type(found).__name__}")
    return found


def call(signature: Signature, operands: Sequence[Array]) -> list[Array]:
    """The results by the reference.

    Raises:
        RoutineError: there is none.
        HostFunctionError: it failed, or gave other arrays than the results of the call.
    """
    reference = find(signature.target).reference
    if reference is None:
        raise RoutineError(f"custom call of {signature.target!r}: its routine has no reference, so no value here")
    return host_functions.called(reference, signature, operands)
