"""The table of messages against modules that XLA serialized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.proto.schema import ELEMENT_NAMES, MESSAGES, message_class
from tests.compiler.hlo.proto_cases import CASES
from tests.compiler.hlo.proto_oracle import around, serialized
from tests.corpus.load import HERE

# Fields that XLA writes and that say nothing that text would: message, number.
SKIPPED = {
    ("HloComputationProto", 4),  # program_shape: as the parameters and the root say
    ("HloComputationProto", 7),  # is_fusion_computation: as its caller says
    ("ProgramShapeProto", 3),  # parameter_names: the same
    ("HloInstructionProto", 98),  # sparsity_config: of sparse convolutions, which text cannot say
    ("HloModuleProto", 2),  # entry_computation_name: XLA goes by the id
    ("HloModuleProto", 5),  # id
}


def messages(proto: Any) -> Iterator[Any]:
    """A message and all that it holds."""
    yield proto
    for field, value in proto.ListFields():
        if field.message_type:
            for item in [value] if isinstance(value, Message) else value:
                yield from messages(item)


@pytest.mark.parametrize("source", [*CASES, *sorted(HERE.glob("*.hlo"))], ids=str)
def test_every_field_that_xla_writes_is_in_the_table(source: str | Path) -> None:
    text = source.read_text() if isinstance(source, Path) else around(source)
    proto = message_class("HloModuleProto").FromString(serialized(text))
    for message in messages(proto):
        skipped: Any = UnknownFieldSet(message)
        unknown = {(message.DESCRIPTOR.name, field.field_number) for field in skipped}
        assert unknown <= SKIPPED


def test_names_of_types_are_those_of_text() -> None:
    assert set(ELEMENT_TYPES) <= set(ELEMENT_NAMES.values())
    assert len(set(ELEMENT_NAMES.values())) == len(ELEMENT_NAMES)


def test_each_message_can_be_made_empty() -> None:
    for name in MESSAGES:
        assert message_class(name)().SerializeToString() == b""
