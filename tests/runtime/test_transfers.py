"""XLA's client interface: data to a device and back, queues, and runs on several devices."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from systolith import api as sl

PAIR = sl.Literal.create((np.arange(6, dtype=np.float32).reshape(2, 3), (np.int8(7), np.array([True, False]))))


@pytest.fixture
def client() -> sl.Client:
    return sl.Client("tiny", devices=2)


def scaled(by: float) -> sl.XlaComputation:
    builder = sl.XlaBuilder("scaled")
    x = builder.Parameter(0, sl.make_shape(sl.F32, [8]), "x")
    builder.Mul(x, builder.ConstantR0(float(by)))
    return builder.build()


def test_values_of_every_shape_come_back(client: sl.Client) -> None:
    column_major = sl.Literal.create(np.arange(6).reshape(2, 3).astype(np.int16), layout=sl.Layout((0, 1)))
    empty = sl.Literal.create(np.zeros((0, 3), np.float32))
    for literal in (PAIR, column_major, empty, sl.Literal.create(()), sl.Literal.create_token(), sl.Literal.r0(2.5)):
        back = client.TransferFromServer(client.TransferToServer(literal, device=1))
        assert back == literal
        assert str(back.shape) == str(literal.shape)


def test_a_literal_enters_the_infeed_as_its_arrays_in_order(client: sl.Client) -> None:
    client.TransferToInfeed(PAIR, device=1)
    queue = client.devices[1].infeed.of(0)
    assert queue.take(24 + 1 + 2).tobytes() == np.arange(6, dtype=np.float32).tobytes() + b"\7\1\0"
    assert not client.devices[0].infeed.of(0)


def test_the_outfeed_gives_a_whole_value_or_nothing(client: sl.Client) -> None:
    queue = client.devices[1].outfeed.of(0)
    queue.push(np.arange(6, dtype=np.float32))
    with pytest.raises(sl.SystolithError, match=r"outfeed queue 0: .* there are fewer"):
        client.TransferFromOutfeed(PAIR.shape, device=1)
    queue.push(np.frombuffer(b"\7\1\0", np.uint8))
    assert client.TransferFromOutfeed(PAIR.shape, device=1) == PAIR
    with pytest.raises(sl.SystolithError, match="dynamic size"):
        client.TransferFromOutfeed(sl.Shape.parse("f32[<=8]"))


def test_computations_run_on_several_devices(client: sl.Client) -> None:
    x = np.arange(8, dtype=np.float32)
    twice, thrice = scaled(2), scaled(3)
    data = [client.TransferToServer(sl.Literal.r1(x), device) for device in (0, 1)]
    instances = [
        sl.XlaComputationInstance(twice, [data[0]], 0),
        sl.XlaComputationInstance(thrice, [data[1]], 1),
        sl.XlaComputationInstance(twice, [data[1]], 1),
    ]
    results = [client.TransferFromServer(one).array for one in client.ExecuteParallel(instances)]
    np.testing.assert_array_equal(results, [2 * x, 3 * x, 2 * x])
    with pytest.raises(sl.SystolithError, match="the buffer is on tiny:0, the run on tiny:1"):
        client.ExecuteParallel([sl.XlaComputationInstance(twice, [data[0]], 1)])


def test_deleted_data_is_gone_and_frees_its_memory(client: sl.Client) -> None:
    gc.collect()
    before = client.devices[0].hbm.in_use
    data = client.TransferToServer(PAIR)
    part = data.deconstruct()[1]
    data.delete()
    data.delete()
    assert client.devices[0].hbm.in_use == before
    with pytest.raises(sl.SystolithError, match="was deleted"):
        client.TransferFromServer(part)


def test_data_of_another_client_is_refused(client: sl.Client) -> None:
    foreign = sl.Client("tiny").TransferToServer(sl.Literal.create(np.zeros(8, np.float32)))
    for use in (
        client.TransferFromServer,
        client.TransferInProcess,
        lambda data: client.Execute(scaled(2), [data]),
    ):
        with pytest.raises(sl.SystolithError, match=r"data of shape f32\[8\].* is another client's"):
            use(foreign)


def test_wrong_devices_are_refused(client: sl.Client) -> None:
    with pytest.raises(sl.SystolithError, match="device 2: the client has 2"):
        client.TransferToServer(PAIR, device=2)
    with pytest.raises(sl.SystolithError, match="device -1: the client has 2"):
        client.TransferToInfeed(PAIR, device=-1)
    with pytest.raises(sl.SystolithError, match="device 2: the client has 2"):
        client.TransferFromOutfeed(PAIR.shape, device=2)
