"""Loops, whiles and branches nested in any way: the rows that an interpreter copies, each once, without races."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_tile
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.examples import examples

TINY = load_chip("tiny")
ROWS, WIDTH = 16, 8
BYTES = 4 * WIDTH

HEAD = f"""module "m"
%a = HBM {ROWS * BYTES} align 4 BufferDecl("a", "parameter", "f32", ({ROWS}, {WIDTH},), {ROWS * BYTES}, 0)
%r = HBM {ROWS * BYTES} align 4 BufferDecl("r", "result", "f32", ({ROWS}, {WIDTH},), {ROWS * BYTES}, 0)
%x = VMEM {BYTES} align 4
%z = VMEM {BYTES} align 4
p0 = Pattern("f32", ({WIDTH},), (4,))
o0 = Origin("h", "g", "copy")
"""

STARTS, START = 2, 900
HEAD += "".join(f"li rd=${START + n} imm={n * BYTES} ; o0\n" for n in range(1, STARTS + 1))

Rows = npt.NDArray[np.float32]
Iterations = Mapping[int, int]
"""The iteration that each loop around is in, by its induction variable."""


@dataclass
class Nest:
    """Text of tile IR, and what it does: `run` is told the iterations around it."""

    text: str
    run: Callable[[Iterations], None]


class Operand(NamedTuple):
    """What sets it, its text, its largest value, and its value."""

    before: str
    text: str
    most: int
    value: Callable[[Iterations], int]


@dataclass(frozen=True)
class Place:
    """A row, which loops move, from register `START + start` on, which holds the bytes of so many rows."""

    first: int
    moves: tuple[tuple[int, int], ...]
    start: int = 0

    def at(self, iterations: Iterations) -> int:
        return self.first + sum(iterations[var] * stride for var, stride in self.moves)

    def text(self, buffer: str) -> str:
        moves = "".join(f"(${var}, {stride * BYTES},), " for var, stride in self.moves).rstrip()
        start = f", ${START + self.start}" * bool(self.start)
        return f"Ref(%{buffer}, p0, {(self.first - self.start) * BYTES}{start}, moves=({moves}))"


class Nests:
    """Draws nests.

    Attributes:
        rows: of both buffers, as the interpreter leaves them.
        copies: that the interpreter has made.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw, self._names = draw, 0
        self.rows: dict[str, Rows] = {
            "a": np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) + 1,
            "r": np.zeros((ROWS, WIDTH), np.float32),
        }
        self.copies = 0

    def block(self, loops: Sequence[tuple[int, int]], depth: int, least: int = 0) -> Nest:
        """Items one after another; `loops`: induction variable and count of each around them."""
        nests = [self._item(loops, depth) for _ in range(self._number(least, 2))]

        def run(iterations: Iterations) -> None:
            for nest in nests:
                nest.run(iterations)

        return Nest("".join(nest.text for nest in nests), run)

    def _item(self, loops: Sequence[tuple[int, int]], depth: int) -> Nest:
        makers = (self._copy, self._loop, self._loop, self._while, self._if)
        return makers[self._number(0, len(makers) - 1) if depth else 0](loops, depth - 1)

    def _number(self, lo: int, hi: int) -> int:
        return self._draw(st.integers(lo, hi))

    def _name(self) -> int:
        self._names += 1
        return self._names

    def _place(self, loops: Sequence[tuple[int, int]]) -> Place:
        moves = tuple((var, self._number(-2, 2)) for var, _ in loops if self._number(0, 1))
        counts = dict(loops)
        ends = [max(0, counts[var] - 1) * stride for var, stride in moves]
        lo, hi = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
        return Place(self._number(-lo, ROWS - 1 - hi), moves, self._number(0, STARTS))

    def _copy(self, loops: Sequence[tuple[int, int]], depth: int) -> Nest:
        buffer, src, dst = "ar"[self._number(0, 1)], self._place(loops), self._place(loops)

        def run(iterations: Iterations) -> None:
            self.rows["r"][dst.at(iterations)] = self.rows[buffer][src.at(iterations)]
            self.copies += 1

        text = f"""dma.load src={src.text(buffer)} dst=Ref(%x, p0) ; o0
xlu.shuffle src=Ref(%x, p0) dst=Ref(%z, p0) ; o0
dma.store src=Ref(%z, p0) dst={dst.text("r")} ; o0
"""
        return Nest(text, run)

    def _loop(self, loops: Sequence[tuple[int, int]], depth: int) -> Nest:
        var = self._name()
        before, operand, most, value = self._operand(loops, 3)
        inner = self.block([*loops, (var, most)], depth)

        def run(iterations: Iterations) -> None:
            for n in range(value(iterations)):
                inner.run({**iterations, var: n})

        return Nest(f'{before}loop ${var} count {operand} "g" {{\n{inner.text}}}\n', run)

    def _while(self, loops: Sequence[tuple[int, int]], depth: int) -> Nest:
        register, count, inner = self._name(), self._number(0, 2), self.block(loops, depth)

        def run(iterations: Iterations) -> None:
            for _ in range(count):
                inner.run(iterations)

        text = f"""li rd=${register} imm={count} ; o0
while ${register} "w" trip {count} {{
}} do {{
add rd=${register} ra=${register} b=-1 ; o0
{inner.text}}}
"""
        return Nest(text, run)

    def _if(self, loops: Sequence[tuple[int, int]], depth: int) -> Nest:
        before, operand, _, value = self._operand(loops, 2, register=True)
        branches = [self.block(loops, depth) for _ in range(self._number(1, 3))]
        inner = "} {\n".join(branch.text for branch in branches)

        def run(iterations: Iterations) -> None:
            branches[min(value(iterations), len(branches) - 1)].run(iterations)

        return Nest(f'{before}if {operand} "c" {{\n{inner}}}\n', run)

    def _operand(self, loops: Sequence[tuple[int, int]], most: int, register: bool = False) -> Operand:
        """A number, a register that holds one, or the induction variable of a loop around."""
        sort, number = self._number(int(register), 2), self._number(0, most)
        if sort == 2 and loops:
            var, count = loops[self._number(0, len(loops) - 1)]
            return Operand("", f"${var}", max(0, count - 1), lambda iterations: iterations[var])
        if sort:
            name = self._name()
            return Operand(f"li rd=${name} imm={number} ; o0\n", f"${name}", number, lambda iterations: number)
        return Operand("", str(number), number, lambda iterations: number)


@examples(40, 80)
@given(st.data())
def test_nests_do_what_an_interpreter_does(data: st.DataObject) -> None:
    nests = Nests(data.draw)
    nest = nests.block([], 3, least=1)
    given_rows, made = nests.rows["a"].copy(), np.zeros(ROWS * BYTES, np.uint8)
    nest.run({})
    program = compile_tile(parse_tile_ir(HEAD + nest.text), TINY).program
    result = simulate(
        program, TINY, {0: given_rows.view(np.uint8).reshape(-1), 1: made}, hostile=True, max_cycles=1_000_000
    )
    assert not result.hazards, nest.text
    assert (made.view(np.float32).reshape(ROWS, WIDTH) == nests.rows["r"]).all(), nest.text
    stores = [n for n, i in enumerate(program.code) if i.op == "dma.store"]
    assert result.executed[stores].sum() == nests.copies, nest.text
    assert len(stores) == nest.text.count("dma.store"), nest.text
