"""Counts of a server, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter


class Metrics:
    """Counters of the service since its start.

    Attributes:
        sessions: open now.
    """

    def __init__(self) -> None:
        self.sessions = 0
        self._sessions_total = 0
        self._unauthenticated = 0
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()

    def session_opened(self) -> None:
        self.sessions += 1
        self._sessions_total += 1

    def session_closed(self) -> None:
        self.sessions -= 1

    def refused(self) -> None:
        """A call without the token."""
        self._unauthenticated += 1

    def moved(self, method: str, received: int = 0, sent: int = 0) -> None:
        """Bytes of a call's messages."""
        self._received[method] += received
        self._sent[method] += sent

    def ended(self, method: str, status: str, milliseconds: int) -> None:
        """A call has ended."""
        self._calls[method, status] += 1
        self._seconds[method] += milliseconds

    def text(self) -> str:
        """The text format, version 0.0.4."""
        lines = [
            "# HELP systolith_sessions Clients attached now.",
            "# TYPE systolith_sessions gauge",
            f"systolith_sessions {self.sessions}",
            "# HELP systolith_sessions_opened_total Clients attached so far.",
            "# TYPE systolith_sessions_opened_total counter",
            f"systolith_sessions_opened_total {self._sessions_total}",
            "# HELP systolith_unauthenticated_total Calls without the token.",
            "# TYPE systolith_unauthenticated_total counter",
            f"systolith_unauthenticated_total {self._unauthenticated}",
            "# HELP systolith_calls_total Calls ended, by method and gRPC status.",
            "# TYPE systolith_calls_total counter",
        ]
        for (method, status), count in sorted(self._calls.items()):
            lines.append(f'systolith_calls_total{{method="{method}",status="{status}"}} {count}')
        for name, what, counts, unit in (
            ("call_seconds_total", "Seconds of calls, waiting included.", self._seconds, 1000),
            ("received_bytes_total", "Bytes of messages received.", self._received, 1),
            ("sent_bytes_total", "Bytes of messages sent.", self._sent, 1),
        ):
            lines += [f"# HELP systolith_{name} {what}", f"# TYPE systolith_{name} counter"]
            lines += [f'systolith_{name}{{method="{m}"}} {n / unit:.15g}' for m, n in sorted(counts.items())]
        return "\n".join(lines) + "\n"
