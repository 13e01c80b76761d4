"""Attributes about dimensions as text: slices, padding, windows, dimension labels.

Source: `ParseSliceRanges`, `ParsePaddingConfig`, `ParseWindow` and `ParseConvolutionDimensionNumbers` of
`xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re

from systolith.compiler.hlo.attributes import ConvDims, PadDim, SliceDim, Window, WindowDim
from systolith.compiler.hlo.lexer import Cursor

_SLICE = re.compile(r"\[(-?\d{1,18}):(-?\d{1,18})(?::(-?\d{1,18}))?\]", re.ASCII)


def slices(cursor: Cursor) -> tuple[SliceDim, ...]:
    """`{[0:4], [2:8:2]}`."""
    cursor.expect("{", "to start slices")
    dims: list[SliceDim] = []
    while not cursor.accept("}"):
        if dims:
            cursor.expect(",", "or '}' in slices")
        found = cursor.match(_SLICE)
        dims.append(SliceDim(*(int(n) for n in found.groups("1"))) if found else _slice(cursor))
    return tuple(dims)


def _slice(cursor: Cursor) -> SliceDim:
    cursor.expect("[", "to start [start:limit] or [start:limit:stride]")
    start = cursor.integer("where a slice starts")
    cursor.expect(":", "after the start of a slice")
    limit = cursor.integer("where a slice ends")
    stride = cursor.integer("the stride of a slice") if cursor.accept(":") else 1
    cursor.expect("]", "to end [start:limit] or [start:limit:stride]")
    return SliceDim(start, limit, stride)


def show_slices(dims: tuple[SliceDim, ...]) -> str:
    """All strides are written where one is not 1."""
    stepped = any(d.stride != 1 for d in dims)
    parts = (f"[{d.start}:{d.limit}:{d.stride}]" if stepped else f"[{d.start}:{d.limit}]" for d in dims)
    return "{" + ", ".join(parts) + "}"


_PAD = re.compile(r"-?\d{1,18}_-?\d{1,18}(?:_\d{1,18})?(?:x-?\d{1,18}_-?\d{1,18}(?:_\d{1,18})?)*", re.ASCII)


def padding(cursor: Cursor) -> tuple[PadDim, ...]:
    """`0_1x2_3_1`: low, high and (if not 0) interior of each dimension."""
    found = cursor.match(_PAD)
    if not found:
        if cursor.ended or cursor.text[cursor.pos] in ",}" or cursor.text[cursor.pos - 1] == "\n":
            return ()  # XLA prints nothing for a scalar, which has no dimensions to pad
        cursor.fail("low_high or low_high_interior, dimensions joined by 'x'")
    return tuple(PadDim(*(int(n) for n in dim.split("_"))) for dim in found.group().split("x"))


def show_padding(dims: tuple[PadDim, ...]) -> str:
    """All interiors are written where one is not 0."""
    interior = any(d.interior for d in dims)
    return "x".join(f"{d.low}_{d.high}" + (f"_{d.interior}" if interior else "") for d in dims)


_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
_VALUE = re.compile(r"[\dx_\-]+", re.ASCII)
_PAIR = re.compile(r"-?\d{1,18}_-?\d{1,18}\Z", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}\Z", re.ASCII)


def window(cursor: Cursor) -> Window:
    """`{size=3x3 stride=2x2 pad=1_1x0_0 lhs_dilate=... rhs_dilate=... rhs_reversal=...}`."""
    start = cursor.pos
    cursor.expect("{", "to start a window")
    fields: dict[str, list[str]] = {}
    while not cursor.accept("}"):
        at = cursor.pos
        key = cursor.word("a field of a window such as size=3x3")
        if key not in _FIELDS:
            raise cursor.error(f"unknown field of a window {key!r}; known: {', '.join(sorted(_FIELDS))}", at)
        if key in fields:
            raise cursor.error(f"field {key!r} is there twice", at)
        cursor.expect("=", f"after {key}")
        found = cursor.match(_VALUE)
        fields[key] = found.group().split("x") if found else cursor.fail("numbers such as 3x3")
    return _window(cursor, start, fields)


def _window(cursor: Cursor, start: int, fields: dict[str, list[str]]) -> Window:
    rank = len(fields.get("size", []))
    for key, values in fields.items():
        pattern = _PAIR if key == "pad" else _NUMBER
        if len(values) != rank or not all(pattern.match(v) for v in values):
            raise cursor.error(f"window field {key}={'x'.join(values)[:60]} needs {rank} entries, as size has", start)

    def ints(key: str, default: int) -> list[int]:
        return [int(v) for v in fields.get(key, [str(default)] * rank)]

    sizes, strides, reversal = ints("size", 1), ints("stride", 1), ints("rhs_reversal", 0)
    base, dilation = ints("lhs_dilate", 1), ints("rhs_dilate", 1)
    pads = [(int(low), int(high)) for low, high in (v.split("_") for v in fields.get("pad", ["0_0"] * rank))]
    return Window(
        tuple(WindowDim(sizes[i], strides[i], *pads[i], base[i], dilation[i], reversal[i] == 1) for i in range(rank))
    )


def show_window(window: Window) -> str:
    """Fields that have their default in every dimension are left out."""
    dims = window.dims
    fields = (
        ("size", [str(d.size) for d in dims], bool(dims)),
        ("stride", [str(d.stride) for d in dims], any(d.stride != 1 for d in dims)),
        ("pad", [f"{d.low}_{d.high}" for d in dims], any(d.low or d.high for d in dims)),
        ("lhs_dilate", [str(d.base_dilation) for d in dims], any(d.base_dilation != 1 for d in dims)),
        ("rhs_dilate", [str(d.window_dilation) for d in dims], any(d.window_dilation != 1 for d in dims)),
        ("rhs_reversal", [str(int(d.reversal)) for d in dims], any(d.reversal for d in dims)),
    )
    return "{" + " ".join(f"{key}={'x'.join(values)}" for key, values, shown in fields if shown) + "}"


_LABELS = re.compile(r"([bf?\d]{2,})_([io?\d]{2,})->([bf?\d]{2,})", re.ASCII)


def dim_labels(cursor: Cursor) -> ConvDims:
    """`b01f_01io->b01f`; a dimension labelled `?` is none of a convolution's (custom calls only)."""
    start = cursor.pos
    found = cursor.match(_LABELS)
    if not found:
        cursor.fail("dimension labels such as b01f_01io->b01f")
    lhs, rhs, out = found.groups()
    count = len(re.sub(r"[bf?]", "", lhs))
    spatial = "".join(map(str, range(min(count, 10))))
    for labels, special in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        named = labels.replace("?", "")
        wanted = {*special, *spatial}
        if count > 10 or len(set(named)) != len(named) or set(named) != wanted:
            raise cursor.error(f"labels {labels!r} need each of {' '.join(special + spatial)} once", start)

    def place(labels: str, label: str) -> int:
        return max(labels.find(label), 0)  # one that is not there is 0, as in XLA's protocol buffer

    def places(labels: str) -> tuple[int, ...]:
        return tuple(labels.index(s) for s in spatial)

    return ConvDims(
        place(lhs, "b"), place(lhs, "f"), places(lhs),
        place(rhs, "i"), place(rhs, "o"), places(rhs),
        place(out, "b"), place(out, "f"), places(out),
    )  # fmt: skip


def show_dim_labels(dims: ConvDims) -> str:
    """A dimension that has no label is `?`."""

    def labels(first: tuple[str, int], second: tuple[str, int], spatial: tuple[int, ...]) -> str:
        at = dict([(place, str(i)) for i, place in enumerate(spatial)] + [(place, s) for s, place in (first, second)])
        return "".join(at.get(i, "?") for i in range(max(max(at) + 1, 2)))

    lhs = labels(("b", dims.input_batch), ("f", dims.input_feature), dims.input_spatial)
    rhs = labels(("i", dims.kernel_input), ("o", dims.kernel_output), dims.kernel_spatial)
    out = labels(("b", dims.output_batch), ("f", dims.output_feature), dims.output_spatial)
    return f"{lhs}_{rhs}->{out}"
