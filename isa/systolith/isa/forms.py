"""Forms of instructions: all rules but those of tokens depend on an instruction's form and a few numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from systolith.isa.instruction import Instruction, Space, Stream, Value

Forms = dict[int, tuple[Hashable, int]]
"""Forms of streams, and where they begin, by their identities."""


def form_of(instr: Instruction, streams: Forms) -> tuple[Hashable, list[int]]:
    """A key of an instruction, and its numbers: where its streams begin, and its first row of accumulators.

    All rules but those of tokens depend on these alone; where two sets of numbers keep the rules, so do those between
    them.  The instructions of a tiled program have few forms.

    Args:
        instr: it.
        streams: those of streams that live while it is used; those of this instruction are added.
    """
    plain = instr.waits or instr.signals
    key: list[object] = [instr.op, instr.unit, instr.fence, not plain, *instr.args]
    numbers: list[int] = []
    for name, value in instr.args.items():
        if type(value) is int and name != "acc":
            key.append(value)
        else:
            key.append(_key(value, streams, numbers))
    return tuple(key), numbers


def _key(value: object, streams: Forms, numbers: list[int]) -> Hashable:
    """A value in a form, with its type: 0 is not 0.0; its numbers are added to `numbers`."""
    if type(value) is int:
        numbers.append(value)
        return int
    if type(value) is tuple:
        return tuple([part if type(part) is int else _key(part, streams, numbers) for part in value])
    if type(value) is not Stream:
        return type(value), value
    found = streams.get(id(value))
    if found is None:
        found = streams[id(value)] = _stream_form(value)
    numbers.append(found[1])
    return found[0]


def _stream_form(s: Stream) -> tuple[Hashable, int]:
    """Of a base that is a number, what matters is its remainder by 4; of a host stream it is an entry's number."""
    movable = type(s.base) is int and s.space is not Space.HOST
    base = cast(int, s.base) & 3 if movable else s.base
    parts = (s.space, s.pattern, base, s.buffer, *s.bias, s.index, s.entry)
    return (*parts, *map(type, parts), movable), cast(int, s.base) if movable else 0


def _moved(value: Value, numbers: Iterator[int]) -> Value:
    """A value with other numbers, as `_key` finds them."""
    if type(value) is tuple:
        return tuple([part if type(part) is int else _moved(part, numbers) for part in value])  # type: ignore[return-value]
    if type(value) is Stream:
        number, movable = next(numbers), type(value.base) is int and value.space is not Space.HOST
        return replace(value, base=number) if movable else value
    return next(numbers) if type(value) is int else value


def with_numbers(instr: Instruction, numbers: Sequence[int]) -> Instruction:
    """The instruction of its form with these numbers."""
    left = iter(numbers)
    args = {n: v if type(v) is int and n != "acc" else _moved(v, left) for n, v in instr.args.items()}
    return replace(instr, args=args)
