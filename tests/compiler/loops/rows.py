"""Loops of tile IR that copy rows from one array to another."""

from __future__ import annotations

from typing import NamedTuple

from systolith.compiler.driver import compile_tile
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.chip import load_chip
from systolith.isa.program import Program

TINY = load_chip("tiny")
ROWS = 12

HEAD = """module "m"
%a = HBM 7680 align 4 BufferDecl("a", "parameter", "f32", (12, 160,), 7680, 0)
%r = HBM 7680 align 4 BufferDecl("r", "result", "f32", (12, 160,), 7680, 0)
%x = VMEM 640 align 4
%z = VMEM 640 align 4
p0 = Pattern("f32", (160,), (4,))
o0 = Origin("h", "g", "copy")
"""


def row(at: int = 0, moves: str = "", start: str = "") -> str:
    """Copy a row: its offset, how loops move it, and the register of a further offset."""
    there = f", {at}" + f", {start}" * bool(start) + f", moves=({moves})" * bool(moves)
    return f"""dma.load src=Ref(%a, p0{there}) dst=Ref(%x, p0) ; o0
xlu.shuffle src=Ref(%x, p0) dst=Ref(%z, p0) ; o0
dma.store src=Ref(%z, p0) dst=Ref(%r, p0{there}) ; o0
"""


def program(body: str) -> Program:
    return compile_tile(parse_tile_ir(HEAD + body), TINY).program


def loop(var: str, count: int | str, body: str) -> str:
    return f'loop {var} count {count} "g" {{\n{body}}}\n'


def counted(count: int | str, offset: int = 0) -> str:
    """Copy rows one after another."""
    return loop("$1", count, row(offset, "($1, 640,),"))


def nested(moves: str) -> str:
    """Copy 12 rows, as two loops move them."""
    return loop("$1", 4, loop("$2", 3, row(0, moves)))


class Nest(NamedTuple):
    """A program: its body, how many rows it copies, and how many copies it makes."""

    body: str
    rows: int
    copies: int


IN_ONE, IN_BOTH, IN_INNER = row(0, "($1, 640,),"), row(0, "($1, 1920,), ($2, 640,),"), row(0, "($2, 640,),")
THREE = "li rd=$5 imm=3 ; o0\n"
TWICE = 'li rd=$5 imm=2 ; o0\nwhile $5 "w" trip 2 {\n} do {\n' + row() + "add rd=$5 ra=$5 b=-1 ; o0\n}\n"
BRANCH = 'if $1 "c" {\n' + row() + "} {\nsync ; o0\n}\n"

NESTS = {
    "a loop of register count in a loop": Nest(THREE + loop("$1", 4, loop("$2", "$5", IN_BOTH)), 12, 12),
    "a loop of one iteration in a loop": Nest(loop("$1", 4, loop("$2", 1, IN_ONE)), 4, 4),
    "a loop of no iteration in a loop": Nest(loop("$1", 4, loop("$2", 0, row(640)) + IN_ONE), 4, 4),
    "a loop that ends with a loop": Nest(loop("$1", 2, loop("$2", 3, IN_INNER)), 3, 6),
    "a loop that ends with a while": Nest(loop("$1", 3, TWICE), 1, 6),
    "a loop that ends with a branch": Nest(loop("$1", 4, IN_ONE + loop("$2", 2, BRANCH)), 4, 6),
    "a count that is an induction variable": Nest(loop("$1", 4, loop("$2", "$1", IN_INNER)), 3, 6),
    "loops of nothing": Nest(
        THREE + row() + loop("$1", 4, loop("$2", 3, "")) + loop("$3", "$5", loop("$4", 2, "")), 1, 1
    ),
}
