"""Serialized modules that are cut, damaged or say nonsense: one line that names the file and the place, or a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, print_hlo, verify
from systolith.compiler.hlo.proto.reader import read_proto
from systolith.compiler.hlo.proto.schema import message_class
from tests.compiler.hlo.proto_oracle import around, serialized
from tests.corpus.load import load
from tests.examples import examples

_TEXT = around(
    "f32[4,4] convolution(q, p), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_io01->bf01, sharding={devices=[2]<=[2]}"
).replace("ROOT r", "q = f32[2,2]{0,1} constant({{1,2},{3,4}})\n  ROOT r")


def change(what: Callable[[Any, Any, Any], object]) -> bytes:
    """The module with its root instruction, its constant or its entry computation changed."""
    proto: Any = message_class("HloModuleProto").FromString(serialized(_TEXT))
    body = proto.computations[-1]
    what(body.instructions[-1], next(i for i in body.instructions if i.opcode == "constant"), body)
    return bytes(proto.SerializeToString())


def _put(items: Any, *values: int) -> bool:
    items[:] = values
    return True


BAD: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "type": (lambda r, k, b: setattr(r.shape, "element_type", 99), "'r': element type 99 is not known"),
    "no type": (lambda r, k, b: r.ClearField("shape"), "'r': element type 0 is not known"),
    "wide float": (lambda r, k, b: setattr(r.shape, "element_type", 35), "f6e3m2fn is not supported; supported: pred"),
    "size": (lambda r, k, b: _put(r.shape.dimensions, 4, -4), r"a shape has a negative size: \[4, -4\]"),
    "layout": (lambda r, k, b: _put(r.shape.layout.minor_to_major, 0, 0), r"minor_to_major \[0, 0\] is no order of 2"),
    "flags": (lambda r, k, b: _put(r.shape.is_dynamic_dimension, 1), "has 1 flags is_dynamic_dimension"),
    "operand": (lambda r, k, b: _put(r.operand_ids, 7, 77), "convolution 'r': operand 7 is not there, or not before"),
    "circle": (lambda r, k, b: _put(r.operand_ids, r.id, r.id), "'r': operand .* is not there, or not before"),
    "operands": (lambda r, k, b: _put(r.operand_ids), "convolution 'r': it has 0 operands, but takes 2 to 2"),
    "callee": (lambda r, k, b: _put(r.called_computation_ids, 9), "computation 9 is not there"),
    "control": (lambda r, k, b: _put(r.control_predecessor_ids, 99), "control predecessor 99 is not there"),
    "root": (lambda r, k, b: setattr(b, "root_id", 99), "computation 'e': root 99 is not there"),
    "twice": (lambda r, k, b: setattr(r, "name", k.name), "name 'q' is taken already"),
    "ids": (lambda r, k, b: setattr(k, "id", b.instructions[0].id), "constant 'q': id .* is taken already"),
    "entry": (lambda r, k, b: setattr(b, "id", 99), "entry computation 1 is not there"),
    "no name": (lambda r, k, b: setattr(r, "name", ""), "convolution '': it has no name"),
    "opcode": (lambda r, k, b: setattr(r, "opcode", "con\nvolution"), r"'con\\nvolution' is no opcode"),
    "same name": (lambda r, k, b: setattr(b, "name", "add"), "computation 'add': name 'add' is taken already"),
    "labels": (
        lambda r, k, b: setattr(r.convolution_dimension_numbers, "input_batch_dimension", -1),
        r"dim_labels: \{'b': -1, .*\} are no dimensions of the input",
    ),
    "sharding": (lambda r, k, b: setattr(r.sharding, "type", 9), "sharding type 9 is not known"),
    "precision": (
        lambda r, k, b: _put(r.precision_config.operand_precision, 9),
        r"operand precision 9 is not known; known: 0 \(default\)",
    ),
    "no value": (lambda r, k, b: k.ClearField("literal"), "constant 'q': literal: element type 0 is not known"),
    "few values": (lambda r, k, b: k.literal.f32s.pop(), r"literal: a literal of shape f32\[2,2\] has 3 elements"),
    "huge value": (
        lambda r, k, b: [_put(shape.dimensions, 2**40, 2**40) for shape in (k.shape, k.literal.shape)],
        r"a literal of shape f32\[1099511627776,1099511627776\] has 4 elements",
    ),
    "other shape": (lambda r, k, b: _put(k.literal.shape.dimensions, 4, 1), r"is the value of a constant of shape f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_nonsense_is_refused_by_name(name: str) -> None:
    what, message = BAD[name]
    with pytest.raises(HloError, match=message) as caught:
        read_proto(change(what), "x.pb")
    assert str(caught.value).startswith("x.pb: ")
    assert "\n" not in str(caught.value)


def test_the_module_as_it_is_reads_in() -> None:
    assert "dim_labels=bf01_io01->bf01" in print_hlo(read_proto(change(lambda r, k, b: None)))


def test_an_unknown_opcode_is_for_the_verifier() -> None:
    module = read_proto(change(lambda r, k, b: setattr(r, "opcode", "frobnicate")))
    with pytest.raises(HloError, match="frobnicate"):
        verify(module)


def test_a_window_that_does_not_move_is_for_the_verifier() -> None:
    module = read_proto(change(lambda r, k, b: setattr(r.window.dimensions[0], "stride", 0)))
    with pytest.raises(HloError, match="convolution 'r'"):
        verify(module)


def test_schedules_have_every_instruction_after_its_operands() -> None:
    text = _TEXT.replace("HloModule m", "HloModule m, is_scheduled=true")
    proto: Any = message_class("HloModuleProto").FromString(serialized(text))
    ids = next(s for s in proto.schedule.sequences if s.key == proto.entry_computation_id).value.instruction_ids
    order = list(ids)
    for wrong, message in (
        (order[:-1], "the schedule has 5 of 6 instructions"),
        (order[::-1], "the schedule has 'r' before one of its operands"),
        ([*order, 9999], "instruction of the schedule 9999 is not there"),
    ):
        ids[:] = wrong
        with pytest.raises(HloError, match=message):
            read_proto(proto.SerializeToString())


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x0a\x01m", b"\x1f\x8b\x08 gzip", bytes(range(256)) * 4])
def test_what_is_no_module_is_refused(data: bytes) -> None:
    with pytest.raises(HloError, match=r"x\.pb: neither HLO text nor a readable HloModuleProto"):
        read_proto(data, "x.pb")


def check_refused_or_read(data: bytes) -> None:
    """Whatever the bytes: a module that prints and that the verifier judges, or an error of one line."""
    message = ""
    try:
        module = read_proto(data, "x.pb")
        print_hlo(module)
        verify(module)
    except HloError as error:
        message = str(error)
    assert "\n" not in message


def _sources() -> list[bytes]:
    small = ("cond_switch", "int8_dot_i32", "cumsum_reduce_window", "cholesky_trisolve")
    return [serialized(_TEXT), *(serialized(load(name).text) for name in small)]


_damage = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from("set cut insert remove copy".split()), st.binary(max_size=8)),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, damage: list[tuple[int, str, bytes]]) -> bytes:
    """The bytes with some of them set, removed, inserted or copied from elsewhere, or the rest cut off."""
    for place, kind, extra in damage:
        at = place % (len(data) + 1)
        rest = {
            "set": extra + data[at + len(extra) :],
            "cut": b"",
            "insert": extra + data[at:],
            "remove": data[at + len(extra) :],
            "copy": data[place // 2 % (len(data) + 1) :][: len(extra)] + data[at + len(extra) :],
        }[kind]
        data = data[:at] + rest
    return data


@examples(200, 20_000)
@given(st.sampled_from(range(5)), _damage)
def test_damaged_bytes(source: int, damage: list[tuple[int, str, bytes]]) -> None:
    check_refused_or_read(damaged(_sources()[source], damage))


@examples(65, 200)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check_refused_or_read(data)
