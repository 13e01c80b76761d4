"""A failing case made smaller: pieces are left out while the failure stays of the same kind."""

from __future__ import annotations

from tests.fuzz.fuzzer import Failure, Fuzzer, attempt

TRIES = 300


def shrunk(fuzzer: Fuzzer, case: bytes, failure: Failure, tries: int = TRIES) -> bytes:
    """A smaller case that fails the same way; first whole lines go, then bytes."""
    for pieces in (case.splitlines(keepends=True), None):
        parts = [bytes([b]) for b in case] if pieces is None else pieces
        size = len(parts) // 2
        while size and tries:
            at = 0
            while at < len(parts) and tries:
                less = parts[:at] + parts[at + size :]
                tries -= 1
                outcome = attempt(fuzzer, b"".join(less))
                if isinstance(outcome, Failure) and outcome.kind == failure.kind:
                    parts = less
                else:
                    at += size
            size //= 2
        case = b"".join(parts)
    return case
