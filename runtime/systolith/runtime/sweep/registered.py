"""Custom calls that were registered in this process: results depend on them, and other processes are told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from systolith.isa import host_functions, routines


@dataclass(frozen=True)
class Registered:
    """What is registered for custom calls of a model.

    Attributes:
        routines: targets, and the texts in assembly.
        functions: targets of functions of the host, which mode `time` does not call.
    """

    routines: tuple[tuple[str, str], ...] = ()
    functions: tuple[str, ...] = ()

    @staticmethod
    def of(model: bytes) -> Registered:
        """What is registered here under targets that a model names."""
        return Registered(
            tuple(item for item in routines.registered().items() if item[0].encode() in model),
            tuple(target for target in host_functions.registered() if target.encode() in model),
        )

    def register(self) -> None:
        """Register what this process does not have."""
        here = routines.registered()
        for target, text in self.routines:
            if here.get(target) != text:
                routines.register(target, text)
        for target in self.functions:
            if not host_functions.is_known(target):
                host_functions.register(target, _not_called)


def _not_called(*_: Any) -> None:
    raise AssertionError("mode time calls no function of the host")


NOTHING = Registered()
