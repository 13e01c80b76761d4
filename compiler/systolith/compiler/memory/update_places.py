"""Values that dynamic-update-slices put into arrays, and that groups make there: nothing is copied.

Each iteration of a loop over layers, or over steps, leaves a row of an array of all of them (`jax.lax.scan`).  A row
that is made elsewhere in HBM would be read and written once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.memory.aliasing import Uses, pointwise
from systolith.compiler.memory.residency import Leaf, leaf_bytes
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.ops.table import Family, family
from systolith.isa.dtypes import S32

MAKERS = (Unit.MXU, Unit.VPU, None)
"""Units of groups whose results may lie anywhere (None: blocks)."""


ROW = 16
"""A row of this part of VMEM, or more, is made in HBM."""


class UpdatePlace(NamedTuple):
    """Where a value may be made.

    Attributes:
        update: the group that puts it there.
        view: the same part of the array, which the group that makes the value reads element by element; None: that
            does not read the array.
    """

    update: Group
    view: Group | None


def update_places(computation: Computation) -> dict[Leaf, UpdatePlace]:
    """The place of each such value; whether the update is in place is not looked at.

    The rest of the array is as it was until the update, so nothing may read the array when the value is there, and
    nothing may change it before the value was used for the last time.  A window is dense.
    """
    updates = [i for i in computation.instructions if isinstance(i, Group) and _is_row_update(i)]
    if not updates:
        return {}
    uses = Uses(computation)
    reads: dict[Leaf, list[int]] = defaultdict(list)
    for position, i in enumerate(computation.instructions):
        if family(i) is not Family.NAME:
            for leaf in (leaf for o in i.operands for leaf in uses.aliases.leaves[o]):
                reads[leaf].append(position)
    found: dict[Leaf, UpdatePlace] = {}
    for update in updates:
        given = [update.operands[o.number] for o in update.root.operands if o.number is not None]
        (base,), (value,), *starts = (uses.aliases.leaves[o] for o in given)
        maker, at = value[0], uses.position[update]
        if value in found or not isinstance(maker, Group) or maker.unit not in MAKERS:
            continue
        made = uses.position[maker]
        before = [base, *(leaf for leaves in starts for leaf in leaves)]
        if (
            leaf_bytes(value) == update.root.operands[1].shape.bytes
            and all(uses.position[leaf[0]] < made for leaf in before)
            and all(n <= made or n == at for n in reads[base])
            and uses.last[value] <= min(reads[update, 0], default=inf)
        ):
            view = _view_of(uses, maker, base, update) if made in reads[base] else None
            if view is not None or made not in reads[base]:
                found[value] = UpdatePlace(update, view)
    return found


def rows_in_hbm(computation: Computation, vmem: int) -> set[Leaf]:
    """Large values that only an update reads, of an array that has no room in so many bytes of VMEM: they are made in
    HBM, and take none.
    """
    places = update_places(computation)
    if not places:
        return set()
    uses = Uses(computation)
    readers = Counter(
        leaf
        for i in computation.instructions
        if family(i) is not Family.NAME
        for o in i.operands
        for leaf in uses.aliases.leaves[o]
    )
    least = vmem // ROW
    return {
        value
        for value, (update, _) in places.items()
        if readers[value] == 1 and leaf_bytes(value) >= least and leaf_bytes((update, 0)) > vmem
    }


def _view_of(uses: Uses, maker: Group, base: Leaf, update: Group) -> Group | None:
    """The view of a part of an array that an update changes, through which alone a group reads it, element by element.

    None: it does not.
    """
    numbers = [n for n, o in enumerate(maker.operands) if base in uses.aliases.leaves[o]]
    views: list[Group] = []
    for n in numbers:
        named = maker.operands[n]
        while named.opcode == "bitcast":
            named = named.operands[0]
        if not isinstance(named, Group) or named.unit is not Unit.VIEW or named.dims != update.root.operands[1].dims:
            return None
        if _starts(named, named.root.operands[1:]) != _starts(update, update.root.operands[2:]):
            return None
        views.append(named)
    return views[0] if pointwise(maker, numbers) else None


def _starts(group: Group, starts: Sequence[Instruction]) -> list[object]:
    """Start indices of a group: operands, or numbers."""
    return [int(np.asarray(o.literal)) if o.number is None else group.operands[o.number] for o in starts]


def _is_row_update(group: Group) -> bool:
    """Whether a group only updates a dense window of an operand, at indices that are scalars of s32."""
    root = group.root
    if group.unit is not Unit.DMA or group.body.result is not root or root.opcode != "dynamic-update-slice":
        return False
    whole, part = root.operands[0].dims, root.operands[1].dims
    first = next((d for d, size in enumerate(part) if size != 1), len(part))
    dense = part[first + 1 :] == whole[first + 1 :] and all(o.opcode == "parameter" for o in root.operands[:2])
    starts = root.operands[2:]
    return dense and all(o.shape.dtype is S32 and not o.dims and o.opcode in ("parameter", "constant") for o in starts)
