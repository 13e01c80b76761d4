"""A product's group with the elementwise group that reads its result, as one: what that gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.errors import DoesNotFitError, LimitError
from systolith.compiler.groups.fuse_pair import NotJointError, check_size
from systolith.compiler.groups.fusion import Limits
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.epilogue import made_of
from systolith.compiler.mxu.matmul import planned
from systolith.compiler.ops.expression_builder import analyze, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.reduction_builder import one_pass_obstacle, over_product, reduction_of
from systolith.compiler.options import Options
from systolith.compiler.tile.arrays import dense_array
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.vpu.emit import vector_cycles
from systolith.compiler.vpu.reduce_task import Finish, Task
from systolith.compiler.vpu.reduce_ways import Ways, anywhere
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

ALIKE = 0.03
"""Estimates that differ by less than this part are alike: the product's result is stored."""


@dataclass
class ProductResults:
    """Cycles of groups whose products are read in place by what makes several results (an optimiser's p, m and v).

    Attributes:
        chip: for costs.
        options: as for lowering.
        limits: of kernels.
    """

    chip: Chip
    options: Options
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._ctx = TileBuilder(self.chip, self.options)

    def saved(
        self,
        first: Group,
        second: Group,
        joint: Group,
        values: tuple[Sequence[Instruction], Sequence[Instruction]],
        in_hbm: Callable[[Instruction], bool],
        budgets: tuple[int, int],
    ) -> int:
        """Cycles that a group takes less than two of which the second reads what the first one's product makes.

        Args:
            first, second: the groups.
            joint: what computes both.
            values: what stands for the results of the second, and of both.
            in_hbm: whether a value is read from HBM.
            budgets: bytes of VMEM for the tiles of the first, and of both.

        Raises:
            NotJointError: the vector unit cannot make the results as the product's tiles come, or it would not be
                faster.
        """

        def array(value: Instruction) -> Array:
            space = Space.HBM if in_hbm(value) else Space.VMEM
            return dense_array(Buf(value.name, space, value.shape.bytes), value.shape.dtype, value.dims)

        try:
            self._check(joint)
            apart = self._product(first, array, [first], budgets[0])
            if not self._is_beside(first, second, values, in_hbm):
                apart += self._vector(second, array, values[0])
            together = self._product(joint, array, values[1], budgets[1])
        except (DoesNotFitError, LimitError) as e:
            raise NotJointError(str(e)) from None
        if together > apart * (1 - ALIKE):
            raise NotJointError(f"expected to take {together:,} cycles as one, {apart:,} apart", True)
        return apart - together

    def _is_beside(
        self,
        first: Group,
        second: Group,
        values: tuple[Sequence[Instruction], Sequence[Instruction]],
        in_hbm: Callable[[Instruction], bool],
    ) -> bool:
        """Whether the second is done beside further products, which do not wait for it: a sum of what lies in VMEM, and
        stays there for others.  Arguments as for `saved`.
        """
        kept = any(made is first for made in values[1])
        return second.reduces and kept and not any(map(in_hbm, (*second.operands, *values[0])))

    def _check(self, joint: Group) -> None:
        """Whether each result is made of the product's at its own place, by one kernel.

        Raises:
            LimitError: no kernel can have it.
            NotJointError: it is not.
        """
        if any(value.dims != joint.root.dims for value in over_product(joint.body, joint.root)):
            raise NotJointError("results of different shapes")
        if why := one_pass_obstacle(joint.body, joint.root):
            raise NotJointError(why)
        made = made_of(joint, [anywhere(root.shape) for root in group_roots(joint.body)])
        if not made.in_place:
            raise NotJointError("the second reads the first elsewhere than it is made", True)
        check_size(made.plan, self.limits)

    def _product(
        self, group: Group, array: Callable[[Instruction], Array], results: Sequence[Instruction], budget: int
    ) -> int:
        """Cycles of a product's group; DoesNotFitError, LimitError: it cannot be."""
        self._ctx.group, self._ctx.budget = group, budget
        plan = planned(self._ctx, group, [*map(array, group.operands)], [*map(array, results)])
        if plan is None:
            raise DoesNotFitError("no tiles fit in VMEM")
        return plan.cycles

    def _vector(self, group: Group, array: Callable[[Instruction], Array], results: Sequence[Instruction]) -> int:
        """Cycles of the vector unit or of HBM, whatever has more to do."""
        leaves = dict(zip(group.body.parameters, map(array, group.operands), strict=True))
        made = [*map(array, results)]
        moved = sum(a.buf.bytes for a in (*leaves.values(), *made) if a.buf.space == Space.HBM)
        return max(self._computed(group, leaves, made), transfer_cycles(moved, self.chip))

    def _computed(self, group: Group, leaves: Mapping[Instruction, Array], made: Sequence[Array]) -> int:
        """Cycles of the vector unit."""
        if not group.reduces:
            plan = analyze(group_roots(group.body))
            return vector_cycles(self.chip, plan, Box.whole(plan.dims), leaves, made)
        r = reduction_of(group.body)
        targets, sides = r.reduced_and_sides(group_roots(group.body), made)
        kept = Box.whole([r.dims[d] for d in r.kept])
        return Ways(self.chip).cycles(Task(r, Box.whole(r.dims), kept, Finish(), leaves, targets, sides))
