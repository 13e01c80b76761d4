"""The tables of files, functions and stack frames that stand between a module's header and its computations, as text.

Source: `ParseStackFrameIndex` of `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re

from systolith.compiler.hlo.lexer import Cursor

_INT = re.compile(r"\d+")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_FIELDS = {
    "FileLocations": ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column"),
    "StackFrames": ("file_location_id", "parent_frame_id"),
}


def parse_stack_frames(cursor: Cursor) -> str:
    """The four tables as XLA prints them; empty if there are none."""
    if not cursor.at(_TABLES[0]):
        return ""
    text = ""
    for table in _TABLES:
        if not cursor.accept_word(table):
            cursor.fail(f"{table} and its table")
        text += f"{table}\n"
        while number := cursor.match(_INT):
            start = cursor.pos
            _entry(cursor, table)
            text += f"{number.group()} {cursor.text[start : cursor.pos].strip()}\n"
        text += "\n"
    return f"{text}\n"


def _entry(cursor: Cursor, table: str) -> None:
    if table not in _FIELDS:
        cursor.string("a quoted name")
        return
    cursor.expect("{", f"to start an entry of {table}")
    missing = list(_FIELDS[table])
    while not cursor.accept("}"):
        cursor.accept(",")
        start = cursor.pos
        key = cursor.word(f"one of {', '.join(missing)}")
        if key not in missing:
            raise cursor.error(f"an entry of {table} has {', '.join(_FIELDS[table])} once each, got {key!r}", start)
        missing.remove(key)
        cursor.expect("=", f"after {key}")
        cursor.integer(f"the value of {key}")
    if missing:
        raise cursor.error(f"an entry of {table} needs {missing[0]!r}")


def source_lines(tables: str) -> dict[int, str]:
    """`file:line` of each stack frame, by its number; `tables` as `parse_stack_frames` gives them."""
    names: dict[str, str] = {}
    places: dict[str, str] = {}
    frames: dict[int, str] = {}
    for number, entry in _ENTRY.findall(tables):
        fields = dict(_FIELD.findall(entry))
        if entry.startswith('"'):
            # Functions come after files, and have the same numbers.
            names.setdefault(number, entry.strip('"'))
        elif "line" in fields:
            places[number] = f"{names.get(fields['file_name_id'], '?')}:{fields['line']}"
        elif fields["file_location_id"] in places:
            frames[int(number)] = places[fields["file_location_id"]]
    return frames


_ENTRY = re.compile(r"^(\d+) (.+)$", re.M)
_FIELD = re.compile(r"(\w+)=(\d+)")
