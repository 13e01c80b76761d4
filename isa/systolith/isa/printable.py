"""Texts of others for people to read: a terminal or a page shows them, and does nothing else."""

from __future__ import annotations

import re

# Control characters but for the tab and the end of a line; changes of the direction of text; other ends of lines;
# invisible characters, which tell texts apart that look alike; halves of characters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with such characters as the escapes that JSON and quoted names of assembly have for them."""
    if text.isascii() and text.isprintable():  # nearly all, and quicker to see than to search
        return text
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def title(name: str, op_name: str, subject: str = "") -> str:
    """The name of an HLO operation or group for people: its `op_name` in the user's program, then its own.

    Args:
        name: of the HLO.
        op_name: of the HLO's metadata, from which the name of the jitted function is left out.
        subject: of the HLO that it is about, where there is no `op_name`.
    """
    known = re.sub(r"^jit\([^/]*\)/", "", op_name) or subject
    return f"{known} ({name})" if known and known != name else name
