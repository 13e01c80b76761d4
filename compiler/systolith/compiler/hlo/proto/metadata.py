"""The origin of an instruction in a serialized module, spelled as XLA prints it: `OpMetadata`, stack frames.

Source: `OpMetadataToString` of `xla/hlo/ir/hlo_op_metadata.cc`; the tables as in `xla/hlo/ir/hlo_module.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from systolith.compiler.hlo.escapes import escape

_BEFORE = "op_type op_name source_file".split()
_LINES = "source_line source_end_line source_column source_end_column".split()
_LOCATION = "file_name_id function_name_id line end_line column end_column".split()
_AFTER = "deduplicated_name scheduling_name".split()


def quoted(text: str | bytes) -> str:
    """A string in quotes, characters that are not printable escaped."""
    return f'"{escape(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))}"'


def payload(proto: Any, payloads: Any) -> bytes:
    """The bytes of a `Payload`: its own, or those that the module keeps under its number; empty where it has none."""
    if proto.HasField("id"):
        return bytes(payloads[proto.id]) if 0 <= proto.id < len(payloads) else b""
    return bytes(proto.value)


def metadata_text(proto: Any, payloads: Any = ()) -> str:
    """An `OpMetadata`, `{}` where it says nothing."""
    fields = [f"{key}={quoted(getattr(proto, key))}" for key in _BEFORE if getattr(proto, key)]
    fields += [f"{key}={getattr(proto, key)}" for key in _LINES if getattr(proto, key)]
    if proto.profile_type:
        fields.append("profile_type={" + ",".join(map(str, proto.profile_type)) + "}")
    fields += [f"{key}={quoted(getattr(proto, key))}" for key in _AFTER if getattr(proto, key)]
    if proto.stack_frame_id:
        fields.append(f"stack_frame_id={proto.stack_frame_id}")
    if proto.HasField("metadata_payload"):
        fields.append(f"metadata_payload={quoted(payload(proto.metadata_payload, payloads))}")
    return "{" + " ".join(fields) + "}"


def metadata_list(protos: Iterable[Any]) -> str:
    """The metadata of a sharding: `{{...}, {...}}`."""
    return "{" + ", ".join(map(metadata_text, protos)) + "}"


def stack_frames_text(proto: Any) -> str:
    """The tables that stand before a module's computations: files, functions, places, frames; empty without frames.

    All count from 1, and text counts the parents of frames from 1 too, where the message has 0 for none.
    """
    if not proto.stack_frames:
        return ""
    tables = {
        "FileNames": [quoted(name) for name in proto.file_names],
        "FunctionNames": [quoted(name) for name in proto.function_names],
        "FileLocations": [_fields(row, _LOCATION) for row in proto.file_locations],
        "StackFrames": [
            f"{{file_location_id={row.file_location_id} parent_frame_id={row.parent_frame_id + 1}}}"
            for row in proto.stack_frames
        ],
    }
    lines: list[str] = []
    for title, rows in tables.items():
        lines += [title, *(f"{number} {row}" for number, row in enumerate(rows, 1)), ""]
    return "\n".join(lines) + "\n\n"


def _fields(proto: Any, keys: list[str]) -> str:
    return "{" + " ".join(f"{key}={getattr(proto, key)}" for key in keys) + "}"
