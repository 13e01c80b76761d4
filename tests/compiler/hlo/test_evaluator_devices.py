"""Several devices: how they wait for each other, control flow, deadlocks and failures, and the interface."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, evaluate_devices, parse_hlo, verify
from systolith.compiler.hlo.values import devices
from systolith.compiler.hlo.values.devices import Topology
from systolith.compiler.hlo.values.evaluator import DeviceResult
from systolith.compiler.hlo.values.group_modes import grid
from tests.compiler.hlo.device_oracle import Array

ADD = "add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }\n"


def run(
    text: str, arguments: Sequence[Sequence[Array]], replicas: int | None = None, partitions: int | None = None
) -> list[DeviceResult]:
    module = parse_hlo(text, "m.hlo")
    verify(module)
    return evaluate_devices(module, arguments, replicas=replicas, partitions=partitions)


def first(results: list[DeviceResult]) -> list[int]:
    """The first result, a scalar, of every device."""
    return [int(r.values[0]) for r in results]


def numbers(count: int) -> list[list[Array]]:
    """A scalar s32 for every device: 1, 10, 100, ..."""
    return [[np.array(10**n, np.int32)] for n in range(count)]


def reduced(attributes: str) -> str:
    entry = f"ENTRY e {{ x = s32[] parameter(0) ROOT y = s32[] all-reduce(x), {attributes}, to_apply=add }}"
    return f"HloModule m\n{ADD}{entry}"


def test_devices_are_numbered_replica_by_replica() -> None:
    text = """HloModule m, replica_count=2, num_partitions=3
ENTRY e { r = u32[] replica-id() p = u32[] partition-id() ROOT t = (u32[], u32[]) tuple(r, p) }"""
    results = run(text, [[]] * 6)
    assert [[int(v) for v in r.values] for r in results] == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert [[int(v) for v in r.values] for r in run(text, [[]] * 2, 1, 2)] == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={}", [101, 1010, 101, 1010]),
        ("replica_groups={}, channel_id=1", [1111] * 4),
        ("replica_groups={{0},{1}}, channel_id=1", [11, 11, 1100, 1100]),
        ("replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true", [1001, 110, 110, 1001]),
        ("replica_groups={{0,1}}, mode=cross_partition", [11, 11, 1100, 1100]),
        ("replica_groups={{0,1}}, mode=cross_replica, channel_id=4", [101, 1010, 101, 1010]),
    ],
)
def test_modes_of_groups(attributes: str, expected: list[int]) -> None:
    assert first(run(reduced(attributes), numbers(4), 2, 2)) == expected


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("replica_groups={{0,4},{1,2}}", r"a group has the id 4, of 4 \(4 x 1 devices\)"),
        ("replica_groups={{0,1},{1,2}}", "device 1 is twice in the groups"),
        ("replica_groups={{0,1,0}}", "device 0 is twice in the groups"),
        ("replica_groups={{0,1}}", "device 2 is in none of the groups"),
        ("replica_groups={{0,1,2,3}}, use_global_device_ids=true", "needs a channel_id"),
    ],
)
def test_bad_groups(attributes: str, message: str) -> None:
    with pytest.raises(HloError, match=rf"m.hlo:3:\d+: all-reduce 'y' \(s32\[\]\): .*{message}"):
        evaluate_devices(parse_hlo(reduced(attributes), "m.hlo"), numbers(4), replicas=4)


def test_an_unknown_mode_of_groups() -> None:
    module = parse_hlo(reduced("replica_groups={}, mode=flattened_id"))
    module.entry.result.attributes["mode"] = "other"
    with pytest.raises(HloError, match=r"all-reduce 'y' .*: unknown mode 'other' of groups; known: cross_replica, "):
        evaluate_devices(module, numbers(2), replicas=2)


LOOP = f"""HloModule m
{ADD}
condition {{
  s = (s32[], s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(n, limit), direction=LT
}}
body {{
  s = (s32[], s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] get-tuple-element(s), index=1
  value = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  sum = s32[] all-reduce(value), replica_groups={{{{0,2}},{{1,3}}}}, to_apply=add
  ROOT t = (s32[], s32[], s32[]) tuple(next, limit, sum)
}}
ENTRY e {{
  limit = s32[] parameter(0)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  s = (s32[], s32[], s32[]) tuple(zero, limit, one)
  w = (s32[], s32[], s32[]) while(s), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=2
}}
"""


def trips(*counts: int) -> list[list[Array]]:
    return [[np.array(n, np.int32)] for n in counts]


def test_groups_go_through_loops_as_often_as_they_like() -> None:
    assert first(run(LOOP, trips(3, 5, 3, 5), 4)) == [8, 32, 8, 32]


def test_devices_that_do_not_agree_are_a_deadlock_and_not_a_hang() -> None:
    before = threading.active_count()
    with pytest.raises(HloError) as caught:
        run(LOOP, trips(3, 5, 4, 5), 4)
    assert str(caught.value) == (
        "m.hlo:17:3: all-reduce 'sum' (s32[]): deadlock: device 2 waits at all-reduce 'sum' for device 0; "
        "devices 0, 1, 3 have ended"
    )
    assert threading.active_count() == before


def test_a_deadlock_tells_who_waits_for_whom() -> None:
    text = f"""HloModule m
{ADD}
left {{ x = s32[] parameter(0) ROOT y = s32[] all-reduce(x), replica_groups={{}}, to_apply=add }}
right {{ x = s32[] parameter(0) ROOT z = s32[] collective-permute(x), source_target_pairs={{{{0,1}}}} }}
ENTRY e {{
  x = s32[] parameter(0)
  r = u32[] replica-id()
  i = s32[] convert(r)
  ROOT y = s32[] conditional(i, x, x), branch_computations={{left, right}}
}}"""
    with pytest.raises(HloError) as caught:
        run(text, numbers(2), 2)
    assert str(caught.value) == (
        "m.hlo:4:1: all-reduce 'y' (s32[]): deadlock: device 0 waits at all-reduce 'y' for device 1; "
        "device 1 waits at collective-permute 'z' for device 0"
    )


@pytest.mark.parametrize(("count", "listed"), [(9, "0, 1, 2, 3, 4, 5, 6, 7"), (10, "0, 1, 2, 3, 4, 5, 6, 7, ...")])
def test_a_deadlock_lists_eight_devices_at_most(count: int, listed: str) -> None:
    text = f"""HloModule m
{ADD}
left {{ x = s32[] parameter(0) ROOT y = s32[] all-reduce(x), replica_groups={{}}, to_apply=add }}
right {{ ROOT x = s32[] parameter(0) }}
ENTRY e {{
  x = s32[] parameter(0)
  ROOT y = s32[] conditional(x, x, x), branch_computations={{left, right}}
}}"""
    with pytest.raises(HloError) as caught:
        run(text, trips(*[0] * (count - 1), 1), count)
    assert f"deadlock: devices {listed} wait at all-reduce 'y' for device {count - 1};" in str(caught.value)


def test_one_channel_is_one_operation_whichever_instruction_runs_it() -> None:
    text = f"""HloModule m
{ADD}
left {{ x = s32[] parameter(0) ROOT y = s32[] all-reduce(x), replica_groups={{}}, channel_id=1, to_apply=add }}
right {{ x = s32[] parameter(0) ROOT z = s32[] all-reduce(x), replica_groups={{}}, channel_id=1, to_apply=add }}
ENTRY e {{
  x = s32[] parameter(0)
  r = u32[] replica-id()
  i = s32[] convert(r)
  ROOT y = s32[] conditional(i, x, x), branch_computations={{left, right}}
}}"""
    assert first(run(text, numbers(2), 2)) == [11, 11]


def test_when_one_device_fails_the_others_are_released() -> None:
    before = threading.active_count()
    text = f"""HloModule m
{ADD}
work {{ x = s32[] parameter(0) ROOT y = s32[] all-reduce(x), replica_groups={{}}, to_apply=add }}
fail {{ x = s32[] parameter(0) ROOT y = s32[] custom-call(x), custom_call_target="nothing" }}
ENTRY e {{
  x = s32[] parameter(0)
  r = u32[] replica-id()
  two = u32[] constant(2)
  p = pred[] compare(r, two), direction=EQ
  ROOT y = s32[] conditional(p, x, x), true_computation=fail, false_computation=work
}}"""
    with pytest.raises(HloError, match=r"m.hlo:5:1: custom-call 'y'.*no custom-call target 'nothing'"):
        run(text, numbers(4), 4)
    assert threading.active_count() == before


def test_members_bring_operands_of_the_same_sizes() -> None:
    text = """HloModule m
left { x = s32[] parameter(0) b = s32[2] broadcast(x), dimensions={}
  g = s32[4] all-gather(b), replica_groups={}, channel_id=1, dimensions={0} ROOT y = s32[1] slice(g), slice={[0:1]} }
right { x = s32[] parameter(0) b = s32[3] broadcast(x), dimensions={}
  g = s32[6] all-gather(b), replica_groups={}, channel_id=1, dimensions={0} ROOT y = s32[1] slice(g), slice={[0:1]} }
ENTRY e {
  x = s32[] parameter(0)
  r = u32[] replica-id()
  i = s32[] convert(r)
  ROOT y = s32[1] conditional(i, x, x), branch_computations={left, right}
}"""
    with pytest.raises(HloError, match=r"all-gather 'g' .*: device . brings operands of other sizes"):
        run(text, numbers(2), 2)


def test_results_and_errors_do_not_depend_on_timing() -> None:
    runs = [first(run(LOOP, trips(7, 2, 7, 2), 4)) for _ in range(20)]
    assert all(r == runs[0] for r in runs)


def test_one_device_alone_meets_itself() -> None:
    assert first(run(reduced("replica_groups={{0}}"), numbers(1))) == [1]
    (alone,) = evaluate(parse_hlo(reduced("replica_groups={}")), np.array(5, np.int32))
    assert alone == 5
    with pytest.raises(HloError, match=r"a group has the id 1, of 1 \(1 x 1 devices\); give as many devices"):
        evaluate(parse_hlo(reduced("replica_groups={{0,1}}")), np.array(5, np.int32))


def test_the_interface_checks_what_it_is_given() -> None:
    module = parse_hlo(reduced("replica_groups={}"))
    with pytest.raises(HloError, match="'m' runs on 2 x 2 devices, got arguments for 3"):
        evaluate_devices(module, numbers(3), replicas=2, partitions=2)
    with pytest.raises(HloError, match="argument 0 of 'm': expected"):
        evaluate_devices(module, [[np.zeros(2, np.int32)]] * 2, replicas=2)
    with pytest.raises(HloError, match="replicas and partitions are 1 or more, got 0 x 1"):
        Topology(0, 1)


@pytest.mark.parametrize(
    ("header", "attributes", "expected"),
    [
        ("", "replica_groups={}", (1, 1)),
        ("", "replica_groups={{0,2},{1,3}}", (4, 1)),
        ("", "replica_groups={{0,1}}, channel_id=1", (2, 1)),
        ("", "replica_groups=[2,4]<=[8], channel_id=1, use_global_device_ids=true", (1, 8)),
        (", replica_count=2", "replica_groups=[2,4]<=[8], channel_id=1, use_global_device_ids=true", (2, 4)),
        (", num_partitions=2", "replica_groups=[2,4]<=[8], channel_id=1, use_global_device_ids=true", (4, 2)),
        (", replica_count=3, num_partitions=5", "replica_groups={}", (3, 5)),
    ],
)
def test_the_grid_of_a_module(header: str, attributes: str, expected: tuple[int, int]) -> None:
    module = parse_hlo(reduced(attributes).replace("HloModule m", f"HloModule m{header}"))
    assert grid(module) == Topology(*expected)
    assert grid(module, 7, 3) == Topology(7, 3)


ADD_F32 = ADD.replace("s32", "f32")
GATHERED = "p = f32[2] parameter(0)\n ROOT g = f32[8] all-gather(p), dimensions={0}"


@pytest.mark.parametrize(
    ("header", "lines", "expected"),
    [
        ("", GATHERED, (4, 1)),
        ("", GATHERED + ", replica_groups={}, channel_id=1", (1, 4)),
        (", num_partitions=2", GATHERED + ", channel_id=1", (2, 2)),
        ("", "p = f32[6] parameter(0)\n ROOT r = f32[2] reduce-scatter(p), dimensions={0}, to_apply=add", (3, 1)),
        ("", "p = f32[6] parameter(0)\n ROOT a = (f32[6], f32[6]) all-to-all(p, p)", (2, 1)),
        ("", "p = f32[0] parameter(0)\n ROOT g = f32[0] all-gather(p), dimensions={0}", (1, 1)),
    ],
)
def test_a_group_of_all_devices_has_as_many_as_shapes_say(header: str, lines: str, expected: tuple[int, int]) -> None:
    module = parse_hlo(f"HloModule m{header}\n{ADD_F32}\nENTRY e {{\n {lines}\n}}")
    verify(module)
    topology = grid(module)
    assert topology == Topology(*expected)
    size = module.entry.parameters[0].shape.size
    every = evaluate_devices(module, [[np.full(size, n, np.float32)] for n in range(topology.count)])
    (leaf, *_) = module.entry.result.shape.leaves()
    assert [x.shape for x in every[-1].values[:1]] == [leaf.dims]
    if topology.count > 1:
        with pytest.raises(HloError, match=f"the shapes say that a group has {topology.count} devices, it has 1"):
            evaluate(module, np.zeros(size, np.float32))


IN_PLACE = """HloModule m
ENTRY e {
  r = u32[] replica-id()
  a = u32[2,3] broadcast(r), dimensions={}
  rows = u32[2,3] iota(), iota_dimension=0
  ten = u32[] constant(10)
  tens = u32[2,3] broadcast(ten), dimensions={}
  b = u32[2,3] multiply(a, tens)
  x = u32[2,3] add(b, rows)
  k = u32[] constant(99)
  y = u32[2,3] broadcast(k), dimensions={}
  zero = s32[] constant(0)
  one = s32[] constant(1)
  first = (s32[], s32[]) tuple(zero, zero)
  second = (s32[], s32[]) tuple(one, one)
  from = ((s32[], s32[]), (s32[], s32[])) tuple(first, second)
  to = ((s32[], s32[]), (s32[], s32[])) tuple(second, first)
  many = u32[2,3] collective-permute(x, y, from, to),
    source_target_pairs={{0,1},{1,2},{2,0},{0,2},{2,1},{1,0}}, slice_sizes={{1,2},{1,2}}
  s = (u32[2,3], u32[2,3], u32[], u32[]) collective-permute-start(x, y, first, second),
    source_target_pairs={{0,1}}, slice_sizes={{1,2}}
  single = u32[2,3] collective-permute-done(s)
  xs = (u32[2,3], u32[2,3]) tuple(x, y)
  ys = (u32[2,3], u32[2,3]) tuple(y, x)
  at = ((s32[], s32[]), (s32[], s32[])) tuple(first, second)
  both = (u32[2,3], u32[2,3]) collective-permute(xs, ys, at, at),
    source_target_pairs={{0,1}}, slice_sizes={{2,1},{1,1}}
  ROOT t = (u32[2,3], u32[2,3], (u32[2,3], u32[2,3])) tuple(many, single, both)
}"""


def test_a_permutation_of_slices_in_place() -> None:
    results = [[v.tolist() for v in r.values] for r in run(IN_PLACE, [[]] * 3, 3)]
    # Pairs of device 1 as a target: 0 (its first, row 0) to [1, 1:], then 2 (its second, row 1) to [0, :2].
    assert [r[0] for r in results] == [
        [[11, 11, 99], [99, 20, 20]],
        [[21, 21, 99], [99, 0, 0]],
        [[1, 1, 99], [99, 10, 10]],
    ]
    assert results[1][1] == [[99, 99, 99], [99, 0, 0]]
    assert results[0][1] == results[2][1] == [[99] * 3] * 2
    assert results[1][2:] == [[[0, 99, 99], [1, 99, 99]], [[10, 10, 10], [11, 99, 11]]]
    assert results[2][2:] == [[[99] * 3] * 2, [[20] * 3, [21] * 3]]
    outside = IN_PLACE.replace("slice_sizes={{1,2}}", "slice_sizes={{1,3}}")
    with pytest.raises(
        HloError, match=r"collective-permute-start 's'.*a slice of \[1, 3\] at \[1, 1\] is outside of \[2, 3\]"
    ):
        run(outside, [[]] * 3, 3)


def manual(sharding: str, local: str) -> str:
    """Cuts s32[8,4] into pieces, adds 100 * partition to them, and puts them together, each a shard_map of its own."""
    how = ', frontend_attributes={xla.sdy.%s_shardings="#sdy.sharding_per_value<[<@m, [%s]>]>",%s}'
    axes = r'xla.sdy.manual_axes="#sdy<manual_axes{\"a\", \"b\"}>"'
    cut, whole = (how % (way, sharding.replace('"', r"\""), axes) for way in ("in", "out"))
    return f"""HloModule m, frontend_attributes={{xla.sdy.meshes={{m = #sdy.mesh<["a"=4, "b"=2, "c"=1]>}}}}
ENTRY e {{
  x = s32[8,4] parameter(0)
  piece = {local} custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape"{cut}
  p = u32[] partition-id()
  n = s32[] convert(p)
  hundred = s32[] constant(100)
  m = s32[] multiply(n, hundred)
  ms = {local} broadcast(m), dimensions={{}}
  sum = {local} add(piece, ms)
  whole = s32[8,4] custom-call(sum), custom_call_target="xla.sdy.LocalToGlobalShape"{whole}
  ROOT t = ({local}, s32[8,4]) tuple(piece, whole)
}}"""


def test_pieces_by_parts_of_axes() -> None:
    """Partition = 4 major (2 x 2) and b minor; rows are cut by the minor half of a, columns by b and the major half."""
    x = np.arange(32, dtype=np.int32).reshape(8, 4)
    results = run(manual('{"a":(2)2}, {"b", "a":(1)2}', "s32[4,1]"), [[x]] * 8, 1, 8)
    whole = np.zeros_like(x)
    for partition, device in enumerate(results):
        a, b = divmod(partition, 2)
        row, column = a % 2, 2 * b + a // 2
        np.testing.assert_array_equal(device.values[0], x[4 * row : 4 * row + 4, column : column + 1])
        whole[4 * row : 4 * row + 4, column] = x[4 * row : 4 * row + 4, column] + 100 * partition
    for device in results:
        np.testing.assert_array_equal(device.values[1], whole)


def test_axes_that_are_not_manual_cut_nothing() -> None:
    x = np.arange(32, dtype=np.int32).reshape(8, 4)
    text = manual('{"a", "b"}, {}', "s32[2,4]").replace(r'{\"a\", \"b\"}>"', r'{\"a\"}>"')
    for partition, device in enumerate(run(text, [[x]] * 8, 1, 8)):
        np.testing.assert_array_equal(device.values[0], x[partition // 2 * 2 :][:2])


@pytest.mark.parametrize(
    ("sharding", "local", "partitions", "message"),
    [
        ('{"a", "b"}, {}', "s32[1,4]", 4, r"the sharding is for 8 partitions; the run has 1 x 4 devices"),
        ('{"a"}, {}', "s32[1,4]", 8, r"\[4, 1\] pieces of \[1, 4\] do not make \[8, 4\]"),
        ('{"d"}, {}', "s32[1,4]", 8, "the mesh has no axis 'd'; it has a, b, c"),
    ],
)
def test_shardings_that_do_not_fit(sharding: str, local: str, partitions: int, message: str) -> None:
    x = np.zeros((8, 4), np.int32)
    with pytest.raises(HloError, match=rf"custom-call 'piece' .*: {message}"):
        run(manual(sharding, local), [[x]] * partitions, 1, partitions)


def test_as_many_devices_as_are_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_DEVICES", 3)
    assert first(run(reduced("replica_groups={}"), numbers(3), 3)) == [111] * 3
    with pytest.raises(HloError, match="4 devices; at most 3 are supported"):
        run(reduced("replica_groups={}"), numbers(4), 4)


def test_threads_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start, before = threading.Thread.start, threading.active_count()

    def fail_at_the_third(thread: threading.Thread) -> None:
        if threading.active_count() > before + 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_at_the_third)
    with pytest.raises(HloError, match="cannot run 4 devices: can't start new thread"):
        run(reduced("replica_groups={}"), numbers(4), 4)
    assert threading.active_count() == before
    with pytest.raises(HloError, match="5000 devices; at most 4096 are supported"):
        run(reduced("replica_groups={}"), [numbers(1)[0]] * 5000, 5000)


def test_many_devices() -> None:
    count = 256
    arguments = [[np.array(n, np.int32)] for n in range(count)]
    assert first(run(reduced("replica_groups=[16,16]<=[256]"), arguments, count)) == [
        sum(range(n // 16 * 16, n // 16 * 16 + 16)) for n in range(count)
    ]
