"""Attributes that are lists of named fields as text (`metadata`, `frontend_attributes`, `statistics`), and aliases.

Source: `ParseMetadata`, `ParseFrontendAttributes`, `ParseStatisticsViz` and `ParseAliasing` of
`xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re

from systolith.compiler.hlo.attributes import Alias, Fields, Raw
from systolith.compiler.hlo.escapes import escape
from systolith.compiler.hlo.lexer import Cursor

_PLAIN = re.compile(r'(\w+)=(?:"([^"\\]*)"|(-?\d{1,9})(?=[\s}]))[ ]?', re.ASCII)

_TEXTS = frozenset("op_type op_name source_file deduplicated_name scheduling_name".split())
_INTEGERS = frozenset("source_line source_end_line source_column source_end_column stack_frame_id".split())
_KEPT = frozenset("profile_type metadata_payload logical_creation_pass_id size_of_generated_code_in_bytes".split())


def metadata(cursor: Cursor) -> Fields:
    """`{op_name="jit(f)/add" source_file="f.py" source_line=3}`."""
    cursor.expect("{", "to start metadata")
    fields: Fields = {}
    while not cursor.accept("}"):
        start = cursor.pos
        found = _PLAIN.match(cursor.text, start)
        if found and found[1] in (_TEXTS if found[3] is None else _INTEGERS):
            key, cursor.pos = found[1], found.end()
            if cursor.text.startswith((" ", "/", "\t", "\r", "\n"), cursor.pos):
                cursor.skip()
            value: str | int = found[2] if found[3] is None else int(found[3])
        else:
            cursor.accept(",")
            start = cursor.pos
            key, value = _metadata_field(cursor)
        if key in fields:
            raise cursor.error(f"metadata has {key!r} twice", start)
        fields[key] = value
    return fields


def _metadata_field(cursor: Cursor) -> tuple[str, str | int]:
    start = cursor.pos
    key = cursor.word("key=value in metadata")
    cursor.expect("=", f"after {key}")
    if key in _TEXTS:
        return key, cursor.string(f"the quoted value of {key}")
    if key in _INTEGERS:
        at = cursor.pos
        value = cursor.integer(f"the value of {key}")
        if not -(1 << 31) <= value < 1 << 31:
            raise cursor.error(f"{key}={value} does not fit 32 bits", at)
        return key, value
    if key in _KEPT:
        return key, Raw(cursor.json() if cursor.at("{") else cursor.number(f"the value of {key}"))
    raise cursor.error(f"metadata has no field {key!r}; it has {', '.join(sorted(_TEXTS | _INTEGERS))}", start)


def show_metadata(fields: Fields) -> str:
    """Fields with a blank between them."""
    return "{" + " ".join(f"{key}={_show(value)}" for key, value in fields.items()) + "}"


def _show(value: str | int | Raw) -> str:
    return str(value) if isinstance(value, int | Raw) else f'"{escape(value)}"'


def string_or_json(cursor: Cursor) -> str | Raw:
    """A quoted string, or text in braces, which is kept."""
    return Raw(cursor.json()) if cursor.at("{") else cursor.string("a quoted string or {...}")


def frontend_attributes(cursor: Cursor) -> Fields:
    """`{key="text",other={...}}`."""
    cursor.expect("{", "to start frontend attributes")
    fields: Fields = {}
    while not cursor.accept("}"):
        if fields:
            cursor.expect(",", "or '}' in frontend attributes")
        key = cursor.word('key="value" in frontend attributes')
        cursor.expect("=", f"after {key}")
        fields[key] = string_or_json(cursor)
    return fields


def show_frontend_attributes(fields: Fields) -> str:
    """Fields with a comma between them."""
    return "{" + ",".join(f"{key}={_show(value)}" for key, value in fields.items()) + "}"


def statistics(cursor: Cursor) -> Fields:
    """`{visualizing_index=0,name=1.5}`: which statistic is shown, and their values."""
    cursor.expect("{", "to start statistics")
    fields: Fields = {}
    while not cursor.accept("}"):
        if fields:
            cursor.expect(",", "or '}' in statistics")
        key = cursor.word("name=value in statistics")
        cursor.expect("=", f"after {key}")
        fields[key] = Raw(cursor.number(f"the value of {key}")) if fields else cursor.integer("the index shown")
    return fields


def _index(cursor: Cursor) -> tuple[int, ...]:
    return cursor.integers("tuple indices")


def _show_index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


def aliases(cursor: Cursor) -> tuple[Alias, ...]:
    """`{ {0}: (1, {}, may-alias), {1}: (0, {2}) }`."""
    cursor.expect("{", "to start aliases")
    found: list[Alias] = []
    while not cursor.accept("}"):
        if found:
            cursor.expect(",", "or '}' in aliases")
        output = _index(cursor)
        cursor.expect(":", "after the index of an output")
        cursor.expect("(", "to start (parameter, {index})")
        number = cursor.integer("the number of a parameter")
        cursor.expect(",", "after the number of a parameter")
        index = _index(cursor)
        kind = ""
        if cursor.accept(","):
            start = cursor.pos
            kind = cursor.word("may-alias or must-alias")
            if kind not in ("may-alias", "must-alias"):
                raise cursor.error(f"expected may-alias or must-alias, got {kind!r}", start)
        cursor.expect(")", "to end (parameter, {index})")
        found.append(Alias(output, number, index, kind))
    return tuple(found)


def show_aliases(aliases: tuple[Alias, ...]) -> str:
    """As the module's header has them: with spaces inside the braces."""
    return f"{{ {', '.join(map(_show_alias, aliases))} }}"


def show_operand_aliases(aliases: tuple[Alias, ...]) -> str:
    """As an instruction has them."""
    return "{" + ", ".join(map(_show_alias, aliases)) + "}"


def _show_alias(alias: Alias) -> str:
    kind = f", {alias.kind}" if alias.kind else ""
    return f"{_show_index(alias.output)}: ({alias.number}, {_show_index(alias.index)}{kind})"


def donors(cursor: Cursor) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """`{ (0, {}), (1, {2}) }`: parameters whose buffers the results may take."""
    cursor.expect("{", "to start donors")
    found: list[tuple[int, tuple[int, ...]]] = []
    while not cursor.accept("}"):
        if found:
            cursor.expect(",", "or '}' in donors")
        cursor.expect("(", "to start (parameter, {index})")
        number = cursor.integer("the number of a parameter")
        cursor.expect(",", "after the number of a parameter")
        found.append((number, _index(cursor)))
        cursor.expect(")", "to end (parameter, {index})")
    return tuple(found)


def show_donors(donors: tuple[tuple[int, tuple[int, ...]], ...]) -> str:
    """As the module's header has them: with spaces inside the braces."""
    return "{ " + ", ".join(f"({number}, {_show_index(index)})" for number, index in donors) + " }"


def origin(cursor: Cursor) -> None:
    """Where values come from: a tuple tree of `{"name" {index}}`, or `[synthetic_call]`."""
    cursor.expect("{", "to start an origin")
    if cursor.accept("["):
        if not cursor.accept_word("synthetic_call"):
            cursor.fail("[synthetic_call]")
        cursor.expect("]", "after synthetic_call")
    depth = 0
    while not cursor.accept("}"):
        if cursor.accept("("):
            depth += 1
        elif depth and cursor.accept(")"):
            depth -= 1
        elif not (depth and cursor.accept(",")):
            _original(cursor)


def _original(cursor: Cursor) -> None:
    cursor.expect("{", "to start the origin of a value")
    if cursor.at('"') or cursor.at("'"):
        cursor.string("the name of an instruction")
        if cursor.at("{"):
            _index(cursor)
    cursor.expect("}", "to end the origin of a value")


def result_accuracy(cursor: Cursor) -> None:
    """`{mode=highest}` or `{tolerance={atol=0,rtol=1e-5,ulps=2}}`."""
    cursor.expect("{", "to start an accuracy")
    start = cursor.pos
    key = cursor.word("mode= or tolerance=")
    cursor.expect("=", f"after {key}")
    if key == "mode":
        cursor.one_of(("default", "highest"), any_case=True)
    elif key == "tolerance":
        cursor.expect("{", "to start a tolerance")
        while not cursor.accept("}"):
            cursor.accept(",")
            cursor.one_of(("atol", "rtol", "ulps"))
            cursor.expect("=", "after atol, rtol or ulps")
            cursor.number("a tolerance")
    else:
        raise cursor.error(f"expected mode= or tolerance=, got {key!r}", start)
    cursor.expect("}", "to end an accuracy")
