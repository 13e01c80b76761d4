"""Padding of windows by name."""

from __future__ import annotations

from enum import StrEnum

from systolith.compiler.hlo.attributes import Window, WindowDim
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.xla_builder.arguments import Ints, Pairs, ints, pairs


class Padding(StrEnum):
    """How much padding: so that a stride of 1 gives the input's sizes, or none."""

    SAME = "kSame"
    VALID = "kValid"


def make_padding(
    input_dimensions: Ints, window_dimensions: Ints, window_strides: Ints, padding: Padding | str
) -> tuple[tuple[int, int], ...]:
    """(low, high) for each dimension; of an odd number the greater part is high.

    Args:
        input_dimensions: sizes that the window moves over.
        window_dimensions: sizes of the window.
        window_strides: steps of the window.
        padding: `Padding`, or a name of one: `kSame`, `SAME`, `same`.

    Raises:
        HloError: numbers of dimensions differ, a stride is less than 1, or the padding's name is unknown.
    """
    kind = _padding(padding)
    sizes, windows = ints(input_dimensions, "input_dimensions"), ints(window_dimensions, "window_dimensions")
    strides = ints(window_strides, "window_strides")
    if not len(sizes) == len(windows) == len(strides):
        raise HloError(f"{len(sizes)} dimensions, a window of {len(windows)} and {len(strides)} strides do not agree")
    if any(stride < 1 for stride in strides):
        raise HloError(f"strides are at least 1, got {list(strides)}")
    if kind is Padding.VALID:
        return ((0, 0),) * len(sizes)
    totals = [max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(sizes, windows, strides, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def _padding(name: Padding | str) -> Padding:
    for kind in Padding:
        if str(name).lower().removeprefix("k") == kind.removeprefix("k").lower():
            return kind
    raise HloError(f"padding is kSame or kValid, got {name!r}; a list of pairs goes with general padding")


def make_window(
    sizes: Ints, strides: Ints | None, padding: Pairs | None, base_dilations: Ints | None, window_dilations: Ints | None
) -> Window:
    """A window; a list that is None or empty is 1 (strides, dilations) or 0 (padding) in each dimension.

    Raises:
        HloError: lists of different lengths, a size below 0, or a stride or dilation below 1.
    """
    found = ints(sizes, "window_dimensions")
    rank = len(found)
    pads = pairs(() if padding is None else padding, "padding") or ((0, 0),) * rank
    steps, bases, windows = (
        ints(() if values is None else values, name) or (1,) * rank
        for values, name in (
            (strides, "window_strides"), (base_dilations, "base_dilations"), (window_dilations, "window_dilations"),
        )
    )  # fmt: skip
    for name, values in (
        ("window_strides", steps), ("padding", pads), ("base dilations", bases), ("window dilations", windows),
    ):  # fmt: skip
        if len(values) != rank:
            raise HloError(f"the window has {rank} dimensions, {name} {len(values)}")
    if any(n < 0 for n in found) or any(n < 1 for n in (*steps, *bases, *windows)):
        raise HloError("strides and dilations of a window are at least 1, and sizes at least 0")
    return Window(
        tuple(
            WindowDim(size, step, pad[0], pad[1], base, window)
            for size, step, pad, base, window in zip(found, steps, pads, bases, windows, strict=True)
        )
    )
