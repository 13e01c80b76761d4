"""Extensions of the compiler by installed packages, through Python entry points.

    group                     name                    object
    systolith.passes          as `opt` takes it       (): a pass, an object with run(module), for every compilation
    systolith.expanders       an opcode or target     (rewriter, instruction): what replaces it, or None
    systolith.lowerings       an opcode or target     (builder, instruction, operands, results): appends tile IR
    systolith.custom_calls    a target                (instruction, values): the value, for the evaluator

Functions of the host and routines have groups of their own (`isa/host_functions.py`, `isa/routines.py`).

A target is that of a custom call.  They are looked up when a module is first compiled, not when systolith is imported.
Whatever goes wrong in one is an error of one line that names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from systolith.compiler.errors import CompileError
from systolith.isa import host_functions
from systolith.isa.errors import SystolithError
from systolith.isa.routines import GROUP


class PluginError(CompileError):
    """An entry point cannot be used, or what it names failed."""


class Signature(NamedTuple):
    """How many arguments the objects of a group take, and in words."""

    arguments: int
    text: str


PASSES, EXPANDERS, LOWERINGS, CUSTOM_CALLS = (
    f"systolith.{group}" for group in ("passes", "expanders", "lowerings", "custom_calls")
)
SIGNATURES = {
    PASSES: Signature(0, "no argument, and give a pass"),
    EXPANDERS: Signature(2, "a rewriter and an instruction"),
    LOWERINGS: Signature(4, "a builder, an instruction, its operands and its results"),
    CUSTOM_CALLS: Signature(2, "an instruction and the values of its operands"),
}


@dataclass(frozen=True)
class Plugin:
    """The object of an entry point; an exception of a call to it becomes a `PluginError`."""

    point: EntryPoint
    made: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.call(self.made, *arguments)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something of the package's.

        Raises:
            PluginError: it raised an exception that is no `SystolithError`.
        """
        try:
            return function(*arguments)
        except SystolithError:
            raise
        except Exception as problem:
            raise _error(self.point, f"failed: {_line(problem)}") from problem

    def error(self, what: str) -> PluginError:
        """An error about it."""
        return _error(self.point, what)


@cache
def installed(group: str) -> Mapping[str, Plugin]:
    """The entry points of a group by name, in the order of their names; looked up once.

    Raises:
        PluginError: one cannot be imported, or is not what its group has; two have one name.
    """
    found: dict[str, Plugin] = {}
    for point in sorted(entry_points(group=group), key=lambda p: (p.name, p.value)):
        if point.name in found:
            raise _error(point, f"{found[point.name].point.value!r} has this name, too")
        found[point.name] = Plugin(point, _loaded(point))
    return found


def stamp() -> str:
    """Tells installed extensions apart: their entry points, versions and files."""
    groups = (*SIGNATURES, GROUP, host_functions.GROUP)
    return " ".join(_stamp(point) for group in groups for point in sorted(entry_points(group=group)))


def _stamp(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""
    try:
        found = find_spec(point.module)
        data = Path(found.origin).read_bytes() if found is not None and found.origin is not None else b""
    except (Exception, SystemExit):  # it says what is wrong when a module is compiled
        data = b""
    return f"{point.group} {point.name} {point.value} {package} {sha256(data).hexdigest()[:12]}"


def _loaded(point: EntryPoint) -> Callable[..., Any]:
    try:
        made: Callable[..., Any] = point.load()
    except (Exception, SystemExit) as problem:
        raise _error(point, f"cannot be imported: {_line(problem)}") from problem
    wanted = SIGNATURES[point.group]
    try:
        inspect.signature(made).bind(*[None] * wanted.arguments)
    except (TypeError, ValueError):
        raise _error(point, f"must be a function that can take {wanted.text}") from None
    return made


def _error(point: EntryPoint, what: str) -> PluginError:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return PluginError(f"entry point {point.group} {point.name!r} ({point.value}){package}: {what}")


def _line(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())
