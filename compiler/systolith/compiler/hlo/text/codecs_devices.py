"""Attributes about devices as text: `replica_groups`, meshes, `sharding`.

Source: `ParseCollectiveDeviceListBase`, `ParseMesh` and `ParseSharding` of `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from systolith.compiler.hlo.device_groups import Axis, DeviceGroups, Iota, Mesh, MeshGroups
from systolith.compiler.hlo.lexer import Cursor
from systolith.compiler.hlo.sharding import AnySharding, DimSharding, NamedSharding, Sharding, TupleSharding
from systolith.compiler.hlo.text.codecs_fields import metadata, show_metadata

_KINDS = ("replicated", "maximal", "manual", "unknown", "unreduced")
_LAST = ("replicated", "maximal", "manual", "unreduced")
_LIST = re.compile(r"\{[ \t\r\n]*\{")
_BARE_AXIS = re.compile(r"[A-Za-z_][\w.-]*")
_MESH = re.compile(r"(?:maximal_)?mesh(?=[ \t\r\n]*\[)")


def int_lists(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`."""
    cursor.expect("{", "to start a list of lists of integers")
    lists: list[tuple[int, ...]] = []
    while not cursor.accept("}"):
        if lists:
            cursor.expect(",", "or '}' in a list of lists of integers")
        lists.append(cursor.integers("integers"))
    return tuple(lists)


def groups(cursor: Cursor) -> DeviceGroups:
    """`{{0,1},{2,3}}`, `[2,4]<=[8]`, `[4,2]<=[2,4]T(1,0)` or `mesh['x'=2,'y'=4] {'x'}`."""
    start = cursor.pos
    if cursor.at("{"):
        return DeviceGroups(int_lists(cursor))
    if _MESH.match(cursor.text, start):
        mesh = _mesh(cursor)
        if isinstance(mesh, int):
            raise cursor.error("device groups need a mesh of axes", start)
        cursor.accept(",")
        return DeviceGroups(MeshGroups(mesh, _axes(cursor)))
    if not cursor.at("["):
        cursor.fail("groups of devices such as {{0,1},{2,3}}, [2,4]<=[8] or mesh['x'=2] {'x'}")
    dims, devices = _tiles(cursor)
    if not isinstance(devices, Iota) or len(dims) != 2:
        raise cursor.error("groups of devices in brackets are [groups,size]<=[...]", start)
    return DeviceGroups(devices)


def _sizes(cursor: Cursor, what: str) -> tuple[int, ...]:
    """`[2,4]`, at least one."""
    cursor.expect("[", f"to start {what}")
    sizes = [cursor.integer(f"a size in {what}")]
    while cursor.accept(","):
        sizes.append(cursor.integer(f"a size in {what}"))
    cursor.expect("]", f"to end {what}")
    return tuple(sizes)


def _order(cursor: Cursor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[8]` or `[2,4]T(1,0)`."""
    reshape = _sizes(cursor, "the order of devices")
    if len(reshape) == 1:
        return reshape, ()
    start = cursor.pos
    if not cursor.accept_word("T"):
        cursor.fail("'T(' and the order of the dimensions of devices")
    cursor.expect("(", "after T")
    order = [cursor.integer("a dimension number")]
    while cursor.accept(","):
        order.append(cursor.integer("a dimension number"))
    cursor.expect(")", "to end the order of the dimensions of devices")
    if sorted(order) != list(range(len(reshape))):
        raise cursor.error(f"expected a permutation of 0 to {len(reshape) - 1}", start)
    return reshape, tuple(order)


def _tiles(cursor: Cursor) -> tuple[tuple[int, ...], Iota | tuple[int, ...]]:
    """`[2,4]<=[8]`, `[4,2]<=[2,4]T(1,0)` or `[2,2]0,1,2,3`; as in XLA their sizes are not compared here."""
    dims = _sizes(cursor, "an array of devices")
    if cursor.accept("<="):
        return dims, Iota(dims, *_order(cursor))
    numbers = [cursor.integer("the number of a device")]
    while cursor.accept(","):
        numbers.append(cursor.integer("the number of a device"))
    return dims, tuple(numbers)


def _mesh(cursor: Cursor) -> Mesh | int:
    """`mesh['x'=2,'y'=4]`, with `, device_ids=(...)` or not; the device of `maximal_mesh[device_id=3]`."""
    start = cursor.pos
    maximal = cursor.word("a mesh") == "maximal_mesh"
    cursor.expect("[", "to start the axes of a mesh")
    if maximal:
        if not cursor.accept_word("device_id"):
            cursor.fail("device_id=")
        cursor.expect("=", "after device_id")
        device = cursor.integer("the number of a device")
        cursor.expect("]", "to end a mesh of one device")
        return device
    axes: list[tuple[str, int]] = []
    quoted = False
    while not cursor.accept("]"):
        if axes:
            cursor.expect(",", "or ']' in the axes of a mesh")
        bare = None if _quoted(cursor) else cursor.match(_BARE_AXIS)
        name = bare[0] if bare else cursor.string("the name of an axis such as 'x'")
        quoted |= not bare
        cursor.expect("=", "after the name of an axis")
        axes.append((name, cursor.integer("the size of an axis")))
    if min((size for _, size in axes), default=1) < 1 or len(dict(axes)) != len(axes):
        raise cursor.error("the axes of a mesh have different names and sizes from 1", start)
    before, devices = cursor.pos, None
    if cursor.accept(",") and cursor.accept_word("device_ids"):
        cursor.expect("=", "after device_ids")
        devices = _device_ids(cursor, tuple(size for _, size in axes))
    else:
        cursor.pos = before
    return Mesh(tuple(axes), devices, quoted or not axes)


def _device_ids(cursor: Cursor, sizes: tuple[int, ...]) -> Iota | tuple[int, ...]:
    start = cursor.pos
    cursor.expect("(", "to start the devices of a mesh")
    devices: Iota | tuple[int, ...]
    if cursor.at("["):
        devices = Iota(sizes, *_order(cursor))
        count = prod(devices.reshape)
    else:
        numbers: list[int] = []
        while not cursor.at(")"):
            if numbers:
                cursor.expect(",", "or ')' in the devices of a mesh")
            numbers.append(cursor.integer("the number of a device"))
        devices, count = tuple(numbers), len(numbers)
    cursor.expect(")", "to end the devices of a mesh")
    if count != prod(sizes):
        raise cursor.error(f"a mesh of {prod(sizes)} devices is given {count}", start)
    return devices


def _axis(cursor: Cursor) -> Axis:
    """`'x'`, `x`, `0`, or a part: `'x':(2)4`."""
    quoted = _quoted(cursor)
    bare = None if quoted else cursor.match(_BARE_AXIS)
    name = cursor.string("an axis") if quoted else bare[0] if bare else cursor.integer("an axis such as 'x'")
    if not cursor.accept(":"):
        return Axis(name, quoted=not bare)
    cursor.expect("(", "to start the part of an axis such as 'x':(2)4")
    before = cursor.integer("the product of the sizes of the more major parts")
    cursor.expect(")", "before the size of the part of an axis")
    return Axis(name, before, cursor.integer("the size of the part of an axis"), not bare)


def _quoted(cursor: Cursor) -> bool:
    return cursor.at("'") or cursor.at('"')


def _axes(cursor: Cursor) -> tuple[Axis, ...]:
    dim = _dim(cursor)
    if dim.open:
        raise cursor.error("'?' stands for a dimension's axes only")
    return dim.axes


def _dim(cursor: Cursor) -> DimSharding:
    """`{'x', 'y'}` or `{'x', ?}`."""
    cursor.expect("{", "to start a list of axes")
    axes: list[Axis] = []
    while not cursor.accept("}"):
        if axes:
            cursor.expect(",", "or '}' in a list of axes")
        if cursor.accept("?"):
            cursor.expect("}", "after '?'")
            return DimSharding(tuple(axes), open=True)
        axes.append(_axis(cursor))
    return DimSharding(tuple(axes))


def sharding(cursor: Cursor) -> AnySharding:
    """`{replicated}`, `{devices=[2,2]<=[4]}`, `{{maximal device=0}, {manual}}`, `{mesh['x'=2], [{'x'}]}`, ..."""
    start = cursor.pos
    cursor.expect("{", "to start a sharding")
    if not cursor.at("{") and not cursor.at("}"):
        return _single(cursor, start)
    elements: list[Sharding] = []
    while not cursor.accept("}"):
        if elements:
            cursor.expect(",", "or '}' in the shardings of a tuple")
        at = cursor.pos
        cursor.expect("{", "to start the sharding of an element of a tuple")
        elements.append(_single(cursor, at))
    return TupleSharding(tuple(elements))


def _single(cursor: Cursor, start: int) -> Sharding:
    """One sharding behind its brace."""
    if _MESH.match(cursor.text, cursor.pos):
        return _named(cursor)
    made = Sharding("")
    listed: tuple[int, ...] = ()
    while not cursor.accept("}"):
        at = cursor.pos
        word = cursor.word("a part of a sharding such as replicated, maximal, devices=[2,2]<=[4]")
        if word in _KINDS:
            made = replace(made, kind=word)
        elif word in ("shard_as", "shard_like"):
            made = replace(made, group=(word, cursor.integer("the number of a shard group")))
        elif word == "last_tile_dim_replicate":
            made = replace(made, last=("replicated",))
        elif word == "device":
            listed = (_value(cursor, word).integer("the number of a device"),)
            made = replace(made, device=listed[0])
        elif word == "devices":
            tiles, devices = _tiles(_value(cursor, word))
            made = replace(made, tiles=tiles, devices=devices)
        elif word == "last_tile_dims":
            made = replace(made, last=_last_dims(_value(cursor, word)))
        elif word == "metadata":
            made = replace(made, metadata=_metadata(_value(cursor, word)))
        else:
            raise cursor.error(f"unknown part of a sharding {word!r}", at)
    return _checked(cursor, start, made, listed)


def _value(cursor: Cursor, word: str) -> Cursor:
    cursor.expect("=", f"after {word}")
    return cursor


def _checked(cursor: Cursor, start: int, made: Sharding, listed: tuple[int, ...]) -> Sharding:
    """The sharding, its devices as its kind wants them."""
    if made.kind == "maximal":
        if made.tiles or not listed:
            raise cursor.error("a maximal sharding has one device: {maximal device=0}", start)
    elif made.kind and (made.tiles or listed):
        raise cursor.error(f"a {made.kind} sharding has no devices", start)
    elif not made.kind:
        if not made.tiles:
            raise cursor.error("expected a kind of sharding or devices=[...]", start)
        if not isinstance(made.devices, Iota) and len(made.devices) < 2:
            raise cursor.error("a tiled sharding has two devices or more; one is {maximal device=N}", start)
        made = replace(made, kind="tiled")
    return made


def _last_dims(cursor: Cursor) -> tuple[str, ...]:
    """`{manual, replicated}`."""
    cursor.expect("{", "to start last_tile_dims")
    kinds: list[str] = []
    while not cursor.accept("}"):
        if kinds:
            cursor.expect(",", "or '}' in last_tile_dims")
        start = cursor.pos
        kinds.append(cursor.word("a kind of sharding"))
        if kinds[-1] not in _LAST:
            raise cursor.error(f"expected one of {', '.join(_LAST)}, got {kinds[-1]!r}", start)
    return tuple(kinds)


def _metadata(cursor: Cursor) -> tuple[str, ...]:
    """One metadata or a braced list of them, each as text."""
    if not _LIST.match(cursor.text, cursor.pos):
        return (_one_metadata(cursor),)
    cursor.expect("{", "to start metadata")
    items = [_one_metadata(cursor)]
    while cursor.accept(","):
        items.append(_one_metadata(cursor))
    cursor.expect("}", "to end metadata")
    return tuple(items)


def _one_metadata(cursor: Cursor) -> str:
    return show_metadata(metadata(cursor))


def _named(cursor: Cursor) -> Sharding:
    """A sharding by the axes of a mesh, behind its brace."""
    mesh = _mesh(cursor)
    kind = ""
    dims: list[DimSharding] = []
    axes: list[tuple[str, tuple[Axis, ...]]] = []
    texts: tuple[str, ...] = ()
    if not isinstance(mesh, int):
        cursor.accept(",")
        kind = next((word for word in ("replicated", "unreduced", "manual") if cursor.accept_word(word)), "")
        if not kind:
            cursor.expect("[", "to start the shardings of dimensions")
            while not cursor.accept("]"):
                if dims:
                    cursor.expect(",", "or ']' in the shardings of dimensions")
                dims.append(_dim(cursor))
    while not cursor.accept("}"):
        cursor.expect(",", "or '}' in a sharding")
        at = cursor.pos
        word = cursor.word("replicated=, unreduced=, manual= or metadata=")
        if word == "metadata":
            texts = _metadata(_value(cursor, word))
        elif word in ("replicated", "unreduced", "manual") and not kind and not isinstance(mesh, int):
            axes.append((word, _axes(_value(cursor, word))))
        else:
            raise cursor.error(f"unknown part of a sharding {word!r}", at)
    named = NamedSharding(mesh, tuple(dims), kind, tuple(axes))
    return Sharding("named", named=named, metadata=texts)
