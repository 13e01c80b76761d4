"""The host's threads at the queues of a device while programs run."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import numpy as np
import pytest

from systolith import api as sl
from systolith.isa.dtypes import dtype
from systolith.sim.limit import CancelledRunError
from tests.host.modules import ECHO, fed_loop

TURNS = 24

LOOP = fed_loop(
    "turns",
    TURNS,
    """
 i = (f32[64], token[]) infeed(k)
 y = f32[64] get-tuple-element(i), index=0
 t = token[] get-tuple-element(i), index=1
 z = f32[64] add(x, y)
 o = token[] outfeed(z, t), outfeed_shape=f32[64]
""",
    "o",
)
START = np.zeros(64, np.float32)
ITEM = START.nbytes


def item(n: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(64, n, np.float32)


@pytest.fixture(scope="module")
def shared() -> sl.Client:
    return sl.Client(chip="tiny")


@pytest.fixture(scope="module")
def loop(shared: sl.Client) -> sl.Executable:
    return shared.compile(LOOP)


@pytest.fixture
def client(shared: sl.Client) -> Iterator[sl.Client]:
    """With empty, open queues, which wait for 20 s, or for none in tests of failures."""
    yield shared
    for feed in (shared.infeed(), shared.outfeed()):
        feed.patience, feed.limit = 20, 1 << 28
    shared.device(0).queue.submit(lambda: None).result()
    shared.infeed().open()
    shared.infeed().clear()
    shared.outfeed().clear()


@pytest.mark.parametrize("limit", [0, ITEM, 3 * ITEM, None])
def test_threads_produce_and_consume_while_it_runs(client: sl.Client, loop: sl.Executable, limit: int | None) -> None:
    client.infeed().limit = client.outfeed().limit = limit
    waiting = []

    def produce() -> None:
        with client.infeed() as feed:
            for n in range(TURNS):
                feed.push(item(n))
                waiting.append(len(feed))

    producer = Thread(target=produce)
    producer.start()
    (y,) = loop(START)
    sums = [client.outfeed().pop() for _ in range(TURNS)]
    producer.join()
    assert [s[0] for s in sums] == np.cumsum(range(TURNS)).tolist()
    assert (y.numpy() == sums[-1]).all()
    assert limit is None or max(waiting) <= max(limit // ITEM, 1)


def test_the_host_answers_what_a_run_has_put_out(client: sl.Client, loop: sl.Executable) -> None:
    """Each item depends on the outfeed of the turn before."""
    (y,) = loop(START)
    client.infeed().push(item(1))
    for _ in range(TURNS - 1):
        client.infeed().push(client.outfeed().pop())
    assert y.numpy()[0] == 2.0 ** (TURNS - 1)


def test_a_producer_that_never_comes_fails_the_run_in_time(client: sl.Client, loop: sl.Executable) -> None:
    client.infeed().patience = 0.1
    client.infeed().push(item(1))
    (y,) = loop(START)
    with pytest.raises(sl.SystolithError, match=r"infeed of i.*'i' takes f32\[64\].* after 1 items, for 0.1 s: push"):
        y.block()


def test_a_producer_that_dies_fails_the_run_at_once(client: sl.Client, loop: sl.Executable) -> None:
    (y,) = loop(START)

    def produce() -> None:
        with client.infeed() as feed:
            feed.push(item(1))
            raise KeyError("shard 7")

    with pytest.raises(KeyError):
        produce()
    with pytest.raises(sl.SystolithError, match=r"'i' takes f32\[64\].*closed it \(KeyError: 'shard 7'\)"):
        y.block()
    with pytest.raises(sl.SystolithError, match="infeed queue 0: is closed"):
        client.infeed().push(item(1))


def test_a_run_that_waits_for_the_host_can_be_cancelled(client: sl.Client, loop: sl.Executable) -> None:
    (y,) = loop(START)
    client.infeed().push(item(1))
    assert client.outfeed().pop()[0] == 1
    y.cancel()
    with pytest.raises(CancelledRunError, match="turns: the run was cancelled while it waited for the host"):
        y.block()


def test_a_consumer_that_never_comes_fails_the_run_in_time(client: sl.Client, loop: sl.Executable) -> None:
    client.outfeed().limit, client.outfeed().patience = 2 * ITEM, 0.1
    client.infeed().push(*map(item, range(TURNS)))
    (y,) = loop(START)
    with pytest.raises(
        sl.SystolithError, match=r"outfeed of o.*no room for f32\[64\] after 0.1 s: 2 items of 512 bytes"
    ):
        y.block()
    assert [client.outfeed().pop()[0] for _ in range(2)] == [0, 1]


def test_a_full_infeed_refuses_and_keeps_what_it_has(client: sl.Client) -> None:
    feed = client.infeed()
    feed.limit, feed.patience = 2 * ITEM, 0
    feed.push(item(0), item(1))
    with pytest.raises(sl.SystolithError, match=r"infeed queue 0: no room for f32\[64\] after 0 s"):
        feed.push(item(2))
    assert feed.clear() == 2


@pytest.mark.parametrize(
    "other", [np.zeros(65, np.float32), np.zeros(64, np.int32), np.zeros((8, 8), np.float32), np.zeros(64, np.float16)]
)
def test_another_array_fails_the_run_and_stays(
    client: sl.Client, loop: sl.Executable, other: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    client.infeed().push(item(0), other, item(2))
    (y,) = loop(START)
    with pytest.raises(sl.SystolithError, match=r"infeed of i.*'i' takes f32\[64\], item \d+ is (f32|s32|f16)\["):
        y.block()
    assert len(client.infeed()) == 2
    assert len(client.outfeed()) == 1


def test_items_that_a_program_leaves_are_the_next_one_s(client: sl.Client, loop: sl.Executable) -> None:
    client.infeed().push(*map(item, range(2 * TURNS)))
    assert loop(START)[0].numpy()[0] == sum(range(TURNS))
    assert len(client.infeed()) == TURNS
    assert loop(START)[0].numpy()[0] == sum(range(TURNS, 2 * TURNS))


def test_items_keep_their_elements_whatever_their_strides(client: sl.Client) -> None:
    x = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(4, 6))
    client.infeed().push(x, np.arange(6, dtype=np.int32)[::2])
    client.compile(ECHO)()
    assert (client.outfeed().pop() == [0, 2, 4]).all()
    assert (client.outfeed().pop(dtype("f32"), (4, 6)) == -x).all()


def test_a_pop_of_another_shape_leaves_the_item(client: sl.Client) -> None:
    client.infeed().push(np.ones((4, 6), np.float32), np.ones(3, np.int32))
    client.compile(ECHO)()
    with pytest.raises(sl.SystolithError, match=r"outfeed queue 0: f32\[3\] is asked for, the next item is s32\[3\]"):
        client.outfeed().pop(dtype("f32"), (3,))
    with pytest.raises(sl.SystolithError, match="give both, type and shape, or neither"):
        client.outfeed().pop(dtype("f32"))
    assert (client.outfeed().pop() == 1).all()


def test_a_pop_without_a_run_is_refused_at_once(client: sl.Client) -> None:
    with pytest.raises(sl.SystolithError, match="outfeed queue 0: it is empty, and no run is under way"):
        client.outfeed().pop()


def test_a_feed_says_what_it_is(client: sl.Client) -> None:
    client.infeed().push(START)
    assert repr(client.infeed()) == "<Infeed: infeed queue 0, 1 waiting>"
    assert repr(client.outfeed()) == "<Outfeed: outfeed queue 0, 0 waiting>"


def test_a_pop_ends_when_the_run_has_failed(client: sl.Client, loop: sl.Executable) -> None:
    client.infeed().close("no data today")
    loop(START)
    with pytest.raises(sl.SystolithError, match="no run is under way"):
        client.outfeed().pop()


@pytest.mark.parametrize(
    ("name", "value"), [("limit", -1), ("limit", 0.5), ("patience", -1), ("patience", float("nan"))]
)
def test_odd_settings_are_refused(client: sl.Client, name: str, value: float) -> None:
    with pytest.raises(sl.SystolithError, match=name):
        setattr(client.infeed(), name, value)
