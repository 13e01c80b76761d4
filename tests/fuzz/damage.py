"""Bytes changed without knowing their meaning, and JSON values changed knowing it."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**53 + 1, 10**30, 10**400, 0.5, 1e308, float("inf"), float("nan"), "", "x",
    "tiny", "\x1b[31m\u202e", "<b>&\"'", "a" * 5000, [], [1], [[]], {}, {"a": 1}, ["x"] * 3,
)  # fmt: skip


def damaged(data: bytes, dice: Random) -> bytes:
    """Some bits or bytes changed, or a stretch cut out, repeated or overwritten."""
    out = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(out)) if out else 0
        size = dice.choice([1, 2, 4, 8, 64, 1000])
        match dice.choice([0, 0, 1, 1, 2, 3, 4, 5]):
            case 0 if out:
                out[at] ^= 1 << dice.randrange(8)
            case 1 if out:
                out[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                out[at : at + 4] = dice.choice([0, 1, 2**31 - 1, 2**32 - 1]).to_bytes(4, "little")
            case _:
                del out[at:]
    return bytes(out)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a JSON value; of a long list, of its first items."""
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 8)) if isinstance(value, list) else ()
    return [here, *(p for k in keys for p in places(value[k], (*here, k)))]


def changed(value: Any, dice: Random) -> Any:
    """The JSON value with something in it deleted, replaced, repeated or renamed."""
    path = dice.choice(places(value))
    new = deepcopy(dice.choice(VALUES))
    if not path:
        return new
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    key, act = path[-1], dice.random()
    if act < 0.2:
        del inside[key]
    elif act < 0.3 and isinstance(inside, dict):
        inside[dice.choice(["", "x", "\x1b[1m", "1"])] = inside.pop(key)
    elif act < 0.4 and isinstance(inside, list):
        inside += inside[:100]
    elif act < 0.6 and isinstance(inside[key], int | float):
        number = inside[key]
        inside[key] = dice.choice([-number, number + 1, number * 2, number * 10**12, number // 3])
    else:
        inside[key] = new
    return value
