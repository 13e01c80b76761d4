"""Errors for users: each has a message of one line that says what and where; the command line ends with exit code 2."""

from __future__ import annotations

LONGEST = 1000
"""Characters of a message; more (of a name or a shape, say) is cut."""


def cut(message: str) -> str:
    """A message of at most `LONGEST` characters."""
    return message if len(message) <= LONGEST else f"{message[:LONGEST]}..."


class SystolithError(Exception):
    """Base of every error that a user can cause; whatever names it is given, its message has an end."""

    def __str__(self) -> str:
        return cut(super().__str__())


def excerpt(source: str, column: int) -> str:
    """A source line (a window of a very long one) and, below it, a caret at a column, from 0."""
    start = max(0, column - 80)
    return f"{source[start : start + 120]}\n{' ' * (column - start)}^"


class ConfigError(SystolithError):
    """A chip configuration is wrong: file, field, value, limit."""


class EncodingError(SystolithError):
    """An instruction, pattern or kernel has no encoding, or words do not decode."""


class AsmError(SystolithError):
    """Assembly text is wrong.

    Attributes:
        line: line number, from 1.
        excerpt: as `excerpt` makes it.
    """

    def __init__(self, message: str, line: int = 0, excerpt: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.excerpt = excerpt


class BinaryError(SystolithError):
    """A `.slb` file is damaged, truncated or of another version."""


class ProgramError(SystolithError):
    """A program breaks a rule of the instruction set: where, what, value, limit."""
