"""Attributes of a serialized instruction: each is spelled as XLA prints it, and read as the parser reads that text.

So `codecs.py` stays the one place that knows the values of attributes.  Two tables: which attributes an opcode has, in
the order of the text, and how each is spelled from the fields of an `HloInstructionProto` (None where XLA prints none).
Source: `PrintExtraAttributes` of `xla/hlo/ir/hlo_instruction.cc` and `hlo_instructions.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.lexer import MAX_NESTING
from systolith.compiler.hlo.proto.groups import groups_text, numbers, sharding_text
from systolith.compiler.hlo.proto.literals import literal_of
from systolith.compiler.hlo.proto.metadata import quoted
from systolith.compiler.hlo.proto.shapes import shape_of
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.text.literals import show_shaped

_MAX_LABELS = 64  # more dimensions than any array has

Proto: TypeAlias = Any
_Speller: TypeAlias = Callable[[Proto, Sequence[Shape]], "str | None"]

_FFT_TYPES = dict(enumerate("FFT IFFT RFFT IRFFT".split()))
_DISTRIBUTIONS = {1: "rng_uniform", 2: "rng_normal"}
_RNG_ALGORITHMS = dict(enumerate("rng_default rng_three_fry rng_philox".split()))
_TRANSPOSES = dict(enumerate("TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT".split()))
_PRECISIONS = dict(enumerate("default high highest".split()))
_DOT_ALGORITHMS = dict(
    enumerate(
        """unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32
        dot_bf16_bf16_bf16 dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_tf32_tf32_f32
        dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64 dot_bf16_bf16_f32_x9""".split()
    )
)
_PADDINGS = dict(enumerate("PADDING_INVALID PADDING_VALID PADDING_SAME".split()))
_SCHEDULES = dict(enumerate("SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST".split()))
_API_VERSIONS = dict(
    enumerate(
        """API_VERSION_UNSPECIFIED API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING
        API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI""".split()
    )
)
_ACCURACIES = dict(enumerate("default highest".split()))
_CONVOLUTION_KINDS = {1: "fprop", 2: "dgrad", 3: "wgrad"}
_TRI_STATES = {1: "true", 2: "false"}


def _name(names: dict[int, str], number: int, what: str) -> str:
    if number not in names:
        raise HloError(f"{what} {number} is not known; known: {', '.join(f'{n} ({v})' for n, v in names.items())}")
    return names[number]


def braces(values: Iterable[int]) -> str:
    """`{1,2,3}`."""
    return "{" + numbers(values) + "}"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _number(field: str) -> _Speller:
    """A number."""
    return lambda proto, _: str(getattr(proto, field))


def _count(field: str) -> _Speller:
    """A number of groups, left out where it is 1; older modules have 0 for that."""
    return lambda proto, _: str(getattr(proto, field)) if getattr(proto, field) not in (0, 1) else None


def _list(field: str, always: bool = True) -> _Speller:
    """A list of numbers, left out where it is empty unless `always` printed."""
    return lambda proto, _: braces(getattr(proto, field)) if always or getattr(proto, field) else None


def _flag(field: str) -> _Speller:
    """A boolean, left out where it is false."""
    return lambda proto, _: "true" if getattr(proto, field) else None


def _one(field: str, names: dict[int, str], plain: int | None = None) -> _Speller:
    """A value of an enumeration, left out where it is `plain`."""
    return lambda proto, _: (
        None if getattr(proto, field) == plain else _name(names, getattr(proto, field), field.replace("_", " "))
    )


def _string(field: str) -> _Speller:
    """A string, left out where it is empty."""
    return lambda proto, _: quoted(getattr(proto, field)) if getattr(proto, field) else None


def _within(field: str, speller: _Speller) -> _Speller:
    """A speller of the message in `field`, by the one of that message."""
    return lambda proto, shapes: speller(getattr(proto, field), shapes)


def _window(proto: Proto, _: Sequence[Shape]) -> str | None:
    dims = proto.window.dimensions
    fields = {
        "size": [str(d.size) for d in dims],
        "stride": [str(d.stride) for d in dims],
        "pad": [f"{d.padding_low}_{d.padding_high}" for d in dims],
        "lhs_dilate": [str(d.base_dilation) for d in dims],
        "rhs_dilate": [str(d.window_dilation) for d in dims],
        "rhs_reversal": [str(int(d.window_reversal)) for d in dims],
    }
    plain = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
    shown = (f"{key}={'x'.join(texts)}" for key, texts in fields.items() if set(texts) - {plain.get(key)})
    return "{" + " ".join(shown) + "}" if dims else None


_LABELLED = {
    "input": {"b": "input_batch_dimension", "f": "input_feature_dimension"},
    "kernel": {"i": "kernel_input_feature_dimension", "o": "kernel_output_feature_dimension"},
    "output": {"b": "output_batch_dimension", "f": "output_feature_dimension"},
}


def _dim_labels(proto: Proto, _: Sequence[Shape]) -> str | None:
    """`b01f_01io->b01f`; a dimension that is none of the convolution's shows as `?`."""
    if not proto.HasField("convolution_dimension_numbers"):
        return None
    lhs, rhs, out = (_labels(proto.convolution_dimension_numbers, array) for array in _LABELLED)
    return f"{lhs}_{rhs}->{out}"


def _labels(dims: Proto, array: str) -> str:
    places = {label: getattr(dims, field) for label, field in _LABELLED[array].items()}
    places |= {str(i): place for i, place in enumerate(getattr(dims, f"{array}_spatial_dimensions"))}
    if not all(0 <= place < _MAX_LABELS for place in places.values()):
        raise HloError(f"dim_labels: {places} are no dimensions of the {array}")
    text = ["?"] * (max(places.values()) + 1)
    for label, place in places.items():
        text[place] = label
    return "".join(text)


def _slices(proto: Proto, _: Sequence[Shape]) -> str:
    parts = (f"[{d.start}:{d.limit}{f':{d.stride}' if d.stride != 1 else ''}]" for d in proto.slice_dimensions)
    return "{" + ", ".join(parts) + "}"


def _padding(proto: Proto, _: Sequence[Shape]) -> str:
    dims = proto.padding_config.dimensions
    inner = any(d.interior_padding for d in dims)
    return "x".join(f"{d.edge_padding_low}_{d.edge_padding_high}" + f"_{d.interior_padding}" * inner for d in dims)


def _precision(proto: Proto, _: Sequence[Shape]) -> str | None:
    values = proto.precision_config.operand_precision
    return "{" + ",".join(_name(_PRECISIONS, v, "operand precision") for v in values) + "}" if any(values) else None


def _comparison_type(proto: Proto, shapes: Sequence[Shape]) -> str | None:
    """Left out where it is the one that the operands' type implies."""
    kind = shapes[0].dtype.kind.name if shapes and shapes[0].is_array else ""
    implied = {"SIGNED": "SIGNED", "UNSIGNED": "UNSIGNED", "PRED": "UNSIGNED"}.get(kind, "FLOAT")
    return proto.comparison_type if proto.comparison_type not in ("", implied) else None


def _permuted_sizes(proto: Proto, shapes: Sequence[Shape]) -> str | None:
    """The sizes of slices of a collective-permute, one list per slice; the proto has them end to end."""
    sizes = list(proto.dynamic_slice_sizes)
    rank = shapes[0].rank if shapes else 0
    if not sizes or not rank:
        return None
    return "{" + ",".join(braces(sizes[i : i + rank]) for i in range(0, len(sizes), rank)) + "}"


def _pairs(proto: Proto, _: Sequence[Shape]) -> str:
    return "{" + ",".join(braces((p.source, p.target)) for p in proto.source_target_pairs) + "}"


def _aliasing(proto: Proto, _: Sequence[Shape]) -> str | None:
    parts = [
        f"{index_text(a.output_shape_index)}: ({a.operand_index}, {index_text(a.operand_shape_index)})"
        for a in proto.output_operand_aliasing
    ]
    return "{" + ", ".join(parts) + "}" if parts else None


def index_text(index: Iterable[int]) -> str:
    """A shape index such as `{}` or `{0, 1}`."""
    return "{" + ", ".join(map(str, index)) + "}"


def _operand_layouts(proto: Proto, _: Sequence[Shape]) -> str | None:
    if not proto.constrain_layout:
        return None
    return "{" + ", ".join(shape_of(p).text() for p in proto.operand_shapes_with_layout) + "}"


def _literal(proto: Proto, _: Sequence[Shape]) -> str | None:
    if not proto.HasField("literal"):
        return None
    shape = shape_of(proto.literal.shape)
    return show_shaped(literal_of(proto.literal, shape), shape)


def _domain(proto: Proto, _: Sequence[Shape]) -> str:
    # The message names the sides of the operand and of the users; text names where the domain is entered, the users'.
    entry, leave = sharding_text(proto.domain_exit_sharding), sharding_text(proto.domain_entry_sharding)
    return f'{{kind="sharding", entry={entry}, exit={leave}}}'


def _is_json(text: str) -> bool:
    """Whether a text is one balanced `{...}`, which prints without quotes."""
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}]', text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end() == len(text) and text.startswith("{")
    return False


def _json_or_quoted(text: str) -> str:
    return text if _is_json(text) else quoted(text)


def backend_config_text(config: bytes) -> str | None:
    """A backend's configuration: as it is where it is JSON, else quoted; None where there is none."""
    return _json_or_quoted(config.decode("utf-8", "surrogateescape")) if config else None


def frontend_text(proto: Proto) -> str | None:
    """`{a="b",c="d"}` in the order of keys."""
    found = {pair.key: pair.value for pair in proto.map}
    return "{" + ",".join(f"{key}={_json_or_quoted(found[key])}" for key in sorted(found)) + "}" if found else None


def _statistics(proto: Proto, _: Sequence[Shape]) -> str | None:
    viz = proto.statistics_viz
    parts = [f"visualizing_index={viz.stat_index_to_visualize}"]
    parts += [f"{s.stat_name}={s.stat_val:g}" for s in viz.statistics]
    return "{" + ",".join(parts) + "}" if viz.statistics else None


def _accuracy(proto: Proto, _: Sequence[Shape]) -> str | None:
    accuracy = proto.result_accuracy
    if accuracy.HasField("tolerance"):
        t = accuracy.tolerance
        return f"{{tolerance={{atol={t.atol:g},rtol={t.rtol:g},ulps={t.ulps}}}}}"
    return f"{{mode={_name(_ACCURACIES, accuracy.mode, 'result accuracy')}}}" if accuracy.mode else None


def _api_version(proto: Proto, _: Sequence[Shape]) -> str | None:
    version = proto.custom_call_api_version
    return None if version == 1 else _name(_API_VERSIONS, version, "api version")


def _replication(proto: Proto, _: Sequence[Shape]) -> str | None:
    flags = proto.parameter_replication.replicated_at_leaf_buffers
    return "{" + ",".join(map(_boolean, flags)) + "}" if flags else None


def _prefetch(proto: Proto, _: Sequence[Shape]) -> str | None:
    key = "cross_program_prefetch_index"
    return str(getattr(proto, key)) if proto.HasField(key) else None


def _thread(proto: Proto, _: Sequence[Shape]) -> str | None:
    thread = proto.async_execution_thread
    return None if thread in ("", "main") else quoted(thread)


_LEAF = -1  # key of an array in the tree of an original value, where the others are places in a tuple


def _origin(proto: Proto, _: Sequence[Shape]) -> str | None:
    """The tree of `OriginalValueProto`: `{({"a"}, {"b" {1}})}`."""
    value = proto.original_value
    if value.is_synthetic_call:
        return "{[synthetic_call]}"
    if not value.elements:
        return None
    root: dict[int, Any] = {}
    for element in value.elements:
        node = root
        for step in element.shape_index[:MAX_NESTING]:
            node = node.setdefault(step, {})
        node[_LEAF] = element.original_array
    return "{" + _origin_text(root) + "}"


def _origin_text(node: dict[int, Any]) -> str:
    if _LEAF in node:
        return original_array_text(node[_LEAF]) if node[_LEAF].instruction_name else "{}"
    return "(" + ", ".join(_origin_text(node[step]) for step in sorted(node)) + ")"


def original_array_text(proto: Proto) -> str:
    """An `OriginalArrayProto`: `{"name" {1,0}}`."""
    index = f" {braces(proto.shape_index)}" if proto.shape_index else ""
    return "{" + quoted(proto.instruction_name) + index + "}"


def _dot_list(field: str, always: bool = False) -> _Speller:
    """A list of a dot's dimension numbers, which a ragged dot has one level deeper."""

    def spell(proto: Proto, shapes: Sequence[Shape]) -> str | None:
        ragged = proto.opcode == "ragged-dot"
        dims = proto.ragged_dot_dimension_numbers.dot_dimension_numbers if ragged else proto.dot_dimension_numbers
        return _list(field, always)(dims, shapes)

    return spell


# How each attribute is spelled.  `OPCODE.KEY` is another spelling of KEY for that opcode.
_SPELLERS: dict[str, _Speller] = {
    **{key: _list(key) for key in ("dimensions", "dynamic_slice_sizes", "fft_length")},
    **{key: _number(key) for key in "exponent_bits mantissa_bits feature_index delta k num_carries".split()},
    **{
        key: _flag(key)
        for key in """constrain_layout use_global_device_ids is_host_transfer is_stable indices_are_sorted
        unique_indices custom_call_has_side_effect is_composite is_reverse""".split()
    },
    **{key: _string(key) for key in ("infeed_config", "outfeed_config")},
    **{
        key: _within("gather_dimension_numbers", _list(key))
        for key in "offset_dims collapsed_slice_dims start_index_map".split()
    },
    **{
        key: _within("gather_dimension_numbers", _list(key, always=False))
        for key in ("operand_batching_dims", "start_indices_batching_dims")
    },
    **{
        key: _within("scatter_dimension_numbers", _list(key))
        for key in "update_window_dims inserted_window_dims scatter_dims_to_operand_dims".split()
    },
    **{
        key: _within("scatter_dimension_numbers", _list(key, always=False))
        for key in ("input_batching_dims", "scatter_indices_batching_dims")
    },
    "gather.index_vector_dim": _within("gather_dimension_numbers", _number("index_vector_dim")),
    "scatter.index_vector_dim": _within("scatter_dimension_numbers", _number("index_vector_dim")),
    "gather.slice_sizes": _list("gather_slice_sizes"),
    "slice_sizes": _permuted_sizes,
    "lhs_batch_dims": _dot_list("lhs_batch_dimensions"),
    "lhs_contracting_dims": _dot_list("lhs_contracting_dimensions", always=True),
    "rhs_batch_dims": _dot_list("rhs_batch_dimensions"),
    "rhs_contracting_dims": _dot_list("rhs_contracting_dimensions", always=True),
    "lhs_ragged_dims": _within("ragged_dot_dimension_numbers", _list("lhs_ragged_dimensions")),
    "rhs_group_dims": _within("ragged_dot_dimension_numbers", _list("rhs_group_dimensions", always=False)),
    "operand_precision": _precision,
    "algorithm": _within("precision_config", _one("algorithm", _DOT_ALGORITHMS, plain=0)),
    "rng-bit-generator.algorithm": _one("rng_algorithm", _RNG_ALGORITHMS),
    "distribution": _one("distribution", _DISTRIBUTIONS),
    "fft_type": _one("fft_type", _FFT_TYPES),
    "direction": lambda proto, _: proto.comparison_direction,
    "type": _comparison_type,
    **{key: _within("triangular_solve_options", _flag(key)) for key in ("left_side", "lower", "unit_diagonal")},
    "transpose_a": _within("triangular_solve_options", _one("transpose_a", _TRANSPOSES, plain=0)),
    "cholesky.lower": _within("cholesky_options", _flag("lower")),
    "channel_id": lambda proto, _: str(proto.channel_id) if proto.channel_id > 0 else None,
    "replica_groups": lambda proto, _: groups_text(proto),
    "source_target_pairs": _pairs,
    "all-to-all.dimensions": _list("dimensions", always=False),
    "iota_dimension": lambda proto, _: numbers(proto.dimensions),
    "inferred_dimension": lambda proto, _: numbers(proto.dimensions) or None,
    "slice": _slices,
    "index": _number("tuple_index"),
    "largest": lambda proto, _: _boolean(proto.largest),
    "outfeed_shape": lambda proto, _: shape_of(proto.outfeed_shape).text(),
    "window": _window,
    "dim_labels": _dim_labels,
    "feature_group_count": _count("feature_group_count"),
    "batch_group_count": _count("batch_group_count"),
    "convolution_kind": _one("conv_kind", _CONVOLUTION_KINDS, plain=0),
    "padding": _padding,
    "padding_type": _one("padding_type", _PADDINGS, plain=0),
    "custom_call_target": lambda proto, _: quoted(proto.custom_call_target),
    "operand_layout_constraints": _operand_layouts,
    "literal": _literal,
    "output_to_operand_aliasing": _aliasing,
    "schedule": _one("custom_call_schedule", _SCHEDULES, plain=0),
    "api_version": _api_version,
    "domain": _domain,
    "epsilon": lambda proto, _: f"{proto.epsilon:g}",
    "kind": lambda proto, _: proto.fusion_kind,
    "parameter_replication": _replication,
    "cross_program_prefetch_index": _prefetch,
    "is_associative": _one("is_associative", _TRI_STATES, plain=0),
    "async_execution_thread": _thread,
    "sharding": lambda proto, _: sharding_text(proto.sharding) if proto.HasField("sharding") else None,
    "frontend_attributes": lambda proto, _: frontend_text(proto.frontend_attributes),
    "statistics": _statistics,
    "result_accuracy": _accuracy,
    "origin": _origin,
}

_COLLECTIVE = "channel_id replica_groups constrain_layout"
_DOT = "lhs_batch_dims lhs_contracting_dims rhs_batch_dims rhs_contracting_dims"
_PRECISION = "operand_precision algorithm"
_CONVOLUTION = "window dim_labels feature_group_count batch_group_count convolution_kind operand_precision"
_ALL_REDUCE = f"{_COLLECTIVE} use_global_device_ids"
_ALL_GATHER = f"{_COLLECTIVE} dimensions use_global_device_ids"
_TRANSFER = "channel_id is_host_transfer"
_PERMUTE = "channel_id source_target_pairs slice_sizes"

# The attributes that an opcode has of its own, in the order in which they print.
_OWN: dict[str, str] = {
    **dict.fromkeys("broadcast concatenate get-dimension-size map reduce reverse transpose".split(), "dimensions"),
    "set-dimension-size": "dimensions",
    "sort": "dimensions is_stable",
    "iota": "iota_dimension",
    "reshape": "inferred_dimension",
    "slice": "slice",
    "dynamic-slice": "dynamic_slice_sizes",
    "get-tuple-element": "index",
    "compare": "direction type",
    "fft": "fft_type fft_length",
    "triangular-solve": "left_side lower unit_diagonal transpose_a",
    "cholesky": "lower",
    "reduce-precision": "exponent_bits mantissa_bits",
    **dict.fromkeys("send send-done recv recv-done".split(), _TRANSFER),
    **dict.fromkeys(("all-reduce", "all-reduce-start"), _ALL_REDUCE),
    **dict.fromkeys(("all-gather", "all-gather-start"), _ALL_GATHER),
    "reduce-scatter": f"{_ALL_REDUCE} dimensions",
    "all-to-all": f"{_COLLECTIVE} dimensions",
    **dict.fromkeys(("ragged-all-to-all", "collective-broadcast"), _COLLECTIVE),
    **dict.fromkeys(("collective-permute", "collective-permute-start"), _PERMUTE),
    "infeed": "infeed_config",
    "outfeed": "outfeed_shape outfeed_config",
    "convolution": _CONVOLUTION,
    **dict.fromkeys(("reduce-window", "select-and-scatter"), "window"),
    "custom-call": f"""{_CONVOLUTION} padding_type custom_call_target operand_layout_constraints
        custom_call_has_side_effect literal output_to_operand_aliasing schedule api_version""",
    "pad": "padding",
    "gather": """offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims
        index_vector_dim slice_sizes indices_are_sorted""",
    "scatter": """update_window_dims inserted_window_dims scatter_dims_to_operand_dims input_batching_dims
        scatter_indices_batching_dims index_vector_dim indices_are_sorted unique_indices""",
    **dict.fromkeys(("dot", "scaled-dot"), f"{_DOT} {_PRECISION}"),
    "ragged-dot": f"{_DOT} lhs_ragged_dims rhs_group_dims {_PRECISION}",
    "domain": "domain",
    "rng": "distribution",
    "rng-bit-generator": "algorithm",
    "rng-get-and-update-state": "delta",
    **dict.fromkeys("batch-norm-grad batch-norm-inference batch-norm-training".split(), "epsilon feature_index"),
    "fusion": "kind output_to_operand_aliasing",
    "parameter": "parameter_replication",
    "copy-start": "cross_program_prefetch_index",
    "topk": "k largest",
    "scan": "dimensions num_carries is_reverse is_associative",
    "async-start": "async_execution_thread output_to_operand_aliasing",
}
_AFTER_CALLS = "is_composite sharding frontend_attributes".split()
_AFTER_CONTROL = "statistics result_accuracy origin".split()


def own_attributes(proto: Proto, shapes: Sequence[Shape]) -> Iterator[tuple[str, str]]:
    """Name and text of the attributes that only this opcode has.

    Args:
        proto: the instruction.
        shapes: shapes of its operands.

    Raises:
        HloError: a value is none that XLA knows.
    """
    return _spelled(_OWN.get(proto.opcode, "").split(), proto, shapes)


def common_attributes(proto: Proto) -> Iterator[tuple[str, str]]:
    """Name and text of attributes that any opcode may have and that print after the called computations."""
    return _spelled(_AFTER_CALLS, proto, ())


def last_attributes(proto: Proto) -> Iterator[tuple[str, str]]:
    """Name and text of attributes that any opcode may have and that print after the control predecessors."""
    return _spelled(_AFTER_CONTROL, proto, ())


def _spelled(keys: Iterable[str], proto: Proto, shapes: Sequence[Shape]) -> Iterator[tuple[str, str]]:
    for key in keys:
        speller = _SPELLERS.get(f"{proto.opcode}.{key}") or _SPELLERS[key]
        text = speller(proto, shapes)
        if text is not None:
            yield key, text
