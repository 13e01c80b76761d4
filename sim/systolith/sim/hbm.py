"""The HBM arbiter: fixed chunks, round robin, a credit accumulator; jumped over in closed form.

In each cycle, in this order: the credit gains p; if it is at least q x chunk and a client has a chunk to move, the next
such client after the one granted last is granted one chunk and the credit loses q x chunk; the credit is cut to
q x chunk, so that idle time is not saved up.  The credit starts full.  A request that arrives at time t can be granted
in the cycle from t to t + 1; a grant in that cycle is done at t + 1.  (docs/machine.md, Bandwidth of HBM.)
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.sim.causes import InternalError


@dataclass(frozen=True, slots=True)
class Completion:
    """A request that has been granted wholly.

    Attributes:
        client: which client.
        end: time at which its last grant is done (cycles).
        contended: cycles since its arrival in which another client was granted.
    """

    client: int
    end: int
    contended: int


class Arbiter:
    """Grants chunks to `clients` clients, each with at most one request at a time.

    `advance` moves to the next completion.  The caller must have submitted every request that arrives before it; with
    in-order queues this holds whenever everything not yet submitted depends on a completion.
    """

    def __init__(self, p: int, q: int, chunk: int, clients: int) -> None:
        self._gain = p
        self._need = q * chunk
        self._clients = clients
        self._left = [0] * clients
        self._arrival = [0] * clients
        self._contended = [0] * clients
        self._last = clients - 1
        self._credit = self._need
        self.now = 0

    def submit(self, client: int, arrival: int, chunks: int) -> None:
        """Client `client` asks for `chunks` (at least 1) chunks from time `arrival` on.

        Raises:
            InternalError: it has a request already, or time has passed `arrival`.
        """
        if self._left[client] or chunks < 1 or arrival < self.now:
            raise InternalError(f"hbm: client {client}: {chunks} chunks at {arrival}, now {self.now}")
        self._left[client] = chunks
        self._arrival[client] = arrival
        self._contended[client] = 0

    def advance(self) -> Completion | None:
        """Run until a request completes; None if there is none."""
        while True:
            active, coming = self._waiting()
            if not active:
                if coming is None:
                    return None
                self._grant(active, coming - self.now, 0)
                continue
            # The active clients take turns: the one at position i gets grants i + 1, m + i + 1, 2 m + i + 1, ...
            m = len(active)
            grants, winner = min(((self._left[c] - 1) * m + i + 1, c) for i, c in enumerate(active))
            cycles = max(grants, -((self._credit - grants * self._need) // self._gain))
            if coming is None or self.now + cycles <= coming:
                self._grant(active, cycles, grants)
                return Completion(winner, self.now, self._contended[winner])
            cycles = coming - self.now
            self._grant(active, cycles, min(cycles, (self._credit + cycles * self._gain) // self._need))

    def _waiting(self) -> tuple[list[int], int | None]:
        """Clients with work now, the next to be granted first; and when the next arrives."""
        active: list[int] = []
        coming: int | None = None
        n = self._clients
        for i in range(1, n + 1):
            c = (self._last + i) % n
            if self._left[c]:
                if self._arrival[c] <= self.now:
                    active.append(c)
                elif coming is None or self._arrival[c] < coming:
                    coming = self._arrival[c]
        return active, coming

    def _grant(self, active: list[int], cycles: int, grants: int) -> None:
        """Let `cycles` pass, in which `grants` chunks go to the `active` clients in turn."""
        m = len(active)
        for i, c in enumerate(active):
            own = (grants - i + m - 1) // m
            self._left[c] -= own
            self._contended[c] += grants - own
        if grants:
            self._last = active[(grants - 1) % m]
        self.now += cycles
        self._credit = min(self._credit + cycles * self._gain - grants * self._need, self._need)
