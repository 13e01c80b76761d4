"""How a command ends: its exit code, and one line on stderr for an error.

| code | when |
|---|---|
| 0 | good |
| 1 | a check failed |
| 2 | bad input or usage, an output that cannot be written, not enough memory |
| 3 | a fault of systolith |
| 130 | interrupted |

With `SYSTOLITH_TRACEBACK` set to anything, a fault is raised with its traceback: tests and fuzzers run so.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import click

from systolith.isa.errors import SystolithError, cut
from systolith.runtime.commands.console import discard_output, flush_output, prepare_streams, tell

GOOD, FAILED, BAD_INPUT, FAULT, INTERRUPTED = 0, 1, 2, 3, 130
TRACEBACK = "SYSTOLITH_TRACEBACK"
# Errors of printing alone: whoever opens a file makes a SystolithError of them.
_OUTPUT_ERRORS = (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


def exit_code(command: Callable[[], int | None]) -> int:
    """Run a command to its end; its exit code."""
    prepare_streams()
    try:
        code = command()
        flush_output()
        return code or GOOD
    except click.Abort as error:
        return _say(f"interrupted: {error}".rstrip(": "), INTERRUPTED)
    except click.ClickException as error:
        return _say(error.format_message())
    except SystolithError as error:
        return _say(str(error), excerpt=getattr(error, "excerpt", ""))
    except MemoryError as error:
        return _say(f"out of memory: {str(error) or 'this needs more than the machine has'}")
    except SystemExit:  # click's own, of `--help` whose reader has gone away
        discard_output()
        return GOOD
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            return _fault(error)
        discard_output()
        return _say(f"standard output: {error.strerror}")
    except Exception as error:
        return _fault(error)


def _fault(error: Exception) -> int:
    if os.environ.get(TRACEBACK):
        raise error
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return _say(f"fault of systolith: {what} (the traceback: set {TRACEBACK}=1 and run again; please report it)", FAULT)


def _say(message: str, code: int = BAD_INPUT, excerpt: str = "") -> int:
    """One line; of a text, the source line and a caret below it."""
    tell(cut(f"systolith: {' '.join(message.split())}"))
    if excerpt:
        tell(excerpt)
    return code
