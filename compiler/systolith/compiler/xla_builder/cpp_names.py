"""Names of XLA's C++ client, for code written after its examples: F32, ShapeUtil, LiteralUtil, ..."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.linear_layout import check_layout
from systolith.compiler.hlo.shape import TOKEN, Layout, Shape, array, tuple_of
from systolith.compiler.xla_builder.arguments import PrimitiveType, element_type
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.checked import checked

PRED, S8, S16, S32, S64, U8, U16, U32, U64, F16, BF16, F32, F64, C64, C128 = (
    ELEMENT_TYPES[name] for name in "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split()
)


@checked
def make_shape(
    element: PrimitiveType, dimensions: Sequence[int] = (), minor_to_major: Sequence[int] | None = None
) -> Shape:
    """The shape of an array, from its sizes in the order of the dimensions' numbers.

    Args:
        element: element type or its name.
        dimensions: sizes.
        minor_to_major: order in memory, the fastest varying dimension first; row-major by default.

    Raises:
        HloError: there is no such type, or the order is no permutation of the dimensions.
    """
    shape = array(element_type(element), tuple(dimensions))
    if minor_to_major is None:
        return shape
    found = shape.with_layout(Layout(tuple(minor_to_major)))
    check_layout(found)
    return found


class ShapeUtil:
    """Functions on shapes."""

    MakeShape = staticmethod(make_shape)
    MakeTupleShape = staticmethod(checked(tuple_of))

    @staticmethod
    def MakeTokenShape() -> Shape:  # noqa: N802 - XLA's name
        """The shape of a token."""
        return TOKEN


class LiteralUtil:
    """Functions that make literals."""

    CreateR0 = staticmethod(Literal.r0)
    CreateR1 = staticmethod(Literal.r1)
    CreateR2 = staticmethod(Literal.r2)
    CreateR3 = CreateR3FromArray3D = staticmethod(Literal.r3)
    CreateR4 = CreateR4FromArray4D = staticmethod(Literal.r4)
    CreateR2FromArray2D = CreateR2
    CreateToken = staticmethod(Literal.create_token)
    MakeTuple = staticmethod(Literal.create_tuple)
    Zero = staticmethod(Literal.zero)
    One = staticmethod(Literal.one)
    MinValue = staticmethod(Literal.min_value)
    MaxValue = staticmethod(Literal.max_value)


def PaddingConfigDimension(  # noqa: N802 - XLA's name
    edge_padding_low: int = 0, edge_padding_high: int = 0, interior_padding: int = 0
) -> PadDim:
    """Padding of one dimension of `Pad`."""
    return PadDim(edge_padding_low, edge_padding_high, interior_padding)
