"""Loops whose iterations overlap: random copies of rows, without races, and the rows that an interpreter leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from systolith.compiler.driver import compile_tile
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.chip import load_chip
from systolith.sim.memory import POISON
from systolith.sim.simulate import simulate
from tests.examples import seeds

TINY = load_chip("tiny")
ROWS, WIDTH = 48, 8
BYTES = 4 * WIDTH

HEAD = f"""module "m"
%a = HBM {ROWS * BYTES} align 4 BufferDecl("a", "parameter", "u32", ({ROWS}, {WIDTH},), {ROWS * BYTES}, 0)
%r = HBM {ROWS * BYTES} align 4 BufferDecl("r", "result", "u32", ({ROWS}, {WIDTH},), {ROWS * BYTES}, 0)
%v = VMEM {ROWS * BYTES} align 4
p0 = Pattern("u32", ({WIDTH},), (4,))
o0 = Origin("h", "g", "copy")
"""

Rows = dict[str, npt.NDArray[np.uint32]]


@dataclass(frozen=True)
class Row:
    """A row of a buffer, and by how many rows each loop around moves it."""

    buffer: str
    first: int
    strides: tuple[int, ...]

    def at(self, iterations: Sequence[int]) -> int:
        return self.first + sum(n * stride for n, stride in zip(iterations, self.strides, strict=True))

    def text(self, starts: Sequence[int], variables: Sequence[int]) -> str:
        pairs = [(v, stride) for v, stride in zip(variables, self.strides, strict=True) if v and stride]
        moves = "".join(f"(${v}, {stride * BYTES},), " for v, stride in pairs).rstrip()
        return f"Ref(%{self.buffer}, p0, {self.at(starts) * BYTES}, moves=({moves}))"


@dataclass(frozen=True)
class Copy:
    op: str
    src: Row
    dst: Row


@dataclass(frozen=True)
class Repeat:
    """Items that run `count` times, the first `apart` times of which are written out before the loop."""

    count: int
    apart: int
    items: tuple[Copy | Repeat, ...]


def drawn(dice: Random, counts: tuple[int, ...] = ()) -> Iterator[Copy | Repeat]:
    """Items in loops of these counts."""
    for _ in range(dice.randint(2, 4)):
        if len(counts) < 2 and dice.random() < (0.3 if counts else 0.6):
            times, apart = dice.randint(3, 5), dice.randint(0, 2)
            yield Repeat(times, apart, tuple(drawn(dice, (*counts, times))))
        else:
            yield copy(dice, counts)


def copy(dice: Random, counts: tuple[int, ...]) -> Copy:
    op, src, dst = dice.choice([("dma.load", "ar", "v"), ("dma.store", "v", "r"), ("xlu.shuffle", "v", "v")])
    strides = tuple(dice.choice((0, 1, 1, 2, -1)) for _ in counts)
    other = strides if op == "xlu.shuffle" else tuple(dice.choice((0, 0, 1, 1, 2, -1)) for _ in counts)
    one = row(dice, dice.choice(src), strides, counts)
    two = row(dice, dst, other, counts)
    while two == one:
        two = row(dice, dst, other, counts)
    return Copy(op, one, two)


def row(dice: Random, buffer: str, strides: tuple[int, ...], counts: tuple[int, ...]) -> Row:
    ends = [stride * (n - 1) for stride, n in zip(strides, counts, strict=True)]
    lo, hi = -sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
    return Row(buffer, dice.randint(lo, min(lo + 4, ROWS - 1 - hi)), strides)


def text(
    items: Sequence[Copy | Repeat], names: Iterator[int], starts: tuple[int, ...] = (), variables: tuple[int, ...] = ()
) -> str:
    """Tile IR.

    Args:
        items: what it does.
        names: of registers.
        starts, variables: of each loop around, the iteration that is its first, and its register; 0: written out.
    """
    out = ""
    for item in items:
        if isinstance(item, Copy):
            src, dst = (of.text(starts, variables) for of in (item.src, item.dst))
            out += f"{item.op} src={src} dst={dst} ; o0\n"
            continue
        for n in range(item.apart):
            out += text(item.items, names, (*starts, n), (*variables, 0))
        var = next(names)
        body = text(item.items, names, (*starts, item.apart), (*variables, var))
        out += f'loop ${var} count {item.count - item.apart} "g" {{\n{body}}}\n'
    return out


def interpret(items: Sequence[Copy | Repeat], rows: Rows, iterations: tuple[int, ...] = ()) -> None:
    for item in items:
        if isinstance(item, Copy):
            src, dst = item.src, item.dst
            rows[dst.buffer][dst.at(iterations)] = rows[src.buffer][src.at(iterations)]
        else:
            for n in range(item.count):
                interpret(item.items, rows, (*iterations, n))


def overlapping(seed: int) -> int:
    """Check a program; how many of its loops overlap."""
    items = [*drawn(Random(seed))]
    rows = {
        "a": np.arange(ROWS * WIDTH, dtype=np.uint32).reshape(ROWS, WIDTH) + 1,
        "r": np.zeros((ROWS, WIDTH), np.uint32),
        "v": np.full((ROWS, WIDTH), POISON, np.uint32),
    }
    given, made = rows["a"].copy(), np.zeros(ROWS * BYTES, np.uint8)
    interpret(items, rows)
    body = text(items, count(1))
    compiled = compile_tile(parse_tile_ir(HEAD + body), TINY)
    result = simulate(compiled.program, TINY, {0: given.view(np.uint8).reshape(-1), 1: made}, hostile=True)
    assert not result.hazards, f"{result.hazards[0]}\n{body}"
    assert (made.view(np.uint32).reshape(ROWS, WIDTH) == rows["r"]).all(), body
    alone = body.count(" count 1 ")
    return body.count("loop ") - alone - len(compiled.explain)


def test_random_copies_in_loops_do_not_race() -> None:
    tried = seeds(12, 30)
    assert sum(map(overlapping, tried)) > len(tried) // 2


@pytest.mark.slow
def test_many_random_copies_in_loops_do_not_race() -> None:
    assert sum(map(overlapping, range(30, 1500))) > 700
