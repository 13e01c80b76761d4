"""Buffers as arrays of other libraries, on several devices, and while a run that uses them is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.task import Task, TaskQueue

TWICE = "HloModule twice\nENTRY e {\n a = f32[8] parameter(0)\n ROOT s = f32[8] add(a, a)\n}\n"
ONES = np.ones(8, np.float32)


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client("tiny", devices=2)


@contextmanager
def busy(client: sl.Client) -> Iterator[threading.Event]:
    """The first device does something until the event is set, or the end."""
    end = threading.Event()
    client.devices[0].queue.submit(lambda: end.wait(60))
    try:
        yield end
    finally:
        end.set()


@pytest.mark.parametrize("element", [np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_numpy_reads_a_buffer(client: sl.Client, element: type) -> None:
    array: Any = np.arange(6).reshape(2, 3).astype(element)
    buffer = client.put(array)
    got = np.asarray(buffer)
    assert (got.dtype, got.shape) == (array.dtype, (2, 3))
    assert (got == array).all()
    got[0, 0] = 1  # a copy
    assert (np.asarray(buffer) == array).all()
    assert np.array(buffer, np.complex128).dtype == np.complex128
    assert (jnp.asarray(buffer) == jnp.asarray(array)).all()
    with pytest.raises(ValueError, match="an array of it is a copy"):
        np.asarray(buffer, copy=False)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0), (1, 2, 1)])
def test_numpy_reads_a_buffer_of_any_rank(client: sl.Client, shape: tuple[int, ...]) -> None:
    buffer = client.put(np.ones(shape, np.float32))
    assert type(buffer.numpy()) is np.ndarray
    assert np.asarray(buffer).shape == np.stack([buffer, buffer]).shape[1:] == shape


def test_numbers_of_buffers_with_one_element(client: sl.Client) -> None:
    assert float(client.put(np.array(2.5, np.float32))) == 2.5
    assert int(client.put(np.array([[7]], np.int32))) == 7


@pytest.mark.parametrize("element", [np.float32, np.int8, np.complex64])
def test_other_libraries_take_it_by_dlpack(client: sl.Client, element: type) -> None:
    array: Any = np.arange(6).reshape(2, 3).astype(element)
    buffer: Any = client.put(array)
    np.testing.assert_array_equal(np.from_dlpack(buffer), array)
    taken = jax.dlpack.from_dlpack(buffer)
    buffer.delete()
    np.testing.assert_array_equal(taken, array)
    with pytest.raises(sl.SystolithError, match="was deleted"):
        np.from_dlpack(buffer)


def test_what_dlpack_has_not_is_refused(client: sl.Client) -> None:
    with pytest.raises(BufferError):
        client.put(ONES.astype(ml_dtypes.bfloat16)).__dlpack__()
    with pytest.raises(BufferError, match="copies on the host only"):
        client.put(ONES).__dlpack__(copy=False)
    with pytest.raises(BufferError, match="copies on the host only"):
        client.put(ONES).__dlpack__(dl_device=(2, 0))


def test_copies_between_devices_do_not_wait(client: sl.Client) -> None:
    twice = client.compile(TWICE)
    with busy(client) as end:
        (result,) = twice(client.put(ONES))
        moved = result.to(1)
        (after,) = twice(moved, device=1)
        assert not any(b.is_ready() for b in (result, moved, after))
        assert "pending" in repr(result)
        end.set()
        assert after.numpy().tolist() == [4] * 8
    assert moved.device is client.devices[1]
    assert moved.to(sl.Client("small").devices[0]).numpy().tolist() == [2] * 8
    assert result.is_ready()
    assert "pending" not in repr(result)
    with pytest.raises(sl.SystolithError, match="device 7: the client has 2"):
        moved.to(7)


def test_a_copy_has_what_was_there_before_a_later_run_takes_the_memory(client: sl.Client) -> None:
    donates = client.compile(TWICE.replace("twice", "twice, input_output_alias={ {}: (0, {}, must-alias) }"))
    with busy(client) as end:
        x = client.put(ONES)
        kept = x.to(1)
        (y,) = donates(x)
        end.set()
    assert (kept.numpy().tolist(), y.numpy().tolist()) == ([1] * 8, [2] * 8)


def test_a_buffer_deleted_under_way_is_used_to_the_end_and_then_freed(client: sl.Client) -> None:
    twice, hbm = client.compile(TWICE), client.devices[0].hbm
    before = hbm.in_use
    with busy(client) as end:
        x = client.put(ONES)
        (y,) = twice(x)
        (z,) = twice(y)
        held = hbm.in_use
        x.delete()
        y.delete()
        assert hbm.in_use == held
        for gone in (x, y):
            with pytest.raises(sl.SystolithError, match=r"f32\[8\] was deleted"):
                gone.numpy()
        end.set()
        assert z.numpy().tolist() == [4] * 8
    z.delete()
    client.devices[0].queue.drain()
    assert hbm.in_use == before


def test_events(client: sl.Client) -> None:
    twice, called = client.compile(TWICE), threading.Event()
    with busy(client) as end:
        (y,) = twice(ONES)
        event = y.ready_event
        event.on_ready(called.set)
        assert (event.wait(0.01), called.is_set()) == (False, False)
        end.set()
        assert event.wait(60)
        assert called.wait(60)
    assert event.error() is None
    called.clear()
    event.on_ready(called.set)
    assert called.is_set()
    assert client.put(ONES).ready_event.is_ready


def test_a_callback_that_fails_is_told_and_hinders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("systolith.runtime.task.excepthook", lambda about: told.append(about.exc_type))
    queue = TaskQueue("test")
    task: Task[int] = queue.submit(lambda: 3)
    task.wait()
    task.on_ready(lambda: 1 // 0)
    assert (task.result(), queue.submit(lambda: 4).result()) == (3, 4)
    assert told == [ZeroDivisionError]
