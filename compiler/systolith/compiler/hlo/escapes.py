r"""Strings as HLO text quotes them: C escapes (`\n`, `\"`, `\303\251`), bytes that are no UTF-8 as lone surrogates."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.)|\Z)", re.DOTALL)
_NAMED = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
    **{c: c for c in (b"\\", b"'", b'"', b"?")},
}
_SHOWN = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _byte(found: re.Match[bytes]) -> bytes:
    octal, small, short, long, named = found.groups()
    if octal or small:
        value = int(octal, 8) if octal else int(small, 16)
        if value > 255:
            raise ValueError(f"{found[0].decode()} is more than a byte")
        return bytes([value])
    if short or long:
        value = int(short or long, 16)
        if value > 0x10FFFF or 0xD800 <= value < 0xE000:
            raise ValueError(f"{found[0].decode()} is no character")
        return chr(value).encode()
    if named not in _NAMED:
        shown = found[0].decode("utf-8", "replace")
        raise ValueError(f"there is no escape {shown!r} in a string")
    return _NAMED[named]


def unescape(text: str) -> str:
    r"""A C-escaped string as text.

    Raises:
        ValueError: an escape that C does not have, or whose value is no byte or character.
    """
    if "\\" not in text:
        return text
    data = _ESCAPE.sub(_byte, text.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "surrogateescape")


def escape(text: str) -> str:
    """The opposite of `unescape`; all but printable ASCII becomes octal UTF-8 bytes, as `absl::CEscape` does."""
    if text.isascii() and text.isprintable() and not any(c in text for c in "\"'\\"):
        return text
    shown: list[str] = []
    for character in text:
        if character in _SHOWN:
            shown.append(_SHOWN[character])
        elif character.isascii() and character.isprintable():
            shown.append(character)
        else:
            raw = 0xDC80 <= ord(character) <= 0xDCFF
            data = character.encode("utf-8", "surrogateescape" if raw else "surrogatepass")
            shown.extend(f"\\{byte:03o}" for byte in data)
    return "".join(shown)
