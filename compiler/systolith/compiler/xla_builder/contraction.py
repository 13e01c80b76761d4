"""Sums of products: dot and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from systolith.compiler.hlo.attributes import ConvDims
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import array
from systolith.compiler.xla_builder.arguments import Ints, Pairs, PrimitiveType, element_type, expect, integer, ints
from systolith.compiler.xla_builder.movement import Movement
from systolith.compiler.xla_builder.op import XlaOp
from systolith.compiler.xla_builder.padding import Padding, make_padding, make_window
from systolith.isa.dtypes import DType


@dataclass
class DotDimensionNumbers:
    """Contracting and batch dimensions of a dot, given at once or added one by one."""

    lhs_contracting_dimensions: Ints = ()
    rhs_contracting_dimensions: Ints = ()
    lhs_batch_dimensions: Ints = ()
    rhs_batch_dimensions: Ints = ()

    def add_lhs_contracting_dimensions(self, dimension: int) -> None:
        self.lhs_contracting_dimensions = (*self.lhs_contracting_dimensions, dimension)

    def add_rhs_contracting_dimensions(self, dimension: int) -> None:
        self.rhs_contracting_dimensions = (*self.rhs_contracting_dimensions, dimension)

    def add_lhs_batch_dimensions(self, dimension: int) -> None:
        self.lhs_batch_dimensions = (*self.lhs_batch_dimensions, dimension)

    def add_rhs_batch_dimensions(self, dimension: int) -> None:
        self.rhs_batch_dimensions = (*self.rhs_batch_dimensions, dimension)


@dataclass(frozen=True)
class ConvolutionDimensionNumbers:
    """Which dimension of a convolution's input, kernel and output is what."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Ints
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: Ints
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Ints

    def labels(self) -> ConvDims:
        """The attribute `dim_labels`.

        Raises:
            HloError: the dimensions of an array are not each named once.
        """
        found = ConvDims(
            self.input_batch_dimension, self.input_feature_dimension, tuple(self.input_spatial_dimensions),
            self.kernel_input_feature_dimension, self.kernel_output_feature_dimension,
            tuple(self.kernel_spatial_dimensions),
            self.output_batch_dimension, self.output_feature_dimension, tuple(self.output_spatial_dimensions),
        )  # fmt: skip
        for name, numbers in (
            ("input", (found.input_batch, found.input_feature, *found.input_spatial)),
            ("kernel", (found.kernel_input, found.kernel_output, *found.kernel_spatial)),
            ("output", (found.output_batch, found.output_feature, *found.output_spatial)),
        ):
            if sorted(numbers) != list(range(len(found.input_spatial) + 2)):
                raise HloError(f"dimension numbers of the {name} name each dimension once, got {list(numbers)}")
        return found


Precision = str | Sequence[str] | None
_PRECISIONS = ("default", "high", "highest", "packed_nibble")


def _precision(asked: Precision, operands: int) -> tuple[str, ...] | None:
    """`operand_precision`: one word for each operand, left out where all are default."""
    if asked is None:
        return None
    words = (asked,) * operands if isinstance(asked, str) else tuple(asked)
    found = tuple(word.lower() for word in words)
    if len(found) != operands or any(word not in _PRECISIONS for word in found):
        raise HloError(f"the precision of each of {operands} operands is {', '.join(_PRECISIONS)}; got {asked!r}")
    return None if set(found) == {"default"} else found


class Contraction(Movement):
    """Dot and convolution."""

    def dot(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """Product over the last dimension of `lhs` and the second last (of a vector the only) dimension of `rhs`.

        The result has the other dimensions of both, in order.  Two scalars multiply; a scalar goes with no array.
        """
        left, right = len(self._dims(lhs)), len(self._dims(rhs))
        if (left == 0) != (right == 0):
            raise HloError("the dimension to contract is missing: a scalar and an array multiply with mul")
        numbers = DotDimensionNumbers((left - 1,), (max(right - 2, 0),)) if left else DotDimensionNumbers()
        return self.dot_general(lhs, rhs, numbers, precision_config, preferred_element_type)

    def dot_general(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        dimension_numbers: DotDimensionNumbers,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """Sum of products over the contracting dimensions, for each index of the batch dimensions."""
        n = expect(dimension_numbers, DotDimensionNumbers, "dimension_numbers")
        batch = bool(n.lhs_batch_dimensions or n.rhs_batch_dimensions)
        return self._emit(
            "dot",
            [lhs, rhs],
            array(self._product(lhs, rhs, preferred_element_type)),
            lhs_batch_dims=ints(n.lhs_batch_dimensions, "lhs_batch_dimensions") if batch else None,
            lhs_contracting_dims=ints(n.lhs_contracting_dimensions, "lhs_contracting_dimensions"),
            rhs_batch_dims=ints(n.rhs_batch_dimensions, "rhs_batch_dimensions") if batch else None,
            rhs_contracting_dims=ints(n.rhs_contracting_dimensions, "rhs_contracting_dimensions"),
            operand_precision=_precision(precision_config, 2),
        )

    def _product(self, lhs: XlaOp, rhs: XlaOp, preferred: PrimitiveType | None) -> DType:
        """Element type of a sum of products: the preferred one, else that of the operands; of two, the wider."""
        left, right = self._array(lhs).dtype, self._array(rhs).dtype
        if preferred is not None:
            return element_type(preferred)
        return right if right.bits > left.bits else left

    def conv(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        window_strides: Ints,
        padding: Padding | str,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """A convolution with default dimension numbers and padding by name."""
        dims = self.create_default_conv_dimension_numbers(len(ints(window_strides, "window_strides")))
        groups = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
        return self.conv_with_general_dimensions(lhs, rhs, window_strides, padding, dims, *groups)

    def conv_with_general_padding(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        window_strides: Ints,
        padding: Pairs,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """A convolution with default dimension numbers and (low, high) padding of each spatial dimension."""
        dims = self.create_default_conv_dimension_numbers(len(ints(window_strides, "window_strides")))
        groups = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
        return self.conv_general(lhs, rhs, window_strides, padding, dims, *groups)

    def conv_with_general_dimensions(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        window_strides: Ints,
        padding: Padding | str,
        dimension_numbers: ConvolutionDimensionNumbers,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """A convolution with padding by name."""
        sizes, kernel = self._dims(lhs), self._dims(rhs)
        labels = expect(dimension_numbers, ConvolutionDimensionNumbers, "dimension_numbers").labels()
        for shape, rank in ((sizes, len(labels.input_spatial) + 2), (kernel, len(labels.kernel_spatial) + 2)):
            if len(shape) != rank:
                raise HloError(f"dimension numbers name {rank} dimensions, input and kernel have {len(shape)}")
        pads = make_padding(
            [sizes[d] for d in labels.input_spatial],
            [kernel[d] for d in labels.kernel_spatial],
            window_strides,
            padding,
        )
        groups = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
        return self.conv_general(lhs, rhs, window_strides, pads, dimension_numbers, *groups)

    def conv_general(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        window_strides: Ints,
        padding: Pairs,
        dimension_numbers: ConvolutionDimensionNumbers,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
    ) -> XlaOp:
        """A convolution with any padding and dimension numbers."""
        groups = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
        return self.conv_general_dilated(lhs, rhs, window_strides, padding, (), (), dimension_numbers, *groups)

    def conv_general_dilated(
        self,
        lhs: XlaOp,
        rhs: XlaOp,
        window_strides: Ints,
        padding: Pairs,
        lhs_dilation: Ints,
        rhs_dilation: Ints,
        dimension_numbers: ConvolutionDimensionNumbers,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Precision = None,
        preferred_element_type: PrimitiveType | None = None,
        window_reversal: Sequence[bool] | None = None,
    ) -> XlaOp:
        """A convolution with everything that one can have; empty lists are 1 (dilation) or 0 (padding)."""
        numbers, kernel = expect(dimension_numbers, ConvolutionDimensionNumbers, "dimension_numbers"), self._dims(rhs)
        labels = numbers.labels()
        if len(kernel) != len(labels.kernel_spatial) + 2:
            raise HloError(f"dimension numbers name {len(labels.kernel_spatial) + 2} dimensions of {rhs.shape}")
        sizes = [kernel[d] for d in labels.kernel_spatial]
        window = make_window(sizes, window_strides, padding, lhs_dilation, rhs_dilation)
        if window_reversal:
            reversed_dims = zip(window.dims, window_reversal, strict=True)
            window = replace(window, dims=tuple(replace(d, reversal=bool(held)) for d, held in reversed_dims))
        groups = integer(feature_group_count, "feature_group_count"), integer(batch_group_count, "batch_group_count")
        return self._emit(
            "convolution",
            [lhs, rhs],
            array(self._product(lhs, rhs, preferred_element_type)),
            window=window,
            dim_labels=labels,
            feature_group_count=groups[0] if groups[0] != 1 else None,
            batch_group_count=groups[1] if groups[1] != 1 else None,
            operand_precision=_precision(precision_config, 2),
        )

    @staticmethod
    def create_default_conv_dimension_numbers(num_spatial_dims: int = 2) -> ConvolutionDimensionNumbers:
        """Batch, feature, spatial; of the kernel output feature, input feature, spatial."""
        spatial = tuple(range(2, num_spatial_dims + 2))
        return ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @staticmethod
    def create_conv_dimension_numbers(
        batch: int,
        feature: int,
        first_spatial: int,
        second_spatial: int,
        kernel_output_feature: int,
        kernel_input_feature: int,
        kernel_first_spatial: int,
        kernel_second_spatial: int,
    ) -> ConvolutionDimensionNumbers:
        """Dimension numbers of two spatial dimensions; the output's are the input's.

        Raises:
            HloError: a dimension is named twice.
        """
        spatial = (first_spatial, second_spatial)
        kernel = (kernel_first_spatial, kernel_second_spatial)
        found = ConvolutionDimensionNumbers(
            batch, feature, spatial, kernel_input_feature, kernel_output_feature, kernel, batch, feature, spatial
        )
        found.labels()
        return found
