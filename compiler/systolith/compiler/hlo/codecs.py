"""Attributes as text: one table, from an attribute's name to how it is read and written.

Names that are not in the table are kept as text (`Raw`) and print back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

from systolith.compiler.hlo.attributes import (
    Attribute,
    ComputationName,
    ConvDims,
    Metadata,
    PadDim,
    Raw,
    SliceDim,
    Window,
    WindowDim,
)
from systolith.compiler.hlo.ir import Computation, ProgramShape, Style
from systolith.compiler.hlo.lexer import Cursor
from systolith.compiler.hlo.shape import Shape, with_index_comments

T = TypeVar("T")


@dataclass(frozen=True)
class Codec:
    """How an attribute is read from a cursor, and written."""

    parse: Callable[[Cursor], object]
    show: Callable[[Attribute, Style], str]


def _plain(show: Callable[[T], str]) -> Callable[[Attribute, Style], str]:
    return lambda value, style: show(cast(T, value))


def _braced(cursor: Cursor, item: Callable[[Cursor], T], what: str) -> tuple[T, ...]:
    """`{item, item, ...}`."""
    cursor.expect("{", f"to start a list of {what}")
    items: list[T] = []
    while not cursor.accept("}"):
        if items:
            cursor.expect(",", f"or '}}' in a list of {what}")
        items.append(item(cursor))
    return tuple(items)


def _integer(cursor: Cursor) -> int:
    return cursor.integer("an integer")


def _integers(cursor: Cursor) -> tuple[int, ...]:
    return _braced(cursor, _integer, "integers")


def _boolean(cursor: Cursor) -> bool:
    start = cursor.pos
    word = cursor.word("true or false")
    if word not in ("true", "false"):
        raise cursor.error(f"expected true or false, got {word!r}", start)
    return word == "true"


def _word(cursor: Cursor) -> str:
    return cursor.word("a word")


def _string(cursor: Cursor) -> str:
    return cursor.string("a quoted string")


def _show_list(items: Iterable[object], separator: str = ",") -> str:
    return "{" + separator.join(map(str, items)) + "}"


_SLICE = re.compile(r"\[\s*(\d{1,19})\s*:\s*(\d{1,19})\s*(?::\s*(\d{1,19})\s*)?\]")


def _slice_dim(cursor: Cursor) -> SliceDim:
    found = cursor.match(_SLICE)
    if not found:
        cursor.fail("[start:limit] or [start:limit:stride]")
    start, limit, stride = found.groups()
    return SliceDim(int(start), int(limit), int(stride or 1))


def _show_slice(dims: tuple[SliceDim, ...]) -> str:
    parts = (f"[{d.start}:{d.limit}]" if d.stride == 1 else f"[{d.start}:{d.limit}:{d.stride}]" for d in dims)
    return "{" + ", ".join(parts) + "}"


_PAD = re.compile(r"-?\d{1,19}_-?\d{1,19}(?:_\d{1,19})?(?:x-?\d{1,19}_-?\d{1,19}(?:_\d{1,19})?)*")


def _padding(cursor: Cursor) -> tuple[PadDim, ...]:
    found = cursor.match(_PAD)
    if not found:
        if cursor.ended or cursor.at(","):
            return ()  # a scalar has no dimensions to pad
        cursor.fail("low_high or low_high_interior, dimensions joined by 'x'")
    return tuple(PadDim(*(int(n) for n in dim.split("_"))) for dim in found.group().split("x"))


def _show_padding(dims: tuple[PadDim, ...]) -> str:
    return "x".join(f"{d.low}_{d.high}" + (f"_{d.interior}" if d.interior else "") for d in dims)


_WINDOW_FIELD = re.compile(r"(\w+)=([\dx_\-]+)")
_PAIR = re.compile(r"-?\d{1,18}_-?\d{1,18}\Z")
_NUMBER = re.compile(r"-?\d{1,18}\Z")


def _window(cursor: Cursor) -> Window:
    start = cursor.pos
    cursor.expect("{", "to start a window")
    fields: dict[str, list[str]] = {}
    while not cursor.accept("}"):
        found = cursor.match(_WINDOW_FIELD)
        if not found:
            cursor.fail("a field of a window such as size=3x3")
        fields[found.group(1)] = found.group(2).split("x")
    allowed = {"size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"}
    if unknown := fields.keys() - allowed:
        raise cursor.error(f"unknown field of a window {min(unknown)!r}; known: {', '.join(sorted(allowed))}", start)
    rank = len(fields.get("size", []))
    for key, values in fields.items():
        pattern = _PAIR if key == "pad" else _NUMBER
        if len(values) != rank or not all(pattern.match(v) for v in values):
            raise cursor.error(f"window field {key}={'x'.join(values)} needs {rank} entries, as size has", start)

    def ints(key: str, default: int) -> list[int]:
        return [int(v) for v in fields.get(key, [str(default)] * rank)]

    sizes, strides, reversal = ints("size", 1), ints("stride", 1), ints("rhs_reversal", 0)
    base, window = ints("lhs_dilate", 1), ints("rhs_dilate", 1)
    pads = [(int(low), int(high)) for low, high in (v.split("_") for v in fields.get("pad", ["0_0"] * rank))]
    if any(n < 1 for n in [*strides, *base, *window]) or any(n < 0 for n in sizes):
        raise cursor.error("strides and dilations of a window are at least 1, and sizes at least 0", start)
    return Window(
        tuple(WindowDim(sizes[i], strides[i], *pads[i], base[i], window[i], bool(reversal[i])) for i in range(rank))
    )


def _show_window(window: Window) -> str:
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


_LABELS = re.compile(r"([bf\d]+)_([io\d]+)->([bf\d]+)")


def _dim_labels(cursor: Cursor) -> ConvDims:
    start = cursor.pos
    found = cursor.match(_LABELS)
    if not found:
        cursor.fail("dimension labels such as b01f_01io->b01f")
    rank = len(found.group(1))
    spatial = "".join(map(str, range(rank - 2)))
    for labels, special in zip(found.groups(), ("bf", "io", "bf"), strict=True):
        if sorted(labels) != sorted(special + spatial) or rank - 2 > 10:
            raise cursor.error(f"labels {labels!r} need each of {' '.join(special + spatial)} once", start)
    lhs, rhs, out = found.groups()

    def places(labels: str) -> tuple[int, ...]:
        return tuple(labels.index(s) for s in spatial)

    return ConvDims(
        lhs.index("b"), lhs.index("f"), places(lhs),
        rhs.index("i"), rhs.index("o"), places(rhs),
        out.index("b"), out.index("f"), places(out),
    )  # fmt: skip


def _show_dim_labels(dims: ConvDims) -> str:
    def labels(first: tuple[str, int], second: tuple[str, int], spatial: tuple[int, ...]) -> str:
        at = dict([(place, str(i)) for i, place in enumerate(spatial)] + [(place, s) for s, place in (first, second)])
        return "".join(at[i] for i in range(len(at)))

    lhs = labels(("b", dims.input_batch), ("f", dims.input_feature), dims.input_spatial)
    rhs = labels(("i", dims.kernel_input), ("o", dims.kernel_output), dims.kernel_spatial)
    out = labels(("b", dims.output_batch), ("f", dims.output_feature), dims.output_spatial)
    return f"{lhs}_{rhs}->{out}"


def _groups(cursor: Cursor) -> tuple[tuple[int, ...], ...] | Raw:
    """`{{0,1},{2,3}}`; the forms `{}` and `[2,4]<=[8]` stay text."""
    if not cursor.at("{{"):
        return Raw(cursor.balanced())
    return _braced(cursor, _integers, "groups")


def _show_groups(value: Attribute, style: Style) -> str:
    if isinstance(value, Raw):
        return value
    groups = cast("tuple[tuple[int, ...], ...]", value)
    return _show_list(map(_show_list, groups))


_METADATA = re.compile(r'([\w\-]+)=(?:"((?:[^"\\]|\\.)*)"|(\{[^{}]*\})|([^\s{}"]+))')
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_SHOWN = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def unescape(text: str) -> str:
    r"""A C-escaped string (`\"`, `\n`, `\303\251` for UTF-8 bytes) as text."""
    if "\\" not in text:
        return text
    data = _ESCAPE.sub(lambda m: chr(int(m[1], 8) & 255) if m[1] else _ESCAPES.get(m[2], m[2]), text)
    try:
        return data.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return data


def escape(text: str) -> str:
    """The opposite of `unescape`; what is not printable ASCII becomes octal UTF-8 bytes."""
    if text.isascii() and text.isprintable() and not any(c in text for c in "\"'\\"):
        return text
    shown: list[str] = []
    for character in text:
        if character in _SHOWN:
            shown.append(_SHOWN[character])
        elif character.isascii() and character.isprintable():
            shown.append(character)
        else:
            shown.extend(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
    return "".join(shown)


def _metadata(cursor: Cursor) -> Metadata:
    cursor.expect("{", "to start metadata")
    fields: Metadata = {}
    while not cursor.accept("}"):
        found = cursor.match(_METADATA)
        if not found:
            cursor.fail("key=value in metadata")
        key, text, braces, word = found.groups()
        if text is not None:
            fields[key] = unescape(text)
        elif word is not None and _NUMBER.match(word):
            fields[key] = int(word)
        else:
            fields[key] = Raw(braces or word)
    return fields


def _show_metadata(fields: Metadata) -> str:
    def show(value: str | int | Raw) -> str:
        return str(value) if isinstance(value, int | Raw) else f'"{escape(value)}"'

    return "{" + " ".join(f"{key}={show(value)}" for key, value in fields.items()) + "}"


def _computation(cursor: Cursor) -> ComputationName:
    return ComputationName(cursor.name("the name of a computation"))


def _computations(cursor: Cursor) -> tuple[ComputationName, ...]:
    return _braced(cursor, _computation, "computations")


def _one_or_more_computations(cursor: Cursor) -> ComputationName | tuple[ComputationName, ...]:
    """`%name`, or `{%a, %b}` as custom calls have."""
    return _computations(cursor) if cursor.at("{") else _computation(cursor)


def _show_computation(value: Attribute, style: Style) -> str:
    mark = "%" if style.percent else ""
    if isinstance(value, Computation):
        return mark + value.name
    return "{" + ", ".join(mark + c.name for c in cast("tuple[Computation, ...]", value)) + "}"


def _instruction_names(cursor: Cursor) -> tuple[str, ...]:
    return _braced(cursor, lambda at: at.name("the name of an instruction"), "instructions")


def _show_names(value: Attribute, style: Style) -> str:
    mark = "%" if style.percent else ""
    return "{" + ", ".join(mark + str(name) for name in cast("tuple[str, ...]", value)) + "}"


def _program_shape(cursor: Cursor) -> ProgramShape:
    """`{(f32[2]{0}, s32[])->f32[2]{0}}`."""
    cursor.expect("{", "to start a program shape")
    parameters = cursor.shape("the shapes of parameters")
    cursor.expect("->", "after the shapes of parameters")
    result = cursor.shape("the shape of the result")
    cursor.expect("}", "to end a program shape")
    return ProgramShape(parameters.elements, result)


def _show_program_shape(shape: ProgramShape) -> str:
    return "{(" + with_index_comments([p.text() for p in shape.parameters]) + f")->{shape.result.text()}}}"


INT = Codec(_integer, _plain(str))
BOOL = Codec(_boolean, _plain(lambda value: "true" if value else "false"))
INTS = Codec(_integers, _plain(_show_list))
WORD = Codec(_word, _plain(str))
WORDS = Codec(lambda cursor: _braced(cursor, _word, "words"), _plain(_show_list))
STRING = Codec(_string, _plain(lambda value: f'"{value}"'))
RAW = Codec(lambda cursor: Raw(cursor.balanced()), _plain(str))
COMPUTATION = Codec(_computation, _show_computation)
COMPUTATIONS = Codec(_computations, _show_computation)
GROUPS = Codec(_groups, _show_groups)


def _one_of(*words: str) -> Codec:
    """A word that is one of these."""

    def parse(cursor: Cursor) -> str:
        start = cursor.pos
        word = cursor.word(f"one of {', '.join(words)}")
        if word not in words:
            raise cursor.error(f"expected one of {', '.join(words)}, got {word!r}", start)
        return word

    return Codec(parse, _plain(str))


def _show_shape(shape: Shape) -> str:
    return shape.text()


CODECS: dict[str, Codec] = {
    **dict.fromkeys(
        """index iota_dimension channel_id index_vector_dim feature_group_count batch_group_count exponent_bits
        mantissa_bits dimension k feature_index delta""".split(),
        INT,
    ),
    **dict.fromkeys(
        """lower left_side unit_diagonal is_stable largest indices_are_sorted unique_indices use_global_device_ids
        custom_call_has_side_effect is_host_transfer is_composite constrain_layout""".split(),
        BOOL,
    ),
    **dict.fromkeys(
        """dimensions lhs_batch_dims rhs_batch_dims lhs_contracting_dims rhs_contracting_dims offset_dims
        collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims slice_sizes
        update_window_dims inserted_window_dims scatter_dims_to_operand_dims input_batching_dims
        scatter_indices_batching_dims dynamic_slice_sizes fft_length""".split(),
        INTS,
    ),
    **dict.fromkeys(("direction", "algorithm"), WORD),
    "type": _one_of("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    "kind": _one_of("kLoop", "kInput", "kOutput", "kCustom"),
    "fft_type": _one_of("FFT", "IFFT", "RFFT", "IRFFT"),
    "transpose_a": _one_of("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "distribution": _one_of("rng_uniform", "rng_normal"),
    "operand_precision": WORDS,
    **dict.fromkeys("custom_call_target infeed_config outfeed_config execution_thread".split(), STRING),
    **dict.fromkeys("to_apply condition body true_computation false_computation select scatter".split(), COMPUTATION),
    **dict.fromkeys(("branch_computations", "called_computations"), COMPUTATIONS),
    "calls": Codec(_one_or_more_computations, _show_computation),
    "control-predecessors": Codec(_instruction_names, _show_names),
    **dict.fromkeys(("replica_groups", "source_target_pairs"), GROUPS),
    "slice": Codec(lambda cursor: _braced(cursor, _slice_dim, "slices"), _plain(_show_slice)),
    "padding": Codec(_padding, _plain(_show_padding)),
    "window": Codec(_window, _plain(_show_window)),
    "dim_labels": Codec(_dim_labels, _plain(_show_dim_labels)),
    "metadata": Codec(_metadata, _plain(_show_metadata)),
    "outfeed_shape": Codec(lambda cursor: cursor.shape(), _plain(_show_shape)),
    "entry_computation_layout": Codec(_program_shape, _plain(_show_program_shape)),
}


def codec(key: str) -> Codec:
    """How the attribute called `key` is read and written."""
    return CODECS.get(key, RAW)
