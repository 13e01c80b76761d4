"""Blocks of groups as computations: the group on fewer indices, its operations in groups again."""

from __future__ import annotations

from dataclasses import dataclass, field

from systolith.compiler.errors import compile_error
from systolith.compiler.explain import Decision
from systolith.compiler.groups.fusion import group_computation
from systolith.compiler.groups.multi_output import fuse_outputs
from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.ops.dim_propagation import group_dims, resized
from systolith.compiler.ops.dim_rules import NotBlockableError
from systolith.compiler.ops.group import Group
from systolith.compiler.tiling.block_sizes import Form
from systolith.compiler.tiling.blocking import outline
from systolith.isa.chip import Chip


@dataclass
class BlockBodies:
    """The blocks of a module's groups.  Each is made once: its groups may be split for good while it is lowered.

    Attributes:
        chip: the target.
    """

    chip: Chip
    _dims: dict[Group, dict[Instruction, int | None]] = field(default_factory=dict)
    _made: dict[tuple[Group, int, bool], tuple[Computation, list[Decision]]] = field(default_factory=dict)

    def dims(self, group: Group) -> dict[Instruction, int | None]:
        """The blocked dimension of each instruction of a group; None: it is needed whole.

        Raises:
            CompileError: the group cannot run in blocks along the dimensions of its tiling.
        """
        if group not in self._dims:
            assert group.tiling is not None
            try:
                self._dims[group] = group_dims(group)
            except NotBlockableError as problem:
                raise compile_error(group, f"cannot run in blocks along {group.tiling.dims}: {problem}") from problem
        return self._dims[group]

    def of(self, group: Group, form: Form) -> tuple[Computation, list[Decision]]:
        """The grouped computation of a block, and what was decided about its groups' results.

        One index of it may be too much, too: then it runs in blocks of another dimension, unless it is to be `whole`.
        """
        key = group, form.size, form.whole
        if key not in self._made:
            small = resized(group.body, self.dims(group), form.size)
            if form.size == 1 and not form.whole:
                outline(small, self.chip)
            group_computation(small)
            self._made[key] = small, fuse_outputs(small, self.chip)
        return self._made[key]
