"""Which unit computes a grouped convolution: the matrix units, a product for each group, or the vector unit.

A group of few channels fills few rows and columns of the array.  Where every group makes one feature the vector unit
can sum over the window instead, with the channels in its lanes; a `convolution` that is cheaper so gets the frontend
attribute `systolith.unit="vpu"`, and the precision that the vector unit has.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.own_attributes import state, stated
from systolith.isa.chip import Chip

UNIT, VPU = "unit", "vpu"


@dataclass(frozen=True)
class ChooseUnits:
    """The pass, for a chip."""

    chip: Chip

    def run(self, module: Module) -> bool:
        changed = False
        for i in module.instructions():
            if i.opcode == "convolution" and not on_vpu(i) and _possible(i) and _vpu(i, self.chip) < _mxu(i, self.chip):
                state(i, UNIT, VPU)
                i.attributes["operand_precision"] = ("highest", "highest")
                changed = True
        return changed


def on_vpu(i: Instruction) -> bool:
    """Whether the vector unit computes a convolution."""
    return stated(i, UNIT) == VPU


def _possible(i: Instruction) -> bool:
    groups = i.integer("feature_group_count", 1)
    types = {o.shape.dtype for o in i.operands} | {i.shape.dtype}
    one_type = len(types) == 1 and all(t.is_float and t.bits <= 32 for t in types)
    return one_type and groups == i.dims[i.conv_dims.output_feature] and i.integer("batch_group_count", 1) == 1


def _vpu(i: Instruction, chip: Chip) -> int:
    """Cycles of a kernel with two loads for each channel of the group and position of the window."""
    taps = prod(w.size for w in i.window.dims) * i.operands[1].dims[i.conv_dims.kernel_input]
    features = i.dims[i.conv_dims.output_feature]
    vectors = ceil(features / chip.vpu.lanes) * ceil(i.shape.size / features / chip.vpu.sublanes)
    return vectors * taps * ceil(2 / chip.vpu.load_slots)


def _mxu(i: Instruction, chip: Chip) -> int:
    """Cycles of one product for each group, which streams every output or waits for the next weights."""
    features = i.dims[i.conv_dims.output_feature]
    k = prod(w.size for w in i.window.dims) * i.operands[1].dims[i.conv_dims.kernel_input]
    each = ceil(k / chip.mxu.rows) * max(i.shape.size // features, min(k, chip.mxu.rows))
    return features * each // chip.mxu.count
