"""Errors for users: each has a message of one line that says what and where; the command line ends with exit code 2."""

from __future__ import annotations


class SystolithError(Exception):
    """Base of every error that a user can cause."""


class ConfigError(SystolithError):
    """A chip configuration is wrong: file, field, value, limit."""


class EncodingError(SystolithError):
    """An instruction, pattern or kernel has no encoding, or words do not decode."""


class AsmError(SystolithError):
    """Assembly text is wrong.

    Attributes:
        line: line number, from 1.
        excerpt: the source line and, below it, a caret.
    """

    def __init__(self, message: str, line: int = 0, excerpt: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.excerpt = excerpt


class BinaryError(SystolithError):
    """A `.slb` file is damaged, truncated or of another version."""


class ProgramError(SystolithError):
    """A program breaks a rule of the instruction set: where, what, value, limit."""
