import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.sim.causes import InternalError
from systolith.sim.hbm import Arbiter, Completion
from tests.sim_time.reference import NaiveHbm

Request = tuple[int, int, int]  # client, gap after the completion of the one before, chunks


def jumped(p: int, q: int, chunk: int, clients: int, requests: list[Request]) -> list[Completion]:
    waiting = {c: [r for r in requests if r[0] == c] for c in range(clients)}
    arbiter = Arbiter(p, q, chunk, clients)

    def next_request(client: int, now: int) -> None:
        if waiting[client]:
            _, gap, chunks = waiting[client].pop(0)
            arbiter.submit(client, now + gap, chunks)

    for c in range(clients):
        next_request(c, 0)
    done = []
    while (completion := arbiter.advance()) is not None:
        done.append(completion)
        next_request(completion.client, completion.end)
    return done


def clocked(p: int, q: int, chunk: int, clients: int, requests: list[Request]) -> list[Completion]:
    waiting = {c: [r for r in requests if r[0] == c] for c in range(clients)}
    hbm = NaiveHbm(p, q, chunk, clients)
    free, contended = [0] * clients, [0] * clients
    done = []
    t = 0
    while any(waiting.values()) or any(hbm.left):
        for c in range(clients):
            if waiting[c] and not hbm.left[c] and free[c] + waiting[c][0][1] <= t:
                hbm.left[c] = waiting[c].pop(0)[2]
                contended[c] = 0
        granted = hbm.cycle()
        t += 1
        if granted is None:
            continue
        for c in range(clients):
            contended[c] += c != granted and hbm.left[c] > 0
        if not hbm.left[granted]:
            free[granted] = t
            done.append(Completion(granted, t, contended[granted]))
    return done


@given(st.data())
def test_jumps_equal_the_clocked_arbiter(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 4))
    q, chunk = data.draw(st.integers(1, 7)), data.draw(st.sampled_from([4, 8, 32]))
    p = data.draw(st.integers(1, q * chunk + 3))
    request = st.tuples(st.integers(0, clients - 1), st.integers(0, 40), st.integers(1, 30))
    requests = data.draw(st.lists(request, max_size=12))
    assert jumped(p, q, chunk, clients, requests) == clocked(p, q, chunk, clients, requests)


def test_full_rate_is_a_chunk_a_cycle() -> None:
    assert jumped(64, 1, 64, 2, [(0, 10, 7)]) == [Completion(0, 17, 0)]


def test_half_rate_takes_the_first_chunk_from_saved_credit() -> None:
    # The credit is 32 + 16 in cycle 0, 16 + 16 in cycle 1: grants in cycles 0, 1, 3, 5.
    assert jumped(16, 1, 32, 2, [(0, 0, 4)]) == [Completion(0, 6, 0)]


def test_two_clients_alternate() -> None:
    # Client 0 is granted in 0 2 4 6 8 and 9, client 1 in 1 3 5 7; each sees the other's grants as contention.
    assert jumped(8, 1, 8, 2, [(0, 0, 6), (1, 0, 4)]) == [Completion(1, 8, 4), Completion(0, 10, 4)]


def test_bandwidth_is_exact_over_time() -> None:
    # 22500/47 bytes a cycle in chunks of 512: n chunks take n * 512 * 47 / 22500 cycles, less the credit saved.
    (done,) = jumped(22500, 47, 512, 2, [(0, 0, 100_000)])
    assert done.end == -(-99_999 * 512 * 47 // 22500)


def test_a_huge_transfer_costs_nothing() -> None:
    (done,) = jumped(1, 1, 512, 2, [(0, 0, 10**15)])
    assert done.end == (10**15 - 1) * 512


def test_a_second_request_of_a_client_is_refused() -> None:
    arbiter = Arbiter(1, 1, 4, 2)
    arbiter.submit(0, 0, 1)
    with pytest.raises(InternalError, match="client 0"):
        arbiter.submit(0, 5, 1)
