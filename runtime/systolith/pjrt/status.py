"""Status codes of absl, and which of them an exception is."""

from __future__ import annotations

from systolith.isa.errors import SystolithError, cut
from systolith.runtime.hbm import OutOfMemoryError

CANCELLED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 1, 3, 8, 9, 12, 13


class PluginError(SystolithError):
    """Something that the plugin refuses.

    Attributes:
        code: its status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> int:
    """The status that tells the user of JAX what sort of error this is."""
    from systolith.compiler.errors import CompileError, HbmError  # late: most processes see no error

    if isinstance(error, PluginError):
        return error.code
    if isinstance(error, OutOfMemoryError | HbmError | MemoryError):
        return RESOURCE_EXHAUSTED
    if isinstance(error, CompileError):
        return UNIMPLEMENTED
    if isinstance(error, KeyboardInterrupt):
        return CANCELLED
    return INVALID_ARGUMENT if isinstance(error, SystolithError) else INTERNAL


def line_of(error: BaseException) -> str:
    """The text of an error, in one line."""
    refusals = getattr(error, "refusals", ())
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    text = f"{refusals[0]}{more}" if refusals else str(error)
    return cut(" ".join(text.split())) or type(error).__name__
