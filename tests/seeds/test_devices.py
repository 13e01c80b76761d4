"""Operations of several devices: collectives, and send with recv."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo import parse_hlo, print_hlo, verify
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.values.devices import Host
from systolith.compiler.hlo.values.evaluator import evaluate_devices
from tests.compiler.hlo.device_oracle import Program, run_xla_devices
from tests.seeds.run import Array, scalar_computation

Build = Callable[[sl.XlaBuilder, sl.XlaOp], sl.XlaOp]
PROGRAMS: list[tuple[Program, list[list[Array]]]] = []
"""Programs that `_run` ran, and their results."""


@pytest.fixture(scope="module", autouse=True)
def _xla_gives_the_same() -> Iterator[None]:
    """After the tests: all their programs in one process of XLA with as many devices."""
    yield
    for (program, found), expected in zip(PROGRAMS, run_xla_devices([p for p, _ in PROGRAMS]), strict=True):
        assert not isinstance(expected, str), f"{expected}\n{program.text}"
        for ours, theirs in zip(found, expected, strict=True):
            for a, e in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-6, err_msg=program.text)


def _run(build: Build, values: Any, element: str = "f32", xla: bool = True) -> list[list[Array]]:
    """Each replica's results of a program with one argument."""
    arrays = [np.array(v, sl.make_shape(element).dtype.stored) for v in values]
    b = sl.XlaBuilder("devices")
    root = build(b, b.Parameter(0, sl.make_shape(element, arrays[0].shape), "x"))
    module = b.Build(root).module()
    verify(module)
    text = print_hlo(module)
    assert print_hlo(parse_hlo(text)) == text
    found = evaluate_devices(module, [[a] for a in arrays], replicas=len(arrays))
    per_device = [device.values for device in found]
    if xla:
        PROGRAMS.append((Program(text, [[a] for a in arrays], replicas=len(arrays)), per_device))
    return per_device


def _check(build: Build, values: Any, expected: Sequence[Any], **more: Any) -> None:
    found = _run(build, values, **more)
    for (actual,), wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, np.asarray(wanted).astype(actual.dtype), strict=True)


TWO = [[1.0, 2.5], [3.0, 5.25]]
FOUR = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0], [1000.0, 2000.0]]


def test_all_gather_of_two_replicas() -> None:
    _check(lambda b, x: b.AllGather(x, 0, 2), TWO, [[1.0, 2.5, 3.0, 5.25]] * 2)


def test_all_gather_in_groups() -> None:
    even, odd = [1, 2, 100, 200], [10, 20, 1000, 2000]
    _check(lambda b, x: b.AllGather(x, 0, 2, [[0, 2], [1, 3]]), FOUR, [even, odd, even, odd])


def test_all_reduce_of_two_replicas() -> None:
    _check(lambda b, x: b.AllReduce(x, scalar_computation("Add")), TWO, [[4.0, 7.75]] * 2)


def test_all_reduce_in_groups() -> None:
    even, odd = [101, 202], [1010, 2020]
    _check(lambda b, x: b.AllReduce(x, scalar_computation("Add"), [[0, 2], [1, 3]]), FOUR, [even, odd, even, odd])


def test_all_reduce_of_a_tuple() -> None:
    found = _run(lambda b, x: b.AllReduce(b.Tuple([x, b.Neg(x)]), scalar_computation("Add")), TWO)
    for one, other in found:
        np.testing.assert_array_equal(one, [4.0, 7.75])
        np.testing.assert_array_equal(other, [-4.0, -7.75])


def test_all_reduce_that_one_replica_runs_more_often_waits_forever() -> None:
    """The number of iterations depends on the infeed."""
    scalar = sl.make_shape("f32", [])
    b = sl.XlaBuilder("condition")
    condition = b.Build(b.Gt(b.Parameter(0, scalar, "p"), b.ConstantR0(0.0)))
    b = sl.XlaBuilder("body")
    total = b.AllReduce(b.Parameter(0, scalar, "p"), scalar_computation("Add"))
    body = b.Build(b.Sub(b.Infeed(scalar), b.Mul(total, b.ConstantR0(0.0))))
    b = sl.XlaBuilder("loop")
    module = b.Build(b.While(condition, body, b.ConstantR0(1.0))).module()
    hosts = [Host(infeed=[np.array(v, np.float32) for v in items]) for items in ([1.0, 0.0], [1.0, 1.0, 0.0])]
    with pytest.raises(HloError, match="deadlock"):
        evaluate_devices(module, [[], []], replicas=2, hosts=hosts)


def test_all_to_all_of_four_cores() -> None:
    b = sl.XlaBuilder("alltoall")
    x = sl.ops.Parameter(b, 0, sl.ShapeUtil.MakeShape(sl.F32, [4, 16]), "x")
    root = sl.ops.AllToAll(x, split_dimension=1, concat_dimension=0, split_count=4)
    assert str(b.GetShape(root)) == "f32[16,4]"
    values = np.arange(4 * 64, dtype=np.float32).reshape(4, 4, 16)
    expected = [np.concatenate([v[:, 4 * core : 4 * core + 4] for v in values]) for core in range(4)]
    # XLA's CPU backend wants the groups written out.
    _check(lambda b, x: b.AllToAll(x, 1, 0, 4), values, expected, xla=False)
    _check(lambda b, x: b.AllToAll(x, 1, 0, 4, [[0, 1, 2, 3]]), values, expected)


def test_all_to_all_in_groups_of_any_order() -> None:
    groups = [[1, 2, 3], [4, 5, 0]]
    values = np.arange(6 * 3).reshape(6, 3)
    expected: list[Any] = [None] * 6
    for group in groups:
        for place, device in enumerate(group):
            expected[device] = [values[source, place] for source in group]
    _check(lambda b, x: b.AllToAll(x, 0, 0, 3, groups), values, expected)


def test_collective_permute_leaves_zeros_where_nothing_arrives() -> None:
    _check(lambda b, x: b.CollectivePermute(x, [(0, 1), (1, 2), (3, 0)]), FOUR, [FOUR[3], FOUR[0], FOUR[1], [0, 0]])


@pytest.mark.parametrize("pairs", [[(0, 1), (2, 1)], [(0, 1), (0, 2)]])
def test_collective_permute_refuses_two_pairs_of_one_source_or_target(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(HloError):
        _run(lambda b, x: b.CollectivePermute(x, pairs), FOUR, xla=False)


def test_cross_replica_sum_of_two_replicas() -> None:
    _check(lambda b, x: b.CrossReplicaSum(x), TWO, [[4.0, 7.75]] * 2)


def test_cross_replica_sum_of_other_values() -> None:
    values = [[1.0, 2.5], [3.0, 5.1]]
    for (found,) in _run(lambda b, x: b.CrossReplicaSum(x), values):
        np.testing.assert_allclose(found, [4.0, 7.6], rtol=1e-6)


def test_reduce_scatter_of_two_replicas() -> None:
    _check(lambda b, x: b.ReduceScatter(x, scalar_computation("Add"), 0, 2), [[1.0, 2.25], [3.0, 5.25]], [[4.0], [7.5]])


def test_reduce_scatter_in_groups() -> None:
    _check(
        lambda b, x: b.ReduceScatter(x, scalar_computation("Add"), 0, 2, [[0, 2], [1, 3]]),
        FOUR,
        [[101], [1010], [202], [2020]],
    )


def test_replica_id_differs_on_each_replica() -> None:
    found = _run(lambda b, x: b.Tuple([b.ReplicaId(), x]), FOUR)
    assert [int(number) for number, _ in found] == [0, 1, 2, 3]
    assert all(number.dtype == np.uint32 for number, _ in found)


SEND_RECV = """HloModule channel, num_partitions=2

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %start = token[] after-all()
  %recv = (f32[2]{0}, u32[], token[]) recv(%start), channel_id=1, frontend_attributes={PAIRS}
  %send = (f32[2]{0}, u32[], token[]) send(%x, %start), channel_id=1, control-predecessors={%recv}, frontend_attributes={PAIRS}
  %recv-done = (f32[2]{0}, token[]) recv-done(%recv), channel_id=1, control-predecessors={%send}
  %send-done = token[] send-done(%send), channel_id=1, control-predecessors={%recv-done}
  ROOT %data = f32[2]{0} get-tuple-element(%recv-done), index=0
}
"""  # noqa: E501
PAIRS = '_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"'


def test_recv_send_recv_done_send_done_in_order() -> None:
    module = parse_hlo(SEND_RECV.replace("PAIRS", PAIRS))
    verify(module)
    found = evaluate_devices(module, [[np.array(v, np.float32)] for v in TWO])
    for device, wanted in zip(found, reversed(TWO), strict=True):
        np.testing.assert_array_equal(device.values[0], wanted)


def test_recv_done_before_send_is_a_deadlock() -> None:
    """Each waits for the other's data before it sends its own."""
    text = SEND_RECV.replace("PAIRS", PAIRS)
    lines = text.splitlines()
    send = next(n for n, line in enumerate(lines) if " send(" in line)
    done = next(n for n, line in enumerate(lines) if " recv-done(" in line)
    lines[send], lines[done] = lines[done], lines[send]
    text = "\n".join(lines).replace(", control-predecessors={%send}", "").replace("{%recv}", "{%recv-done}")
    module = parse_hlo(text)
    verify(module)
    with pytest.raises(HloError, match="deadlock"):
        evaluate_devices(module, [[np.array(v, np.float32)] for v in TWO])


def test_send_and_recv_share_a_channel_handle() -> None:
    """The client's calls, each of which is two instructions."""
    b = sl.XlaBuilder("send_recv")
    x = b.Parameter(0, sl.make_shape("f32", [2]), "x")
    channel = sl.ChannelHandle(1)
    b.Send(x, channel)
    received = b.Recv(sl.make_shape("f32", [2]), channel)
    module = b.Build(received).module()
    verify(module)
    opcodes = [i.opcode for i in module.entry.instructions]
    assert all(opcodes.count(name) == 1 for name in ("send", "send-done", "recv", "recv-done"))
    recv = next(i for i in module.entry.instructions if i.opcode == "recv")
    assert str(recv.shape) == "(f32[2], u32[], token[])"
