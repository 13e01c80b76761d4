"""Texts with some tokens dropped, doubled, replaced, moved or broken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[%\w.\-]+|->|<=|\s+|.', re.DOTALL)


def mutated(text: str, soup: Sequence[str], dice: Random, most: int = 3) -> str:
    """A text with up to `most` changes, often one; new tokens are of `soup` or of the text."""
    tokens = TOKEN.findall(text)
    for _ in range(min(dice.randint(1, most), dice.randint(1, most))):
        at, other = dice.randrange(len(tokens)), dice.randrange(len(tokens))
        match dice.randrange(6):
            case 0:
                tokens[at] = ""
            case 1:
                tokens.insert(at, tokens[other])
            case 2:
                tokens[at] = dice.choice(soup)
            case 3:
                tokens.insert(at, dice.choice(soup))
            case 4:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                cut = dice.randint(0, len(tokens[at]))
                tokens[at] = tokens[at][:cut] + dice.choice(soup) + tokens[at][cut + 1 :]
    return "".join(tokens)
