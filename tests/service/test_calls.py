"""Calls to a service: what a client of this process gives, results and errors alike."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.runtime.service.stub import RemoteClient
from tests.examples import examples
from tests.service.served import doubled

X = np.arange(8, dtype=np.float32)
PAIR = sl.Literal.create((np.arange(6, dtype=np.float32).reshape(2, 3), (np.int8(7), np.array([True, False]))))
TYPES = "pred s4 s8 s16 s32 s64 u4 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn c64 c128".split()


def tuples(client: Any) -> Any:
    builder = sl.XlaBuilder("parts")
    p = builder.Parameter(0, PAIR.shape, "p")
    builder.Tuple([builder.GetTupleElement(p, 1), builder.GetTupleElement(p, 0)])
    result = client.execute(builder.build(), [client.transfer_to_server(PAIR)])
    return [client.transfer(part) for part in result.deconstruct()]


def parallel(client: Any) -> Any:
    data = [client.transfer_to_server(sl.Literal.r1(X + n), n) for n in range(2)]
    twice = doubled()
    instances = [sl.XlaComputationInstance(twice, [data[n]], n) for n in (0, 1, 1)]
    return [client.TransferFromServer(one) for one in client.ExecuteParallel(instances)]


def bounded(client: Any) -> Any:
    module = sl.parse_hlo(
        "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n n = s32[] constant(3)\n"
        " ROOT y = f32[<=8] set-dimension-size(x, n), dimensions={0}\n}\n"
    )
    data = client.transfer_to_server(sl.Literal.r1(X))
    return [client.execute_and_transfer(sl.XlaComputation.of(module), [data])]


def fed(client: Any) -> Any:
    """A run that a thread waits for is fed, and its outfeed emptied, by another."""
    module = sl.parse_hlo(
        "HloModule feeds\nENTRY e {\n k = token[] after-all()\n a = (f32[8], token[]) infeed(k)\n"
        " x = f32[8] get-tuple-element(a), index=0\n t = token[] get-tuple-element(a), index=1\n"
        " y = f32[8] add(x, x)\n o = token[] outfeed(y, t), outfeed_shape=f32[8]\n"
        ' b = (f32[8], token[]) infeed(o), infeed_config="last"\n ROOT z = f32[8] get-tuple-element(b), index=0\n}\n'
    )
    with ThreadPoolExecutor(1) as waiting:
        result = waiting.submit(client.Transfer, client.Execute(sl.XlaComputation.of(module), [], 1))
        client.TransferToInfeed(sl.Literal.r1(X), 1)
        out = client.TransferFromOutfeed(sl.make_shape(sl.F32, [8]), 1)
        assert out == sl.Literal.r1(2 * X)
        client.TransferToInfeed(sl.Literal.r1(X + 1), 1, "last")
        return [out, result.result()]


def misfed(client: Any) -> Any:
    client.TransferToInfeed(sl.Literal.r1(X))
    client.TransferToInfeed(sl.Literal.create_tuple([PAIR, sl.Literal.r1(X)]))
    return client.TransferFromOutfeed(sl.make_shape(sl.F32, [8]))


def wrong_device(client: Any) -> Any:
    return client.transfer_to_server(PAIR, device=2)


def far_device(client: Any) -> Any:
    return client.transfer_to_infeed(PAIR, device=-1)


def other_device(client: Any) -> Any:
    return client.execute(doubled(), [client.transfer_to_server(sl.Literal.r1(X))], device=1)


def wrong_shape(client: Any) -> Any:
    return client.execute(doubled(4), [client.transfer_to_server(sl.Literal.r1(X))])


def no_data(client: Any) -> Any:
    return client.transfer_from_outfeed(PAIR.shape)


def deleted(client: Any) -> Any:
    data = client.transfer_to_server(PAIR)
    data.delete()
    return client.transfer(data)


def foreign(client: Any) -> Any:
    return client.transfer(sl.Client("tiny").transfer_to_server(PAIR))


def refused(client: Any) -> Any:
    module = sl.parse_hlo('HloModule m\nENTRY e {\n ROOT c = f32[2] custom-call(), custom_call_target="nobody"\n}\n')
    return client.execute(sl.XlaComputation.of(module))


DONE: list[Callable[[Any], Any]] = [tuples, parallel, bounded, fed]
REFUSED: list[Callable[[Any], Any]] = [
    misfed, wrong_device, far_device, other_device, wrong_shape, no_data, foreign, refused,
]  # fmt: skip


@pytest.mark.parametrize("use", DONE)
def test_a_service_gives_what_a_client_of_this_process_does(
    client: RemoteClient, use: Callable[[Any], list[sl.Literal]]
) -> None:
    assert use(client) == use(sl.Client("tiny", devices=2))


@pytest.mark.parametrize("use", REFUSED)
def test_a_service_refuses_in_the_words_of_a_client_of_this_process(
    client: RemoteClient, use: Callable[[Any], Any]
) -> None:
    said = []
    for one in (client, sl.Client("tiny", devices=2)):
        with pytest.raises(sl.SystolithError) as error:
            use(one)
        said.append(re.sub(r"^<string>:\d+:\d+: ", "", str(error.value)))  # the line is of another text
    assert said[0] == said[1]


def test_a_callback_of_jax_is_refused_where_its_function_is_not(client: RemoteClient) -> None:
    """It runs in the process that traced it, and one of that process does not run in another, whatever its number."""
    jax = pytest.importorskip("jax")
    lowered = sl.jit(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)).lower(X)
    computation = sl.XlaComputation.of(sl.parse_hlo(lowered.as_text("hlo")))
    there = sl.Client("tiny")
    here = there.execute_and_transfer(computation, [there.transfer_to_server(sl.Literal.r1(X))])
    assert here == sl.Literal.r1(np.sin(X))
    data = client.transfer_to_server(sl.Literal.r1(X))
    with pytest.raises(
        sl.SystolithError, match=r"systolith.python.\S+: is a callback of JAX, .* run it there"
    ) as error:
        client.execute(computation, [data])
    assert len(str(error.value).splitlines()) == 1
    assert client.transfer(data) == sl.Literal.r1(X)


def test_deleted_data_is_gone(client: RemoteClient) -> None:
    with pytest.raises(sl.SystolithError, match="was deleted"):
        deleted(client)


@settings(examples(12, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TYPES), st.lists(st.integers(0, 5), max_size=4), st.randoms(use_true_random=False))
def test_values_come_back_bit_by_bit(client: RemoteClient, element: str, dims: list[int], random: Random) -> None:
    numbers = np.array([random.randrange(-8 * (element[0] != "u"), 8) for _ in range(int(np.prod(dims)))])
    array = sl.Literal.create(numbers.reshape(dims), element, sl.Layout(tuple(range(len(dims)))))
    for literal in (array, sl.Literal.create_tuple([array, sl.Literal.create_token(), array])):
        back = client.transfer(client.transfer_to_server(literal))
        assert back == literal
        assert str(back.shape) == str(literal.shape)


def test_data_of_many_messages(client: RemoteClient) -> None:
    literal = sl.Literal.r1(np.arange(400_001, dtype=np.float32))
    data = client.transfer_to_server(literal)
    assert client.transfer(data) == literal
    client.transfer_to_infeed(literal, device=1)


def test_what_a_client_lets_go_is_freed(client: RemoteClient) -> None:
    for _ in range(9):  # of 2 MB each; the chip has 16 MB
        client.transfer_to_server(sl.Literal.create(np.zeros(1 << 19, np.float32)))
        gc.collect()
    held = [client.transfer_to_server(sl.Literal.create(np.zeros(1 << 19, np.float32))) for _ in range(8)]
    with pytest.raises(sl.SystolithError, match="HBM is full"):
        client.transfer_to_server(sl.Literal.create(np.zeros(1 << 19, np.float32)))
    for data in held:
        data.delete()
    client.transfer_to_server(sl.Literal.create(np.zeros(1 << 19, np.float32)))


def test_in_process_transfers_are_refused(client: RemoteClient) -> None:
    with pytest.raises(sl.SystolithError, match="transfer_in_process: the devices are in another process, at unix:"):
        client.TransferInProcess(X)


def test_a_closed_client_says_so(address: str) -> None:
    client = sl.connect(address)
    client.close()
    with pytest.raises(sl.SystolithError, match="the client was closed"):
        client.transfer_to_server(PAIR)
