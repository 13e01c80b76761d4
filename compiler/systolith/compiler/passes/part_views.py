"""Bitcasts that show the parts of elements, as of 64-bit and complex numbers, along new last dimensions."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.linear_layout import row_major


def is_view_of_parts(i: Instruction) -> bool:
    """Whether an instruction shows the parts of elements along a new last dimension, or is such parts as elements.

    The parts of c128 may be shown by theirs.
    """
    depth = depth_of_view(i)
    return depth == 1 or (depth == 2 and any(s.dtype.bits == 128 for s in (i.shape, i.operands[0].shape)))


def depth_of_view(i: Instruction) -> int:
    """Of how many new last dimensions an instruction shows parts, and their parts, or joins such; 0: it does not."""
    if i.opcode != "bitcast" or not i.operands[0].shape.is_array or not i.shape.is_array:
        return 0
    one, two = sorted((i.shape, i.operands[0].shape), key=lambda s: s.rank)
    in_order = all(s.layout is None or s.layout.minor_to_major == row_major(s.rank).minor_to_major for s in (one, two))
    depth = two.rank - one.rank
    alike = one.dtype.bits == two.dtype.bits << depth and two.dims == (*one.dims, *[2] * depth)
    return depth if in_order and alike else 0
