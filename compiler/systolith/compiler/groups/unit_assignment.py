"""Which unit computes an operation.

A grouped convolution of few channels fills few rows and columns of the array, and so does one of a single channel.
Where each of its groups makes one feature the vector unit can sum over the window instead, with the channels in its
lanes, or positions of the only one, where that takes fewer cycles than one product a group on the matrix units.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from systolith.compiler.cost.prices import OVERHEAD, UnitCycles, kernel_length, product_cycles, transfer_cycles, vectors
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.group import Unit, unit_of
from systolith.compiler.ops.reduction_builder import is_depthwise
from systolith.isa.chip import Chip
from systolith.isa.dependence import slot_interval
from systolith.isa.timing import array_latency


@dataclass(frozen=True)
class UnitAssignment:
    """The unit of each operation.

    Attributes:
        chip: whose vector unit may compute convolutions; None: the matrix units compute them all.
    """

    chip: Chip | None = None

    def __call__(self, i: Instruction) -> Unit:
        """The unit of a group whose root operation this is."""
        if (
            self.chip is not None
            and i.opcode == "convolution"
            and is_depthwise(i)
            and _vpu(i, self.chip) < _mxu(i, self.chip)
        ):
            return Unit.VPU
        return unit_of(i)


MATRIX_UNITS = UnitAssignment()
"""All products on the matrix units."""


def _vpu(i: Instruction, chip: Chip) -> int:
    """Cycles of a kernel with two loads for each channel of the group and position of the window.

    Lanes hold features; of one feature positions along the last spatial dimension.  Where a group has several channels,
    or positions are apart, each element of the input is a segment of its own.
    """
    labels = i.conv_dims
    channels, features = i.operands[1].dims[labels.kernel_input], i.dims[labels.output_feature]
    taps = prod(w.size for w in i.window.dims) * channels
    apart = channels > 1
    if features == 1 and labels.output_spatial:
        features, last = i.dims[labels.output_spatial[-1]], i.window.dims[-1]
        apart = apart or (last.stride, last.base_dilation) != (1, 1)
    vpu, positions = chip.vpu, i.shape.size // features
    width, height = -(-features // -(-features // vpu.lanes)), -(-positions // -(-positions // vpu.sublanes))
    stalls = -(-width * height // vpu.sublanes) - 1 if apart else 0
    each = taps * (slot_interval(("ld", "ld"), chip) + stalls)
    return vectors(positions, features, chip) * each + kernel_length(("ld", "ld"), chip)


def _mxu(i: Instruction, chip: Chip) -> int:
    """Cycles of one product for each group, which streams every output or waits for the next weights.

    A run of the vector unit stores each product, and each of its elements is a granule of HBM of its own.
    """
    features = i.dims[i.conv_dims.output_feature]
    k = prod(w.size for w in i.window.dims) * i.operands[1].dims[i.conv_dims.kernel_input]
    each = product_cycles(i.shape.size // features, 1, k, chip) + OVERHEAD
    stored = transfer_cycles(i.shape.size * chip.hbm.granule, chip)
    return UnitCycles(features * each // chip.mxu.count, stored, ends=array_latency(chip)).bound
