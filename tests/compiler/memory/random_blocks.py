"""Random blocks of operations, with loops and branches: for plans of memory."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from systolith.compiler.tile.ir import Block, If, Item, TileOp, VReg, While


def random_block(draw: st.DrawFn, operation: Callable[[], TileOp]) -> Block:
    """A block of up to two levels of regions; `operation` draws its operations."""

    def block(depth: int) -> Block:
        items: list[Item] = []
        for _ in range(draw(st.integers(0, 6))):
            kind = draw(st.integers(0, 5 if depth else 3))
            if kind == 4:
                items.append(While(block(0), VReg(1), block(depth - 1)))
            elif kind == 5:
                items.append(If(VReg(1), [block(depth - 1), block(0)]))
            else:
                items.append(operation())
        return Block(items)

    return block(2)
