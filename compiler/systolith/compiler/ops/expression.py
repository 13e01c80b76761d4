"""The expression of a VPU group: a directed acyclic graph of micro-operations.

Nodes are made by a `Graph`, which gives the same object for the same node, so that common subexpressions are computed
once.  Values are 32-bit registers: floats as f32, integers sign- or zero-extended, pred as 0 or 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Bound, Box, Expr, IndexMap, Quotient
from systolith.isa.dtypes import DType
from systolith.isa.microops import MICROOPS


@dataclass(frozen=True)
class Const:
    """A 32-bit image, the same in every lane."""

    image: int


@dataclass(frozen=True)
class Load:
    """An element of a leaf, widened; `fill` where the map reads none."""

    leaf: Instruction
    map: IndexMap
    fill: int = 0


@dataclass(frozen=True)
class Coordinate:
    """The value of an affine expression, as s32."""

    expr: Expr


@dataclass(frozen=True)
class Inside:
    """1 where all bounds hold and all quotients have no remainder, else 0."""

    bounds: tuple[Bound, ...]
    quotients: tuple[Quotient, ...] = ()


@dataclass(frozen=True, eq=False)
class Micro:
    """A micro-operation on other nodes."""

    op: str
    sources: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Concatenated pieces: where expr < ends[k] (and not before), the value is pieces[k]."""

    expr: Expr
    ends: tuple[int, ...]
    pieces: tuple[Node, ...]


@dataclass(frozen=True)
class Carried:
    """A register that keeps its value from one iteration to the next (see `vpu/reduce.py`), by number."""

    number: int


Node = Const | Load | Coordinate | Inside | Micro | Pieces | Carried


Indexed = TypeVar("Indexed", IndexMap, Expr, Bound, Quotient)


class Reindexing(Protocol):
    """Gives what is a function of indices as one of others."""

    def __call__(self, x: Indexed, /) -> Indexed: ...


def image_of(value: np.generic | np.ndarray | float | int, dtype: DType) -> int:
    """The register image of a scalar of an element type: f32 of floats, but bits of those that instructions lack."""
    array = np.asarray(value).astype(dtype.stored)
    if dtype.code < 0:
        return int(array.view(np.uint8))
    if dtype.is_float:
        return int(array.astype(np.float32).view(np.uint32))
    return int(array.astype(np.int64)) & 0xFFFFFFFF


class Graph:
    """Makes nodes; equal nodes are one object, which keeps comparing them cheap."""

    def __init__(self) -> None:
        self._nodes: dict[object, Node] = {}

    def node(self, node: Node) -> Node:
        """The one node equal to `node` (whose sources must come from here)."""
        if isinstance(node, Micro):
            key: object = (node.op, *map(id, node.sources))
        elif isinstance(node, Pieces):
            key = (node.expr, node.ends, *map(id, node.pieces))
        else:
            key = node
        return self._nodes.setdefault(key, node)

    def const(self, image: int) -> Node:
        return self.node(Const(image & 0xFFFFFFFF))

    def micro(self, op: str, *sources: Node) -> Node:
        """A micro-operation.

        Raises:
            ValueError: it is not in the table, or takes another number of operands.
        """
        info = MICROOPS.get(op)
        if info is None or info.sources != len(sources):
            raise ValueError(f"micro-operation {op!r} with {len(sources)} operands")
        return self.node(Micro(op, sources))

    def substitute(self, roots: Iterable[Node], replacement: dict[int, Node]) -> list[Node]:
        """The roots with some nodes (by id) replaced."""
        done = dict(replacement)
        roots = list(roots)
        for node in topological(roots):
            if id(node) in done:
                continue
            if isinstance(node, Micro):
                done[id(node)] = self.micro(node.op, *(done[id(s)] for s in node.sources))
            elif isinstance(node, Pieces):
                done[id(node)] = self.node(replace(node, pieces=tuple(done[id(s)] for s in node.pieces)))
            else:
                done[id(node)] = node
        return [done[id(r)] for r in roots]

    def project(self, roots: Iterable[Node], origin: tuple[int, ...], dims: Sequence[int]) -> list[Node]:
        """The roots as functions of the indices `dims` only; `origin`, which is 0 in those, gives the others."""

        def at(x: Indexed) -> Indexed:
            return x.shifted(origin).picked(dims)

        return self._indexed(roots, at)

    def split(self, roots: Iterable[Node], d: int, inner: int) -> list[Node]:
        """The roots in a space where index `d` is two, the second of `inner` values."""

        def two(x: Indexed) -> Indexed:
            return x.split(d, inner)

        return self._indexed(roots, two)

    def _indexed(self, roots: Iterable[Node], of: Reindexing) -> list[Node]:
        """The roots as functions of other indices."""
        roots = list(roots)
        moved: dict[int, Node] = {}
        for node in topological(roots):
            if isinstance(node, Load):
                moved[id(node)] = self.node(replace(node, map=of(node.map)))
            elif isinstance(node, Coordinate):
                moved[id(node)] = self.node(Coordinate(of(node.expr)))
            elif isinstance(node, Inside):
                bounds, quotients = tuple(of(b) for b in node.bounds), tuple(of(q) for q in node.quotients)
                moved[id(node)] = self.node(Inside(bounds, quotients))
            elif isinstance(node, Pieces):
                pieces = tuple(moved.get(id(p), p) for p in node.pieces)
                moved[id(node)] = self.node(Pieces(of(node.expr), node.ends, pieces))
            elif isinstance(node, Micro):
                moved[id(node)] = self.micro(node.op, *(moved.get(id(s), s) for s in node.sources))
        return [moved.get(id(r), r) for r in roots]

    def specialise(self, roots: Iterable[Node], box: Box) -> list[Node]:
        """The roots over one box, in indices relative to its origin: bounds that hold everywhere there are dropped,
        pieces that are not there too.
        """
        done: dict[int, Node] = {}
        keep: list[Node] = []
        return [self._special(r, box, done, keep) for r in roots]

    def _special(self, root: Node, box: Box, done: dict[int, Node], keep: list[Node]) -> Node:
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in done:
                stack.pop()
                continue
            below = [c for c in _children(node, box) if id(c) not in done]
            if below:
                stack.extend(below)
                continue
            stack.pop()
            done[id(node)] = self._special_one(node, box, done)
            keep.append(node)  # ids stay unique only as long as the nodes live
        return done[id(root)]

    def _special_one(self, node: Node, box: Box, done: dict[int, Node]) -> Node:
        if isinstance(node, Micro):
            sources = [done[id(s)] for s in node.sources]
            if node.op == "select" and isinstance(sources[0], Const):
                return sources[1] if sources[0].image else sources[2]
            return self.micro(node.op, *sources)
        if isinstance(node, Load):
            if node.map.nowhere(box):
                return self.const(node.fill)
            return self.node(replace(node, map=node.map.within(box)))
        if isinstance(node, Coordinate):
            lo, hi = node.expr.interval(box)
            return self.const(lo) if lo == hi else self.node(Coordinate(node.expr.shifted(box.origin)))
        if isinstance(node, Inside):
            return self._special_inside(node, box)
        if isinstance(node, Pieces):
            return self._special_pieces(node, box, done)
        return node

    def _special_inside(self, node: Inside, box: Box) -> Node:
        if any(b.fails(box) for b in node.bounds):
            return self.const(0)
        kept = tuple(b.shifted(box.origin) for b in node.bounds if not b.holds(box))
        quotients = tuple(q.shifted(box.origin) for q in node.quotients)
        return self.node(Inside(kept, quotients)) if kept or quotients else self.const(1)

    def _special_pieces(self, node: Pieces, box: Box, done: dict[int, Node]) -> Node:
        live = live_pieces(node, box)
        if not live:
            return self.const(0)  # padding around it: something else is selected there
        value = done[id(node.pieces[live[-1]])]
        local = node.expr.shifted(box.origin)
        for k in reversed(live[:-1]):
            before = self.node(Inside((Bound(local, -(2**31), node.ends[k]),)))
            value = self.micro("select", before, done[id(node.pieces[k])], value)
        return value


def live_pieces(node: Pieces, box: Box) -> list[int]:
    """Numbers of the pieces that a box touches."""
    lo, hi = node.expr.interval(box)
    last = min(bisect_right(node.ends, hi), len(node.ends) - 1)
    return list(range(bisect_right(node.ends, lo), last + 1))


def _children(node: Node, box: Box) -> list[Node]:
    if isinstance(node, Micro):
        return list(node.sources)
    if isinstance(node, Pieces):
        return [node.pieces[k] for k in live_pieces(node, box)]
    return []


def topological(roots: Iterable[Node]) -> list[Node]:
    """All nodes below the roots, sources first, each once."""
    done: dict[int, Node] = {}
    for root in roots:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if ready:
                done[id(node)] = node
                continue
            stack.append((node, True))
            below = node.sources if isinstance(node, Micro) else node.pieces if isinstance(node, Pieces) else ()
            stack.extend((s, False) for s in reversed(below) if id(s) not in done)
    return list(done.values())
