"""The operations of a region once more, with registers of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from systolith.compiler.tile.ir import Arg, Block, Dynamic, Entry, Item, Loop, Ref, Scalar, TileOp, VReg


def repeated(block: Block, new: Callable[[], VReg], sources: dict[TileOp, TileOp]) -> Block:
    """A copy of a block.

    Args:
        block: operations and loops.
        new: gives registers: for those that the block sets before it reads them, and for induction variables.
        sources: of operations that are copies; those of this one are added.
    """
    names: dict[VReg, VReg] = {}

    def copied(region: Block) -> Block:
        return Block([item(i) for i in region.items])

    def item(i: Item) -> Item:
        if isinstance(i, TileOp):
            args = {name: value(v) for name, v in i.args.items() if name != "rd"}
            if isinstance(rd := i.args.get("rd"), VReg):
                args["rd"] = names.setdefault(rd, rd if rd in read else new())
            made = TileOp(i.op, args, i.origin, i.unit)
            sources[made] = sources.get(i, i)
            return made
        if isinstance(i, Loop):
            names[i.var] = new()
            i = replace(i, var=names[i.var], count=scalar(i.count))
        return i.with_regions([copied(r) for r in i.regions])

    def scalar(v: Scalar) -> Scalar:
        if not isinstance(v, VReg):
            return v
        if v not in names:
            read.add(v)
        return names.get(v, v)

    def value(v: Arg) -> Arg:
        if isinstance(v, VReg):
            return scalar(v)
        if isinstance(v, tuple):
            return cast(Arg, tuple(value(part) for part in v))
        return ref(v) if isinstance(v, Ref) else v

    def ref(r: Ref) -> Ref:
        if r.dynamic is None and not r.moves and not any(isinstance(b, VReg) for b in r.bias):
            return r
        moves = tuple((cast(VReg, scalar(var)), step) for var, step in r.moves)
        bias = cast(tuple[Scalar, Scalar], tuple(map(scalar, r.bias)))
        return replace(r, dynamic=place(r.dynamic), bias=bias, moves=moves)

    def place(d: Dynamic | None) -> Dynamic | None:
        if isinstance(d, Entry):
            return Entry(cast(VReg, scalar(d.number)), d.pitch, cast("VReg | None", d.offset and scalar(d.offset)))
        return cast("VReg | None", d and scalar(d))

    read: set[VReg] = set()
    return copied(block)
