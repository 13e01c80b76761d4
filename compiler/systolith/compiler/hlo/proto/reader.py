"""A serialized HloModuleProto to a `Module`: the same module as parsing the text that XLA prints of it.

XLA dumps one with `--xla_dump_hlo_as_proto`: `HloProto` (the module and its buffer assignment, which is skipped),
`HloSnapshot` (a module and its arguments) and the bare `HloModuleProto` all read in.  Source of the rules:
`CreateFromProto` of `xla/hlo/ir/hlo_module.cc`, `hlo_computation.cc` and `hlo_instruction.cc`: computations stand
before their callers and operands before their users, so that neither can go in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import indent
from typing import Any, TypeVar, cast

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import operand_limits
from systolith.compiler.hlo.proto.attributes import (
    backend_config_text,
    common_attributes,
    last_attributes,
    original_array_text,
    own_attributes,
)
from systolith.compiler.hlo.proto.header import header_after_layout, header_before_layout, program_shape
from systolith.compiler.hlo.proto.literals import literal_of
from systolith.compiler.hlo.proto.metadata import metadata_text, payload, quoted, stack_frames_text
from systolith.compiler.hlo.proto.schema import ELEMENT_NAMES, message_class
from systolith.compiler.hlo.proto.shapes import shape_of
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.text.codecs import AttributeCursor, codec
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.isa.dtypes import Kind

T = TypeVar("T")

# Where a module may be inside a file: message, and the fields down to the module.
_WRAPPERS = (("HloSnapshot", ("hlo", "hlo_module")), ("HloProto", ("hlo_module",)), ("HloModuleProto", ()))

# Ids of instructions are unique in the module: the computation's << 32, and a local one.  Old ones are local only.
_LOCAL = (1 << 32) - 1

# The attributes of text that name the computations which an instruction calls; `calls` for all others.
_CALLED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("all-reduce all-reduce-start call map reduce reduce-scatter".split(), ("to_apply",)),
    **dict.fromkeys("reduce-window scan scatter sort topk".split(), ("to_apply",)),
    "conditional": ("true_computation", "false_computation"),
    "custom-call": ("called_computations",),
    "select-and-scatter": ("select", "scatter"),
    "while": ("condition", "body"),
}
_LISTS = ("branch_computations", "called_computations")
_ODD = re.compile(rb"[^A-Za-z0-9_.\-]")
_TYPE_NAMES = set(ELEMENT_NAMES.values()) - {"tuple", "buffer"}

_WORD = re.compile(r"[a-z][a-z0-9\-]{0,79}")


def read_proto(data: bytes, file: str = "<bytes>") -> Module:
    """The module in a serialized HloModuleProto, HloProto or HloSnapshot.

    Args:
        data: the bytes; names, ids and sizes in them are checked here, shapes by `verifier.verify`.
        file: name of the file, for messages.

    Raises:
        HloError: the bytes are no such message, are cut, or do not agree; says the file and where in the module.
    """
    with _within(file):
        return _Reader(_module_proto(data)).module()


@contextmanager
def _within(where: str) -> Iterator[None]:
    """Errors inside are told to be in `where`."""
    try:
        yield
    except HloError as error:
        raise HloError(f"{where}: {error.message}") from None


def _module_proto(data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    for name, path in _WRAPPERS:
        try:
            proto: Any = message_class(name).FromString(data)
        except DecodeError:
            continue
        for field in path:
            proto = getattr(proto, field)
        if any(computation.instructions for computation in proto.computations):
            return proto
    raise HloError("neither HLO text nor a readable HloModuleProto: the bytes are cut, damaged or something else")


def _sanitized(name: str) -> str:
    """A name as XLA makes it when it reads one: letters, digits and `_.-`, a letter or `_` first, no element type.

    Source: `GetSanitizedName` of `xla/service/name_uniquer.cc`.
    """
    clean = _ODD.sub(b"_", name.encode("utf-8")).decode("ascii")
    if not (clean[:1].isalpha() or clean[:1] == "_"):
        clean = "_" + clean[1:]
    if clean.startswith("__") and not clean.startswith("__xla_"):
        clean = "a" + clean[1:]
    return clean + "_" if clean in _TYPE_NAMES else clean


def _named(name: str, taken: Iterable[str]) -> str:
    if not name:
        raise HloError("it has no name")
    clean = _sanitized(name)
    if clean in taken:
        raise HloError(f"name {clean!r} is taken already")
    return clean


def _find(table: dict[int, T], id_: int, what: str) -> T:
    if id_ not in table:
        raise HloError(f"{what} {id_} is not there, or not before what uses it")
    return table[id_]


class _Reader:
    """One pass over the message; computations and instructions are found by their ids."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.computations: dict[int, Computation] = {}
        self.names: dict[str, Computation] = {}
        self.calls: dict[Instruction, list[Computation]] = {}
        self.callees: dict[Computation, list[Computation]] = {}
        self.orders: dict[int, Sequence[int]] = {s.key: s.value.instruction_ids for s in proto.schedule.sequences}

    def module(self) -> Module:
        proto = self.proto
        for computation_proto in proto.computations:
            with _within(f"computation {computation_proto.name[:80]!r}"):
                computation = self._computation(computation_proto)
                if computation_proto.id in self.computations:
                    raise HloError(f"id {computation_proto.id} is taken already")
            self.names[computation.name] = self.computations[computation_proto.id] = computation
        module = Module(_sanitized(proto.name or "module"), list(self.computations.values()))
        module.entry = _find(self.computations, proto.entry_computation_id, "entry computation")
        module.attributes = _read(header_before_layout(proto))
        if proto.HasField("host_program_shape"):
            with _within("host_program_shape"):
                module.attributes["entry_computation_layout"] = program_shape(proto.host_program_shape)
        module.attributes |= _read(header_after_layout(proto)) | _read(self._recovery_table())
        module.preamble = stack_frames_text(proto.stack_frame_index)
        module.computations = self._post_order()
        return module

    def _post_order(self) -> list[Computation]:
        """The order of text: each after its callees, these by their ids; those that nothing calls as in the message."""
        called = {c for callees in self.callees.values() for c in callees}
        done: dict[Computation, None] = {}
        stack = [(top, False) for top in reversed(self.computations.values()) if top not in called]
        while stack:
            item, ready = stack.pop()
            if ready:
                done[item] = None
            elif item not in done:
                stack.append((item, True))
                stack += [(callee, False) for callee in reversed(self.callees[item])]
        return list(done)

    def _recovery_table(self) -> Iterator[tuple[str, str]]:
        """`origin_recovery_table`: an original array, its replacement, and the module that computes it from that."""
        entries = self.proto.original_value_recovery_table.entries
        rows: list[str] = []
        for entry in entries:
            old, new = original_array_text(entry.old_original_array), original_array_text(entry.new_original_array)
            rows.append(f"{old} : {new}")
            if entry.HasField("recovery_module"):
                module = indent(print_hlo(_Reader(entry.recovery_module).module()), "    ")
                rows[-1] += f',\n  "\n{module}\n  "'
        if rows:
            yield "origin_recovery_table", "{\n  " + ",\n  ".join(rows) + "\n}"

    def _computation(self, proto: Any) -> Computation:
        computation = Computation(_named(proto.name, self.names))
        at: dict[int, Instruction] = {}
        names: set[str] = set()
        for instruction_proto in proto.instructions:
            if not _WORD.fullmatch(instruction_proto.opcode):
                raise HloError(f"{instruction_proto.opcode[:80]!r} is no opcode")
            with _within(f"{instruction_proto.opcode} {instruction_proto.name[:80]!r}"):
                instruction = self._instruction(instruction_proto, at, names)
                id_ = instruction_proto.id & _LOCAL
                if id_ in at:
                    raise HloError(f"id {instruction_proto.id} is taken already")
            names.add(instruction.name)
            at[id_] = instruction
        self.callees[computation] = [c for id_ in sorted(at) for c in self.calls.get(at[id_], ())]
        computation.root = _find(at, proto.root_id & _LOCAL, "root")
        computation.instructions = list(at.values())
        if proto.id in self.orders:
            computation.instructions = _in_order(at, self.orders[proto.id])
        if proto.execution_thread not in ("", "main"):
            computation.attributes = _read([("execution_thread", quoted(proto.execution_thread))])
        return computation

    def _instruction(self, proto: Any, at: dict[int, Instruction], names: set[str]) -> Instruction:
        operands = [_find(at, id_ & _LOCAL, "operand") for id_ in proto.operand_ids]
        instruction = Instruction(_named(proto.name, names), proto.opcode, shape_of(proto.shape), operands)
        fewest, most = operand_limits(proto.opcode)
        if len(operands) < fewest or (most is not None and len(operands) > most):
            raise HloError(f"it has {len(operands)} operands, but takes {fewest} to {'any' if most is None else most}")
        if proto.opcode == "parameter":
            if proto.parameter_number < 0:
                raise HloError(f"parameter number {proto.parameter_number} is negative")
            instruction.number = proto.parameter_number
        if proto.opcode == "constant":
            with _within("literal"):
                instruction.literal = literal_of(proto.literal, instruction.shape)
        instruction.attributes = self._attributes(instruction, proto, at)
        return instruction

    def _attributes(self, instruction: Instruction, proto: Any, at: dict[int, Instruction]) -> dict[str, Attribute]:
        """Every attribute, in XLA's order."""
        found = _read(own_attributes(proto, [o.shape for o in instruction.operands]))
        found |= self._called(instruction, proto)
        found |= _read(common_attributes(proto))
        if proto.control_predecessor_ids:
            before = [_find(at, id_ & _LOCAL, "control predecessor") for id_ in proto.control_predecessor_ids]
            found["control-predecessors"] = tuple(i.name for i in before)
        found |= _read(last_attributes(proto))
        metadata = metadata_text(proto.metadata, self.proto.payloads)
        if metadata != "{}":
            found |= _read([("metadata", metadata)])
        config = proto.backend_config or payload(proto.backend_config_payload, self.proto.payloads)
        if text := backend_config_text(config):
            found |= _read([("backend_config", text)])
        return found

    def _called(self, instruction: Instruction, proto: Any) -> dict[str, Attribute]:
        """The computations that it calls, under the names that its opcode has for them."""
        called = [_find(self.computations, id_, "computation") for id_ in proto.called_computation_ids]
        if not called:
            return {}
        self.calls[instruction] = called
        keys = _CALLED.get(proto.opcode, ("calls",))
        if proto.opcode == "conditional" and not _is_pred(instruction.operands[0].shape):
            keys = ("branch_computations",)
        if keys[0] in _LISTS or (keys == ("calls",) and len(called) > 1):
            return {keys[0]: tuple(called)}
        if len(keys) != len(called):
            raise HloError(f"it calls {len(called)} computations, which should be {' and '.join(keys)}")
        # The message has the body of a loop first, text the condition.
        return dict(zip(keys, reversed(called) if proto.opcode == "while" else called, strict=True))


def _is_pred(shape: Shape) -> bool:
    return shape.is_array and shape.dtype.kind is Kind.PRED


def _read(attributes: Iterable[tuple[str, str]]) -> dict[str, Attribute]:
    """Attributes that were spelled, as the parser reads them."""
    found: dict[str, Attribute] = {}
    for key, text in attributes:
        cursor = AttributeCursor(text, key)
        try:
            value = codec(key).parse(cursor)
            if not cursor.ended:
                cursor.fail("nothing more")
        except HloError as error:
            raise HloError(f"{key}: {error.message}") from None
        found[key] = cast(Attribute, value)
    return found


def _in_order(at: dict[int, Instruction], ids: Sequence[int]) -> list[Instruction]:
    """The instructions in the order of the schedule."""
    done: dict[Instruction, None] = {}
    for id_ in ids:
        instruction = _find(at, id_ & _LOCAL, "instruction of the schedule")
        if not all(operand in done for operand in instruction.operands):
            raise HloError(f"the schedule has {instruction.name!r} before one of its operands")
        done[instruction] = None
    if len(done) != len(at):
        raise HloError(f"the schedule has {len(done)} of {len(at)} instructions")
    return list(done)
