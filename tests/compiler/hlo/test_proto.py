"""Serialized modules read in: the same module as parsing the text that XLA prints of them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import Module, evaluate, parse_hlo, print_hlo, verify
from systolith.compiler.hlo.ir import Style
from systolith.compiler.hlo.proto.reader import read_proto
from systolith.compiler.hlo.proto.schema import message_class
from tests.compiler.hlo.proto_cases import CASES
from tests.compiler.hlo.proto_oracle import around, serialized, text_of
from tests.corpus.load import HERE, load
from tests.examples import examples

_STYLE = Style()


def assert_reads_as_its_text(data: bytes) -> Module:
    module = read_proto(data)
    assert print_hlo(module, _STYLE) == print_hlo(parse_hlo(text_of(data)), _STYLE)
    return module


@pytest.mark.parametrize("path", sorted(HERE.glob("*.hlo")), ids=lambda path: path.name)
def test_the_corpus(path: Path) -> None:
    verify(assert_reads_as_its_text(serialized(path.read_text())))


@pytest.mark.parametrize("instruction", CASES)
def test_one_instruction(instruction: str) -> None:
    assert_reads_as_its_text(serialized(around(instruction)))


_HEADER = """HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}) },
  buffer_donor={ (2, {}) }, frontend_attributes={z="a",b={x=1}}

FileNames
1 "a.py"
2 "b's.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=507 end_line=508 column=25 end_column=48}
2 {file_name_id=2 function_name_id=1 line=1 end_line=1 column=2 end_column=3}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}


%cond (p: (s32[])) -> pred[] {
  %p = (s32[]) parameter(0)
  ROOT %c = pred[] constant(true)
}

%body (q: (s32[])) -> (s32[]) {
  ROOT %q = (s32[]) parameter(0)
}

ENTRY %e (b: f32[2], a: f32[2], w: s32[]) -> (f32[2], f32[2], (s32[])) {
  %w = s32[] parameter(2)
  %a = f32[2]{0:T(8)S(1)} parameter(1)
  %t = (s32[]) tuple(%w)
  %b = f32[2] parameter(0)
  %loop = (s32[]) while(%t), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %n = f32[2] negate(%a), metadata={op_name="n" stack_frame_id=2}
  %st = ((f32[2]), f32[2], s32[]) cosine-start(%n), async_execution_thread="other"
  %m = f32[2] negate(%b), control-predecessors={%n, %loop}
  %up = ((f32[2]), f32[2], s32[]) cosine-update(%st)
  %end = f32[2] cosine-done(%up)
  ROOT %r = (f32[2], f32[2], (s32[])) tuple(%end, %m, %loop)
}
"""


def test_header_schedule_tables_loops_and_asynchronous_calls() -> None:
    module = assert_reads_as_its_text(serialized(_HEADER))
    text = print_hlo(module)
    order = [text.index(f"%{name} =") for name in "w a t b loop n st m up end r".split()]
    assert order == sorted(order), "the order of the schedule"
    for part in ("is_scheduled=true", "{1}: (1, {}, may-alias)", 'b={x=1},z="a"', "cosine-start(%n), async_execution_"):
        assert part in text
    verify(module)


_WRAPPED = """HloModule m

w {
  p = f32[8] parameter(0)
  ROOT n = f32[8] negate(p), frontend_attributes={a="1"}, metadata={op_name="inner"}, backend_config="c"
}

ENTRY e {
  p = f32[8] parameter(0)
  s = ((f32[8]), f32[8], u32[]) async-start(p), calls=w, metadata={op_name="outer"}
  ROOT d = f32[8] async-done(s)
}
"""


def test_an_asynchronous_operation_with_metadata_of_its_own() -> None:
    text = print_hlo(assert_reads_as_its_text(serialized(_WRAPPED)))
    assert 'negate-start(%p.1), frontend_attributes={a="1"}, metadata={op_name="outer"}\n' in text


def test_the_frames_that_hold_a_module_read_alike() -> None:
    data = serialized(_HEADER)
    bare = print_hlo(read_proto(data))
    with_buffers = message_class("HloProto")(hlo_module=message_class("HloModuleProto").FromString(data))
    snapshot = message_class("HloSnapshot")(hlo=with_buffers)
    for message in (with_buffers, snapshot):
        unknown = b"\xaa\x3e\x03abc"  # field 997, which no version has yet
        assert print_hlo(read_proto(message.SerializeToString() + unknown)) == bare


@pytest.mark.parametrize(
    "name", ["f32", "token", "tuple", "__x", "__xla_y", "9a", "a$b", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
def test_names_become_what_text_can_say(name: str) -> None:
    proto: Any = message_class("HloModuleProto").FromString(serialized(around("f32[4,4] negate(p)")))
    proto.name = proto.computations[-1].name = proto.computations[-1].instructions[-1].name = name
    assert_reads_as_its_text(proto.SerializeToString())


@pytest.mark.parametrize("alignment", [0, 1, 2, 128])
def test_alignment_of_a_layout(alignment: int) -> None:
    proto: Any = message_class("HloModuleProto").FromString(serialized(around("f32[4,4] negate(p)")))
    proto.computations[-1].instructions[-1].shape.layout.tail_padding_alignment_in_elements = alignment
    assert_reads_as_its_text(proto.SerializeToString())


def test_a_table_of_recovered_origins() -> None:
    body = "ENTRY %r (q: f32[]) -> f32[] {\n  ROOT %q = f32[] parameter(0)\n}\n"
    for table in ('{"a" {1}} : {"b"}', f'{{"a"}} : {{"b"}}, "HloModule n\n\n{body}"'):
        text = around("f32[4,4] negate(p)").replace("HloModule m", f"HloModule m, origin_recovery_table={{{table}}}")
        module = assert_reads_as_its_text(serialized(text))
        assert '} : {"b"}' in print_hlo(module)


def test_ids_of_old_modules_are_local() -> None:
    text = around("f32[4,4] add(p, p)")
    proto: Any = message_class("HloModuleProto").FromString(serialized(text))
    expected = print_hlo(read_proto(proto.SerializeToString()))
    for computation in proto.computations:
        computation.root_id &= (1 << 32) - 1
        for instruction in computation.instructions:
            instruction.id &= (1 << 32) - 1
            instruction.operand_ids[:] = [id_ & (1 << 32) - 1 for id_ in instruction.operand_ids]
    assert print_hlo(read_proto(proto.SerializeToString())) == expected


def test_a_configuration_may_stand_apart_from_its_instruction() -> None:
    proto: Any = message_class("HloModuleProto").FromString(serialized(around("f32[4,4] negate(p)")))
    root = proto.computations[-1].instructions[-1]
    proto.payloads.extend([b"", b'{"a":1}'])
    root.backend_config_payload.id = 1
    assert 'backend_config={"a":1}' in print_hlo(read_proto(proto.SerializeToString()))


def test_values_are_those_of_the_text() -> None:
    case = load("int8_dot_i32")
    module = read_proto(serialized(case.text))
    for found, expected in zip(evaluate(module, *case.args), case.expected, strict=True):
        np.testing.assert_array_equal(found, expected)


_TYPES = "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 s4 u4 s2 u2 c64 c128".split()


@examples(25, 150)
@given(st.data())
def test_constants_of_any_shape_layout_and_type(case: st.DataObject) -> None:
    name = case.draw(st.sampled_from(_TYPES))
    dims = case.draw(st.lists(st.integers(0, 3), max_size=4))
    order = case.draw(st.permutations(range(len(dims))))
    low, high = {"s2": (-2, 1), "u2": (0, 3), "pred": (0, 1)}.get(name, (-8 * (name[0] not in "u"), 7))
    count = prod(dims) * (2 if name[0] == "c" else 1)
    values = iter(case.draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    def literal(depth: int) -> str:
        if depth < len(dims):
            return "{" + ",".join(literal(depth + 1) for _ in range(dims[depth])) + "}"
        return f"({next(values)},{next(values)})" if name[0] == "c" else str(next(values))

    shape = f"{name}[{','.join(map(str, dims))}]" + ("{" + ",".join(map(str, order)) + "}" if dims else "")
    assert_reads_as_its_text(serialized(around(f"{shape} constant({literal(0)})")))
