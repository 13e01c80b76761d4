"""Which groups are alike: what lowering one depends on, as a digest."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version

from systolith.compiler.groups.structure import structure
from systolith.compiler.ops.group import Group
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array


def group_key(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array], free: int) -> str:
    """A key of a group, equal for groups of the same operations on the same arrays; names do not count.

    Args:
        ctx: where it is to be lowered.
        group: what is to be lowered.
        operands, results: its arrays.
        free: bytes of VMEM that it may count on.
    """
    arrays = [(int(a.buf.space), a.dtype.name, a.dims, a.strides, a.origin) for a in (*operands, *results)]
    machine = (ctx.chip.digest(), version("systolith"), ctx.options.precision, ctx.budget, free)
    what = (structure(group.body), group.unit, group.tiling, arrays, machine)
    return sha256(repr(what).encode()).hexdigest()
