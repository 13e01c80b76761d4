"""Attributes as text: one table, from an attribute's name to how it is read and written.

Which opcode has which attributes: `opcode_attributes.py`.  An attribute that nothing here interprets is kept as text
(`Raw`), its brackets checked, and prints back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

from systolith.compiler.hlo.attributes import Raw
from systolith.compiler.hlo.escapes import escape, unescape
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, ProgramShape, Style
from systolith.compiler.hlo.lexer import MAX_NESTING, NAME, Cursor
from systolith.compiler.hlo.shape import Shape, parse_shape, with_index_comments
from systolith.compiler.hlo.text import codecs_devices as devices
from systolith.compiler.hlo.text import codecs_fields as fields
from systolith.compiler.hlo.text import codecs_windows as windows
from systolith.compiler.hlo.text.literals import parse_literal

__all__ = ["CODECS", "Codec", "codec", "escape", "unescape"]

T = TypeVar("T")

_NAMES = re.compile(rf"\{{\s*(?:%?{NAME}\s*[,}}]|\}})", re.ASCII)
_LISTS = re.compile(r"\{\s*\{")


class AttributeCursor(Cursor):
    """A cursor over attributes, some of which name computations and instructions."""

    def computation(self) -> Computation:
        """The computation that is named or written here; a parser of modules knows them."""
        self.fail("no name of a computation, since there is no module here,")

    def instruction(self, what: str) -> Instruction:
        """The instruction that is named here; a parser of modules knows them."""
        self.fail("no name of an instruction, since there is no module here,")


C = TypeVar("C", bound=Cursor)


@dataclass(frozen=True)
class Codec:
    """How an attribute is read from a cursor, and written."""

    parse: Callable[[AttributeCursor], object]
    show: Callable[[Attribute, Style], str]


def _plain(show: Callable[[T], str]) -> Callable[[Attribute, Style], str]:
    return lambda value, style: show(cast(T, value))


def _braced(cursor: C, item: Callable[[C], T], what: str) -> tuple[T, ...]:
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
    return cursor.integers("integers")


def _boolean(cursor: Cursor) -> bool:
    start = cursor.pos
    word = cursor.word("true or false")
    if word not in ("true", "false"):
        raise cursor.error(f"expected true or false, got {word!r}", start)
    return word == "true"


def _booleans(cursor: Cursor) -> tuple[bool, ...]:
    """`{true,false}`, or one without braces."""
    return _braced(cursor, _boolean, "booleans") if cursor.at("{") else (_boolean(cursor),)


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def _show_booleans(values: tuple[bool, ...]) -> str:
    return _show_list(map(_show_boolean, values))


def _word(cursor: Cursor) -> str:
    return cursor.word("a word")


def _string(cursor: Cursor) -> str:
    return cursor.string("a quoted string")


def _show_string(value: str) -> str:
    return f'"{escape(value)}"'


def _show_list(items: Iterable[object], separator: str = ",") -> str:
    return "{" + separator.join(map(str, items)) + "}"


def _show_int_lists(value: tuple[tuple[int, ...], ...]) -> str:
    return _show_list(map(_show_list, value))


def _domain(cursor: Cursor) -> None:
    """`{kind="sharding", entry={replicated}, exit={maximal device=0}}`."""
    start = cursor.pos
    cursor.expect("{", "to start a domain")
    found: set[str] = set()
    while not cursor.accept("}"):
        cursor.accept(",")
        at = cursor.pos
        key = cursor.word("kind=, entry= or exit= of a domain")
        if key in found or key not in ("kind", "entry", "exit"):
            raise cursor.error(f"a domain has kind, entry and exit once each, got {key!r}", at)
        found.add(key)
        cursor.expect("=", f"after {key}")
        if key != "kind":
            devices.sharding(cursor)
        elif cursor.string("the kind of a domain") != "sharding":
            raise cursor.error('the kind of a domain is "sharding"', at)
    if len(found) != 3:
        raise cursor.error("a domain has kind, entry and exit", start)


def _literal(cursor: Cursor, depth: int = 0) -> None:
    """`s32[2]{0} {1, 2}`, or several in brackets."""
    if not cursor.at("(") or depth > MAX_NESTING:
        parse_literal(cursor, parse_shape(cursor, "the shape of a literal"))
        return
    cursor.expect("(", "to start a literal")
    count = 0
    while not cursor.accept(")"):
        if count:
            cursor.expect(",", "between the elements of a literal")
        _literal(cursor, depth + 1)
        count += 1


def _slice_sizes(cursor: Cursor) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    return devices.int_lists(cursor) if _LISTS.match(cursor.text, cursor.pos) else _integers(cursor)


def _show_slice_sizes(value: tuple[int | tuple[int, ...], ...]) -> str:
    return _show_list(_show_list(item) if isinstance(item, tuple) else item for item in value)


def _show_config(value: str) -> str:
    return str(value) if isinstance(value, Raw) else _show_string(value)


def _pairs(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    start = cursor.pos
    pairs = devices.int_lists(cursor)
    if any(len(pair) != 2 for pair in pairs):
        raise cursor.error("expected pairs {source,target}", start)
    return pairs


def _computation(cursor: AttributeCursor) -> Computation:
    return cursor.computation()


def _computations(cursor: AttributeCursor) -> tuple[Computation, ...]:
    return _braced(cursor, _computation, "computations")


def _one_or_more_computations(cursor: AttributeCursor) -> Computation | tuple[Computation, ...]:
    """`%name`, `{%a, %b}` as custom calls of older texts have, or a computation written in place."""
    return _computations(cursor) if _NAMES.match(cursor.text, cursor.pos) else _computation(cursor)


def _show_computation(value: Attribute, style: Style) -> str:
    mark = "%" if style.percent else ""
    if isinstance(value, Computation):
        return mark + value.name
    return "{" + ", ".join(mark + c.name for c in cast("tuple[Computation, ...]", value)) + "}"


def _instruction_names(cursor: AttributeCursor) -> tuple[str, ...]:
    return _braced(cursor, lambda at: cursor.instruction("the name of an instruction").name, "instructions")


def _show_names(value: Attribute, style: Style) -> str:
    mark = "%" if style.percent else ""
    return "{" + ", ".join(mark + str(name) for name in cast("tuple[str, ...]", value)) + "}"


def _program_shape(cursor: Cursor) -> ProgramShape:
    """`{(f32[2]{0}, s32[])->f32[2]{0}}`."""
    cursor.expect("{", "to start a program shape")
    if not cursor.at("("):
        cursor.fail("'(' and the shapes of parameters")
    parameters = parse_shape(cursor, "the shapes of parameters")
    cursor.expect("->", "after the shapes of parameters")
    result = parse_shape(cursor, "the shape of the result")
    cursor.expect("}", "to end a program shape")
    return ProgramShape(parameters.elements, result)


def _show_program_shape(shape: ProgramShape) -> str:
    return "{(" + with_index_comments([p.text() for p in shape.parameters]) + f")->{shape.result.text()}}}"


def _shapes(cursor: Cursor) -> tuple[Shape, ...]:
    return _braced(cursor, parse_shape, "shapes")


def _show_shapes(shapes: tuple[Shape, ...]) -> str:
    return "{" + ", ".join(shape.text() for shape in shapes) + "}"


def _one_of(words: str, any_case: bool = False) -> Codec:
    """A word that is one of these; `any_case`: however it is capitalised."""
    known = words.split()
    return Codec(lambda cursor: cursor.one_of(known, any_case), _plain(str))


def _kept(check: Callable[[Cursor], None]) -> Codec:
    """A codec that checks the text, and keeps it."""

    def parse(cursor: Cursor) -> Raw:
        start = cursor.pos
        check(cursor)
        return Raw(cursor.text[start : cursor.pos].rstrip())

    return Codec(parse, _plain(str))


def _precisions(cursor: Cursor) -> tuple[str, ...]:
    return _braced(cursor, lambda at: at.one_of(("default", "high", "highest"), any_case=True), "precisions")


INT = Codec(_integer, _plain(str))
NUMBER = Codec(lambda cursor: Raw(cursor.number("a number")), _plain(str))
BOOL = Codec(_boolean, _plain(_show_boolean))
BOOLS = Codec(_booleans, _plain(_show_booleans))
INTS = Codec(_integers, _plain(_show_list))
WORD = Codec(_word, _plain(str))
STRING = Codec(_string, _plain(_show_string))
RAW = Codec(lambda cursor: Raw(cursor.balanced()), _plain(str))
COMPUTATION = Codec(_computation, _show_computation)
COMPUTATIONS = Codec(_computations, _show_computation)
OPERAND_ALIASES = Codec(fields.aliases, _plain(fields.show_operand_aliases))

CODECS: dict[str, Codec] = {
    **dict.fromkeys(
        """index iota_dimension channel_id index_vector_dim feature_group_count batch_group_count exponent_bits
        mantissa_bits dimension k feature_index delta replica_count num_partitions num_carries inferred_dimension
        cross_program_prefetch_index""".split(),
        INT,
    ),
    **dict.fromkeys(
        """lower left_side unit_diagonal is_stable largest indices_are_sorted unique_indices use_global_device_ids
        custom_call_has_side_effect is_host_transfer is_composite constrain_layout is_reverse is_associative
        is_scheduled alias_passthrough_params""".split(),
        BOOL,
    ),
    **dict.fromkeys(
        """dimensions lhs_batch_dims rhs_batch_dims lhs_contracting_dims rhs_contracting_dims offset_dims
        collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims
        update_window_dims inserted_window_dims scatter_dims_to_operand_dims input_batching_dims
        scatter_indices_batching_dims dynamic_slice_sizes fft_length lhs_ragged_dims rhs_group_dims""".split(),
        INTS,
    ),
    # Sizes of a gather's slices, or of each operand of a collective permute of slices.
    "slice_sizes": Codec(_slice_sizes, _plain(_show_slice_sizes)),
    **dict.fromkeys(
        ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output"), BOOLS
    ),
    "parameter_replication": Codec(lambda cursor: _braced(cursor, _boolean, "booleans"), BOOLS.show),
    "epsilon": NUMBER,
    **dict.fromkeys(("conv_kind", "convolution_kind"), WORD),
    "mode": _one_of("cross_replica cross_partition cross_replica_and_partition flattened_id"),
    # Of a dot, and of rng-bit-generator.
    "algorithm": _one_of(
        """dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16
        dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32
        dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64 dot_unset rng_default rng_three_fry rng_philox""",
        any_case=True,
    ),
    "direction": _one_of("EQ NE GE GT LE LT"),
    "type": _one_of("FLOAT TOTALORDER SIGNED UNSIGNED"),
    "kind": _one_of("kLoop kInput kOutput kCustom"),
    "fft_type": _one_of("FFT IFFT RFFT IRFFT"),
    "transpose_a": _one_of("NO_TRANSPOSE TRANSPOSE ADJOINT TRANSPOSE_INVALID"),
    "distribution": _one_of("rng_uniform rng_normal rng_invalid", any_case=True),
    "padding_type": _one_of("PADDING_INVALID PADDING_VALID PADDING_SAME"),
    "schedule": _one_of("SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST", any_case=True),
    "api_version": _one_of(
        """API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING API_VERSION_STATUS_RETURNING_UNIFIED
        API_VERSION_TYPED_FFI""",
        any_case=True,
    ),
    "operand_precision": Codec(_precisions, _plain(_show_list)),
    **dict.fromkeys(
        "custom_call_target infeed_config outfeed_config execution_thread async_execution_thread".split(), STRING
    ),
    **dict.fromkeys("to_apply condition body true_computation false_computation select scatter".split(), COMPUTATION),
    **dict.fromkeys(("branch_computations", "called_computations"), COMPUTATIONS),
    "calls": Codec(_one_or_more_computations, _show_computation),
    "control-predecessors": Codec(_instruction_names, _show_names),
    "replica_groups": Codec(devices.groups, _plain(str)),
    "source_target_pairs": Codec(_pairs, _plain(_show_int_lists)),
    "sharding": Codec(devices.sharding, _plain(str)),
    "slice": Codec(windows.slices, _plain(windows.show_slices)),
    "padding": Codec(windows.padding, _plain(windows.show_padding)),
    "window": Codec(windows.window, _plain(windows.show_window)),
    "dim_labels": Codec(windows.dim_labels, _plain(windows.show_dim_labels)),
    "metadata": Codec(fields.metadata, _plain(fields.show_metadata)),
    "frontend_attributes": Codec(fields.frontend_attributes, _plain(fields.show_frontend_attributes)),
    "statistics": Codec(fields.statistics, _plain(fields.show_frontend_attributes)),
    "backend_config": Codec(fields.string_or_json, _plain(_show_config)),
    "input_output_alias": Codec(fields.aliases, _plain(fields.show_aliases)),
    "output_to_operand_aliasing": OPERAND_ALIASES,
    "buffer_donor": Codec(fields.donors, _plain(fields.show_donors)),
    "outfeed_shape": Codec(parse_shape, _plain(Shape.text)),
    "operand_layout_constraints": Codec(_shapes, _plain(_show_shapes)),
    "entry_computation_layout": Codec(_program_shape, _plain(_show_program_shape)),
    **dict.fromkeys("origin_recovery_table sparsity sparsity_config opaque async_group_id".split(), RAW),
    "domain": _kept(_domain),
    "literal": _kept(_literal),
    "origin": _kept(fields.origin),
    "result_accuracy": _kept(fields.result_accuracy),
}


def codec(key: str) -> Codec:
    """How the attribute called `key` is read and written."""
    return CODECS.get(key, RAW)
