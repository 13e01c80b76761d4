"""The builder's operations as functions, as in the newer generation: `ops.Add(x, y)`, `ops.Iota(builder, shape, 0)`.

Every method of `XlaBuilder` is here under each of its names.  The builder is the first argument, or that of the first
value among the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.xla_builder.builder import XlaBuilder
from systolith.compiler.xla_builder.op import Operators, XlaOp


def __getattr__(name: str) -> Callable[..., Any]:
    method = getattr(XlaBuilder, name, None)
    if name.startswith("_") or not callable(method):
        raise AttributeError(f"there is no operation {name!r}")

    def operation(*arguments: object, **named: object) -> Any:
        if arguments and isinstance(arguments[0], XlaBuilder):
            return method(*arguments, **named)
        builder = _builder([*arguments, *named.values()])
        if builder is None:
            raise HloError(f"{name}: an argument is a builder, or a value of one")
        return method(builder, *arguments, **named)

    operation.__name__, operation.__doc__ = name, method.__doc__
    return operation


def _builder(arguments: Iterable[object]) -> Operators | None:
    for argument in arguments:
        if isinstance(argument, XlaOp):
            return argument.builder
        if isinstance(argument, list | tuple) and (found := _builder(argument)):
            return found
    return None
