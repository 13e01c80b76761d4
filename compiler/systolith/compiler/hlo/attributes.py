"""Values of instruction attributes, as data.  How each is written in text: `codecs.py`.

`ir.Attribute` is all of them, with shapes and computations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from systolith.compiler.hlo.device_groups import DeviceGroups
from systolith.compiler.hlo.sharding import Sharding, TupleSharding


class Raw(str):
    """Text of an attribute that nothing here interprets; it prints back as it is."""

    __slots__ = ()


@dataclass(frozen=True)
class SliceDim:
    """One dimension of a `slice`: elements start, start + stride, ... below limit."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True)
class PadDim:
    """One dimension of a `pad`: elements added (removed where negative) before, after and between."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True)
class WindowDim:
    """One dimension of a window.

    Attributes:
        size: elements of the window.
        stride: step of the window.
        low, high: padding of the base before and after, in elements of the dilated base; negative crops.
        base_dilation: distance between base elements (`lhs_dilate`).
        window_dilation: distance between window elements (`rhs_dilate`).
        reversal: the window's elements are taken from last to first.
    """

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    @property
    def reach(self) -> int:
        """Base elements that one position of the window spans."""
        return (self.size - 1) * self.window_dilation + 1 if self.size > 0 else 0

    def positions(self, base: int) -> int:
        """Positions of the window over `base` elements."""
        dilated = (base - 1) * self.base_dilation + 1 if base > 0 else 0
        padded = dilated + self.low + self.high
        return (padded - self.reach) // self.stride + 1 if padded >= self.reach else 0


@dataclass(frozen=True)
class Window:
    """A window, one entry per dimension it moves over."""

    dims: tuple[WindowDim, ...]


@dataclass(frozen=True)
class ConvDims:
    """Dimension numbers of a convolution (`dim_labels`), each the number of a dimension of that array."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input: int
    kernel_output: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True)
class Alias:
    """An output that takes the buffer of a parameter (of a module), or of an operand (of an instruction).

    Attributes:
        output: indices into the result's tuple.
        number: the parameter or operand.
        index: indices into its tuple.
        kind: `may-alias`, `must-alias`, or empty where the text says nothing.
    """

    output: tuple[int, ...]
    number: int
    index: tuple[int, ...] = ()
    kind: str = ""


Fields: TypeAlias = dict[str, str | int | Raw]
"""Named fields: of `metadata`, `frontend_attributes`, `statistics`; strings are without quotes and escapes."""

Values: TypeAlias = bool | int | str | Raw | tuple[int, ...] | tuple[str, ...] | tuple[tuple[int, ...], ...]
"""Numbers, words and texts, and lists of them."""

Structures: TypeAlias = (
    tuple[SliceDim, ...]
    | tuple[PadDim, ...]
    | Window
    | ConvDims
    | DeviceGroups
    | Sharding
    | TupleSharding
    | tuple[Alias, ...]
    | tuple[tuple[int, tuple[int, ...]], ...]
)
"""Attributes with a class here, or in a module of their own."""

__all__ = [
    "Alias",
    "ConvDims",
    "DeviceGroups",
    "Fields",
    "PadDim",
    "Raw",
    "Sharding",
    "SliceDim",
    "Structures",
    "TupleSharding",
    "Values",
    "Window",
    "WindowDim",
]
