"""Device groups and shardings in text: their values, spelled in every way, and XLA's own for iotas."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, parse_hlo, print_hlo
from systolith.compiler.hlo.attributes import Alias, DeviceGroups, Sharding, TupleSharding
from systolith.compiler.hlo.device_groups import MAX_DEVICES, Axis, Iota, Mesh, MeshGroups
from systolith.compiler.hlo.sharding import DimSharding, NamedSharding


def groups(text: str) -> DeviceGroups:
    line = f"x = f32[8] parameter(0) ROOT y = f32[8] all-to-all(x), replica_groups={text}"
    module = parse_hlo(f"HloModule m\nENTRY e {{ {line} }}")
    assert f"replica_groups={text}\n" in print_hlo(module)
    value = module.entry.result.attributes["replica_groups"]
    assert isinstance(value, DeviceGroups)
    return value


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("{}", ()),
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{{0},{1,2}}", ((0,), (1, 2))),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=4] {'y'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=2] {'x','y'}", ((0, 1, 2, 3),)),
        ("mesh['x'=2,'y'=2] {'y','x'}", ((0, 2, 1, 3),)),
        ("mesh['x'=2,'y'=4] {'y':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['x'=2,'y'=4] {'y':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=8] {'x':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'x'}", ((3, 1), (2, 0))),
        ("mesh[x=2,y=4] {y:(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),  # as older versions of XLA print it
    ],
)
def test_groups(text: str, lists: tuple[tuple[int, ...], ...]) -> None:
    assert groups(text).lists == lists


@pytest.mark.parametrize(
    "text",
    [
        "[3,3]<=[8]",
        "[2,2]<=[-2,-2]T(1,0)",
        "[1000000,1000000]<=[1000000000000]",
        "mesh['x'=1000000,'y'=1000000] {'x'}",
        "mesh['x'=8] {'x':(3)2}",
        "mesh['x'=8] {'x':(4)4}",
        "mesh['x'=8] {'y'}",
        "mesh['x'=8] {'x','x'}",
    ],
)
def test_groups_that_do_not_agree_are_refused_when_they_are_asked_for(text: str) -> None:
    with pytest.raises(HloError, match="device"):
        _ = groups(text).lists


def test_the_most_devices() -> None:
    assert len(groups(f"[{MAX_DEVICES},1]<=[{MAX_DEVICES}]").lists) == MAX_DEVICES
    with pytest.raises(HloError, match="at most"):
        _ = groups(f"[{MAX_DEVICES * 2},1]<=[{MAX_DEVICES * 2}]").lists


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_iotas_as_xla_counts_them(case: st.DataObject) -> None:
    sizes = case.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    order = case.draw(st.permutations(range(len(sizes))))
    count = int(np.prod(sizes))
    rows = case.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    ours = Iota((rows, count // rows), tuple(sizes), tuple(order))
    # Bindings to XLA, which have no types.
    xla: Any = importlib.import_module("jaxlib._hlo").HloSharding
    theirs = xla.iota_tile(dims=list(ours.dims), reshape_dims=sizes, transpose_perm=list(order), subgroup_types=[])
    if not theirs.is_replicated():
        assert ours.numbers().reshape(-1).tolist() == list(theirs.tile_assignment_devices())


def sharding(text: str) -> Sharding | TupleSharding:
    module = parse_hlo(f"HloModule m\nENTRY e {{ ROOT x = f32[8,4] parameter(0), sharding={text} }}")
    assert f"sharding={text}\n" in print_hlo(module)
    value = module.entry.result.attributes["sharding"]
    assert isinstance(value, Sharding | TupleSharding)
    return value


def test_shardings() -> None:
    assert sharding("{replicated}") == Sharding("replicated")
    assert sharding("{maximal device=3}") == Sharding("maximal", device=3)
    tiled = Sharding("tiled", tiles=(2, 2), devices=(0, 1, 2, 3), group=("shard_as", 1))
    assert sharding("{devices=[2,2]0,1,2,3 shard_as 1}") == tiled
    iota = Iota((2, 1, 2), (2, 2), (1, 0))
    partly = Sharding("tiled", tiles=(2, 1, 2), devices=iota, last=("replicated",))
    assert sharding("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}") == partly
    assert sharding("{{replicated}, {manual}}") == TupleSharding((Sharding("replicated"), Sharding("manual")))
    mesh = Mesh((("x", 2), ("y", 4)))
    dims = (DimSharding((Axis("x"),)), DimSharding((Axis("y", 1, 2),), open=True))
    named = NamedSharding(mesh, dims, axes=(("replicated", (Axis("y", 2, 2),)),))
    text = "{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}], replicated={'y':(2)2}}"
    assert sharding(text) == Sharding("named", named=named)
    bare = "{mesh[x=2,y_1=4], device_ids=([4,2]T(1,0)), [{x}, {y_1:(1)2, ?}], unreduced={y_1:(2)2}}"
    assert sharding(bare) != sharding(bare.replace("x", "'x'").replace("y_1", "'y_1'"))
    assert MeshGroups(mesh, (Axis("y"),)).numbers().shape == (2, 4)


def test_aliases_and_donors() -> None:
    head = "input_output_alias={ {0}: (1, {}, must-alias), {1}: (0, {2}) }, buffer_donor={ (2, {}), (3, {1}) }"
    module = parse_hlo(f"HloModule m, {head}\n\nENTRY e {{\n  ROOT x = f32[] parameter(0)\n}}\n")
    assert module.attributes["input_output_alias"] == (Alias((0,), 1, (), "must-alias"), Alias((1,), 0, (2,)))
    assert module.attributes["buffer_donor"] == ((2, ()), (3, (1,)))
    assert head in print_hlo(module)
