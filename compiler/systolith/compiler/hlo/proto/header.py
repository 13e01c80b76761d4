"""The header of a serialized module, spelled as XLA prints it: the text behind `HloModule NAME`.

Source: `xla/hlo/ir/hlo_module.cc` (`Print`), `hlo_input_output_alias_config.cc` and `hlo_buffer_donor_config.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import ProgramShape
from systolith.compiler.hlo.proto.attributes import frontend_text, index_text
from systolith.compiler.hlo.proto.shapes import shape_of

_ALIAS_KINDS = {1: "may-alias", 2: "must-alias"}


def header_before_layout(proto: Any) -> Iterator[tuple[str, str]]:
    """Name and text of the attributes that stand before `entry_computation_layout`.

    Raises:
        HloError: a kind of alias is not known.
    """
    if proto.HasField("schedule"):
        yield "is_scheduled", "true"
    if proto.input_output_alias.entries:
        yield "input_output_alias", "{ " + ", ".join(map(_alias, proto.input_output_alias.entries)) + " }"
    if proto.buffer_donor.entries:
        yield "buffer_donor", "{ " + ", ".join(map(_parameter, proto.buffer_donor.entries)) + " }"


def header_after_layout(proto: Any) -> Iterator[tuple[str, str]]:
    """Name and text of the attributes that stand after `entry_computation_layout`."""
    frontend = frontend_text(proto.frontend_attributes)
    if frontend is not None:
        yield "frontend_attributes", frontend


def program_shape(proto: Any) -> ProgramShape:
    """A `ProgramShapeProto`."""
    return ProgramShape(tuple(map(shape_of, proto.parameters)), shape_of(proto.result))


def _alias(entry: Any) -> str:
    """`{0}: (1, {}, may-alias)`."""
    kind = _ALIAS_KINDS.get(entry.kind)
    if kind is None:
        raise HloError(f"input_output_alias: kind {entry.kind} is not known")
    inside = f"({entry.parameter_number}, {index_text(entry.parameter_shape_index)}, {kind})"
    return f"{index_text(entry.output_shape_index)}: {inside}"


def _parameter(entry: Any) -> str:
    """`(0, {1})`."""
    return f"({entry.parameter_number}, {index_text(entry.parameter_shape_index)})"
