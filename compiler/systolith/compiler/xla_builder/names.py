"""Names: of the builder's methods in C++'s spelling, and of instructions."""

from __future__ import annotations

import re

_SPELLED = {
    "constant_r2_from_array2d": ("ConstantR2FromArray2D",),
    "constant_r3_from_array3d": ("ConstantR3FromArray3D",),
    "constant_r4_from_array4d": ("ConstantR4FromArray4D",),
    "concat_in_dim": ("ConcatInDim", "Concatenate"),
    "custom_call": ("CustomCall", "CustomCallOp"),
    "transpose": ("Transpose", "Trans"),
    "and_": ("And", "LogicalAnd"),
    "not_": ("Not", "LogicalNot"),
    "or_": ("Or", "LogicalOr"),
}
"""C++'s names of methods that have several, or that the rule does not spell."""


def cpp_names(method: str) -> tuple[str, ...]:
    """C++'s names of a method: its words joined, each with a capital (`conv_with_general_padding`,
    `ConvWithGeneralPadding`); `_SPELLED` has the rest.
    """
    rule = "".join(word[:1].upper() + word[1:] for word in method.split("_"))
    return _SPELLED.get(method, (rule,))


class Names:
    """Gives each instruction a name of its own: the stem, or the stem with the next number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, stem: str) -> str:
        """`stem`, `stem.1`, `stem.2`, ..., in constant time."""
        name = stem = clean_name(stem)
        while name in self._taken:
            number = self._next[stem] = self._next.get(stem, 0) + 1
            name = f"{stem}.{number}"
        self._taken.add(name)
        return name


def clean_name(stem: str) -> str:
    """A name that HLO text can have: letters, digits, `_`, `.` and `-`, of which the first is a letter or `_`."""
    if stem.isidentifier() and stem.isascii():
        return stem
    kept = re.sub(r"[^A-Za-z0-9_.\-]", "_", stem)
    return kept if re.match(r"[A-Za-z_]", kept) else f"_{kept}"
