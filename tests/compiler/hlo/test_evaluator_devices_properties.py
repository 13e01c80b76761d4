"""Collectives on any grid of devices, groups, sizes and types, against their definitions in plain numpy."""

from dataclasses import dataclass
from functools import reduce

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, evaluate_devices, parse_hlo, verify
from tests.compiler.hlo.device_oracle import Array

TYPES = {
    "f32": np.float32, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "u32": np.uint32, "s4": ml_dtypes.int4,
    "pred": np.bool_, "c64": np.complex64, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Devices, groups of them, and the attributes that say so.

    Attributes:
        members: for each device, its group in order.
    """

    replicas: int
    partitions: int
    attributes: str
    members: list[list[int]]

    @property
    def count(self) -> int:
        return self.replicas * self.partitions

    @property
    def size(self) -> int:
        return len(self.members[0])


@st.composite
def grids(draw: st.DrawFn, with_global_ids: bool = True) -> Grid:
    replicas, partitions = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    modes = ["replica", "both", "flat"] if with_global_ids else ["replica", "partition"]
    mode = draw(st.sampled_from(modes))
    ids = {"replica": replicas, "both": replicas, "partition": partitions, "flat": replicas * partitions}[mode]
    order = draw(st.permutations(range(ids)))
    size = draw(st.sampled_from([n for n in range(1, ids + 1) if ids % n == 0]))
    groups = [order[k : k + size] for k in range(0, ids, size)]
    text = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
    if mode != "flat" and draw(st.booleans()):
        groups, text = [list(range(ids))], "{}"
    attributes = {"replica": "", "flat": ", channel_id=1, use_global_device_ids=true"}.get(mode, ", channel_id=1")
    members = []
    for device in range(replicas * partitions):
        r, p = divmod(device, partitions)
        (group,) = [g for g in groups if {"partition": p, "flat": device}.get(mode, r) in g]
        members.append(
            {
                "replica": [k * partitions + p for k in group],
                "partition": [r * partitions + k for k in group],
                "both": [k * partitions + q for k in group for q in range(partitions)],
                "flat": list(group),
            }[mode]
        )
    return Grid(replicas, partitions, f"replica_groups={text}{attributes}", members)


@st.composite
def arrays(draw: st.DrawFn, count: int, sizes: list[int], dtype: str) -> list[Array]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return [rng.integers(0, 4, sizes).astype(TYPES[dtype]) for _ in range(count)]


def evaluated(root: str, result: str, grid: Grid, operands: list[list[Array]], shapes: list[str]) -> list[list[Array]]:
    """Every device's results of one instruction on `x0`, `x1`, ...; `apply` is a * b + a."""
    scalar = shapes[0].split("[")[0] + "[]"
    lines = "\n".join(f"  x{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    module = parse_hlo(f"""HloModule m
apply {{
  a = {scalar} parameter(0)
  b = {scalar} parameter(1)
  m = {scalar} multiply(a, b)
  ROOT c = {scalar} add(m, a)
}}
ENTRY e {{
{lines}
  ROOT r = {result} {root}
}}
""")
    verify(module)
    results = evaluate_devices(module, operands, replicas=grid.replicas, partitions=grid.partitions)
    return [r.values for r in results]


def text(dtype: str, sizes: list[int]) -> str:
    return f"{dtype}[{','.join(map(str, sizes))}]"


ANY_SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@given(st.data(), grids(), ANY_SIZES, st.sampled_from(list(TYPES)))
def test_all_gather(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    xs = data.draw(arrays(grid.count, sizes, dtype))
    axis = data.draw(st.integers(0, len(sizes) - 1))
    whole = [n * grid.size if d == axis else n for d, n in enumerate(sizes)]
    root = f"all-gather(x0), {grid.attributes}, dimensions={{{axis}}}"
    found = evaluated(root, text(dtype, whole), grid, [[x] for x in xs], [text(dtype, sizes)])
    for device, (result,) in enumerate(found):
        np.testing.assert_array_equal(result, np.concatenate([xs[m] for m in grid.members[device]], axis))


def step(a: Array, b: Array) -> Array:
    return a * b + a


@given(st.data(), grids(), ANY_SIZES, st.sampled_from(["s8", "u32", "f32"]))
def test_all_reduce_by_any_computation(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    xs, ys = (data.draw(arrays(grid.count, sizes, dtype)) for _ in range(2))
    shape = text(dtype, sizes)
    root = f"all-reduce(x0, x1), {grid.attributes}, to_apply=apply"
    found = evaluated(root, f"({shape}, {shape})", grid, [[x, y] for x, y in zip(xs, ys, strict=True)], [shape] * 2)
    for device, results in enumerate(found):
        for result, operands in zip(results, (xs, ys), strict=True):
            np.testing.assert_array_equal(result, reduce(step, [operands[m] for m in grid.members[device]]))


@given(st.data(), grids(), ANY_SIZES, st.sampled_from(["s8", "u32", "f32"]))
def test_reduce_scatter(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    axis = data.draw(st.integers(0, len(sizes) - 1))
    sizes[axis] = max(sizes[axis], 1)
    whole = [n * grid.size if d == axis else n for d, n in enumerate(sizes)]
    xs = data.draw(arrays(grid.count, whole, dtype))
    root = f"reduce-scatter(x0), {grid.attributes}, dimensions={{{axis}}}, to_apply=apply"
    found = evaluated(root, text(dtype, sizes), grid, [[x] for x in xs], [text(dtype, whole)])
    for device, (result,) in enumerate(found):
        group = grid.members[device]
        full = reduce(step, [xs[m] for m in group])
        np.testing.assert_array_equal(result, np.split(full, len(group), axis)[group.index(device)])


@given(st.data(), grids(with_global_ids=False), ANY_SIZES, st.sampled_from(list(TYPES)))
def test_all_to_all_of_one_array(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    axis = data.draw(st.integers(0, len(sizes) - 1))
    sizes[axis] *= grid.size
    xs = data.draw(arrays(grid.count, sizes, dtype))
    root = f"all-to-all(x0), {grid.attributes}, dimensions={{{axis}}}"
    found = evaluated(root, text(dtype, sizes), grid, [[x] for x in xs], [text(dtype, sizes)])
    for device, (result,) in enumerate(found):
        group = grid.members[device]
        place = group.index(device)
        pieces = [np.split(xs[m], len(group), axis)[place] for m in group]
        np.testing.assert_array_equal(result, np.concatenate(pieces, axis))


@given(st.data(), grids(with_global_ids=False), ANY_SIZES, st.sampled_from(list(TYPES)))
def test_all_to_all_of_a_tuple(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    xs = [data.draw(arrays(grid.size, sizes, dtype)) for _ in range(grid.count)]
    shape = text(dtype, sizes)
    names = ", ".join(f"x{n}" for n in range(grid.size))
    result = "(" + ", ".join([shape] * grid.size) + ")"
    found = evaluated(f"all-to-all({names}), {grid.attributes}", result, grid, xs, [shape] * grid.size)
    for device, results in enumerate(found):
        group = grid.members[device]
        for result_, member in zip(results, group, strict=True):
            np.testing.assert_array_equal(result_, xs[member][group.index(device)])


@given(st.data(), grids(with_global_ids=False), ANY_SIZES, st.sampled_from(list(TYPES)))
def test_collective_broadcast(data: st.DataObject, grid: Grid, sizes: list[int], dtype: str) -> None:
    xs = data.draw(arrays(grid.count, sizes, dtype))
    root, shape = f"collective-broadcast(x0), {grid.attributes}", text(dtype, sizes)
    for device, (result,) in enumerate(evaluated(root, shape, grid, [[x] for x in xs], [shape])):
        np.testing.assert_array_equal(result, xs[grid.members[device][0]])


@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.sampled_from(list(TYPES)))
def test_collective_permute(data: st.DataObject, replicas: int, partitions: int, channel: bool, dtype: str) -> None:
    ids = partitions if channel else replicas
    sources = data.draw(st.permutations(range(ids)))
    pairs = list(zip(sources, data.draw(st.permutations(range(ids))), strict=True))[: data.draw(st.integers(0, ids))]
    grid = Grid(replicas, partitions, "", [])
    xs = data.draw(arrays(grid.count, [3], dtype))
    listed = ",".join(f"{{{s},{t}}}" for s, t in pairs)
    root = f"collective-permute(x0), source_target_pairs={{{listed}}}" + ", channel_id=1" * channel
    shape = text(dtype, [3])
    for device, (result,) in enumerate(evaluated(root, shape, grid, [[x] for x in xs], [shape])):
        r, p = divmod(device, partitions)
        senders = [s for s, t in pairs if t == (p if channel else r)]
        expected = [xs[r * partitions + s if channel else s * partitions + p] for s in senders]
        np.testing.assert_array_equal(result, expected[0] if expected else np.zeros_like(xs[0]))


@given(st.data(), grids(with_global_ids=False), st.integers(1, 2))
def test_ragged_all_to_all(data: st.DataObject, grid: Grid, each: int) -> None:
    """Each device sends `each` slices to each of its group; the receiver has a row of its own for every row sent."""
    n = grid.size
    sizes = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=grid.count * n * each, max_size=grid.count * n * each))
    )
    sizes = sizes.reshape(grid.count, n, each)  # sender, place of the receiver in the group, slice
    rows = 2 * n * each
    inputs = data.draw(arrays(grid.count, [rows, 2], "f32"))
    starts = np.array([[data.draw(st.integers(0, rows - 2)) for _ in range(n * each)] for _ in range(grid.count)])
    targets = np.zeros_like(sizes)
    expected = [np.full((rows, 2), -1, np.float32) for _ in range(grid.count)]
    for device, group in enumerate(grid.members):
        row = 0
        for sender in group:
            for k in range(each):
                place = group.index(device)
                start, size = starts[sender].reshape(n, each)[place, k], sizes[sender, place, k]
                targets[sender, place, k] = row
                expected[device][row : row + size] = inputs[sender][start : start + size]
                row += size
    operands = []
    for device, group in enumerate(grid.members):
        received = [sizes[m, group.index(device)] for m in group]
        lists = [starts[device], sizes[device], targets[device], np.array(received)]
        blank = np.full((rows, 2), -1, np.float32)
        operands.append([inputs[device], blank, *(np.asarray(x).reshape(-1).astype(np.int32) for x in lists)])
    shape, numbers = f"f32[{rows},2]", f"s32[{n * each}]"
    root = f"ragged-all-to-all(x0, x1, x2, x3, x4, x5), {grid.attributes}"
    found = evaluated(root, shape, grid, operands, [shape] * 2 + [numbers] * 4)
    for device, (result,) in enumerate(found):
        np.testing.assert_array_equal(result, expected[device])


def test_ragged_all_to_all_of_jax_s_documentation() -> None:
    """The example under `jax.lax.ragged_all_to_all`."""
    rows = [
        [[1, 2, 2], [0, 0, 0, 0], [0, 1], [1, 2], [0, 0], [1, 1]],
        [[3, 4, 0], [0, 0, 0, 0], [0, 1], [1, 1], [1, 2], [2, 1]],
    ]
    operands = [[np.array(x, np.int32) for x in row] for row in rows]
    shapes = ["s32[3]", "s32[4]", *["s32[2]"] * 4]
    root = "ragged-all-to-all(x0, x1, x2, x3, x4, x5), replica_groups={{0,1}}"
    found = evaluated(root, "s32[4]", Grid(2, 1, "", []), operands, shapes)
    assert [r.tolist() for (r,) in found] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def taking_turns(groups: list[str]) -> str:
    """Each step is an all-reduce in its groups for the devices whose bit of the parameter is set."""
    branches, steps = [], []
    for n, group in enumerate(groups):
        branches.append(f"""
step{n} {{ x = s32[] parameter(0) ROOT r = s32[] all-reduce(x), replica_groups={group}, to_apply=add }}""")
        steps.append(f"""
  p{n} = s32[] parameter({n})
  x{n + 1} = s32[] conditional(p{n}, x{n}, x{n}), branch_computations={{skip, step{n}}}""")
    return f"""HloModule m
add {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }}
skip {{ ROOT x = s32[] parameter(0) }}
{"".join(branches)}
ENTRY e {{
  x0 = s32[] constant(1)
{"".join(steps)}
  ROOT r = s32[] negate(x{len(groups)})
}}
"""


GROUPINGS = ["{}", "{{0,1},{2,3}}", "{{0,2},{3,1}}", "{{0},{1,2,3}}", "{{0},{1},{2},{3}}"]


@given(st.data(), st.lists(st.sampled_from(GROUPINGS), min_size=1, max_size=4))
def test_devices_meet_or_the_deadlock_is_told(data: st.DataObject, groups: list[str]) -> None:
    some = st.lists(st.booleans(), min_size=4, max_size=4)
    taken = [data.draw(st.one_of(some, st.just([True] * 4))) for _ in groups]
    lists = [
        [[int(n) for n in group.split(",")] for group in text.strip("{}").split("},{") if group] or [[0, 1, 2, 3]]
        for text in groups
    ]
    meets = all(len({bits[m] for m in group}) == 1 for bits, step in zip(taken, lists, strict=True) for group in step)
    values = [1] * 4
    for bits, step in zip(taken, lists, strict=True):
        sums = {m: sum(values[k] for k in group) for group in step for m in group}
        values = [sums[d] if bits[d] else values[d] for d in range(4)]
    module = parse_hlo(taking_turns(groups))
    verify(module)
    arguments = [[np.array(bits[d], np.int32) for bits in taken] for d in range(4)]
    if meets:
        assert [-int(r.values[0]) for r in evaluate_devices(module, arguments, replicas=4)] == values
    else:
        with pytest.raises(HloError, match=r"all-reduce 'r' .*: deadlock: device.* wait"):
            evaluate_devices(module, arguments, replicas=4)
