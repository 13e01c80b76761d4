"""Tile IR: parsed, printed, compiled to a program."""

from __future__ import annotations

from functools import cache

from systolith.compiler.driver import compile_tile
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tile.printer import print_tile_ir
from systolith.isa.chip import load_chip
from tests.compiler.loops.rows import HEAD, NESTS
from tests.compiler.machine import compiled
from tests.fuzz.assembler import check_program
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tokens import mutated

MODULES = (
    "a = f32[6,10] parameter(0)  b = f32[10,4] parameter(1)"
    "  ROOT d = f32[6,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "x = f32[4,8] parameter(0)  i = s32[] parameter(1)  z = s32[] constant(0)"
    "  d = f32[1,8] dynamic-slice(x, i, z), dynamic_slice_sizes={1,8}  ROOT t = f32[1,8] tanh(d)",
    "x = s32[5,3] parameter(0)  c = s32[5,3] constant({{1,2,3},{4,5,6},{7,8,9},{10,11,12},{13,14,15}})"
    "  ROOT s = s32[5,3] add(x, c)",
)
LOOP = """HloModule m
body { p = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)  m = s32[] add(n, one)  y = f32[4] add(x, x)  ROOT t = (s32[], f32[4]) tuple(m, y) }
more { p = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(p), index=0  five = s32[] constant(5)
  ROOT l = pred[] compare(n, five), direction=LT }
ENTRY e { n = s32[] parameter(0)  x = f32[4] parameter(1)  t = (s32[], f32[4]) tuple(n, x)
  ROOT w = (s32[], f32[4]) while(t), condition=more, body=body }
"""
SOUP = (
    "( ) { } [ ] , = ; % $ \" ' \\ $1 $2 $99 $-1 %a %x %nothing p0 p1 k0 o0 g0 0 1 -1 4 7 64 4294967296 99999999999999"
    " HBM VMEM SMEM ACC NONE HOST LINK align unit whole begin end trip while if do loop count moves= module chip group"
    ' Ref Array Pattern Kernel Section MicroOp Coord Origin BufferDecl GroupRecord GroupInfo "f32" "c64" "add" "ld"'
    " None () (1,) b'' dma.load dma.store mxu.load mxu.latch mxu.matmul vpu.run xlu.shuffle xlu.reduce lds sts li add"
    " jmp halt nop \n é \0 \ud800"
).split(" ")


@cache
def samples() -> tuple[str, ...]:
    """The compiler's texts of small modules, and nests of loops."""
    texts = [f"HloModule m\nENTRY e {{ {text} }}\n" for text in MODULES]
    nests = [print_tile_ir(parse_tile_ir(HEAD + nest.body)) for nest in NESTS.values()]
    return *(compiled(text).stages["tile.txt"] for text in (*texts, LOOP)), *nests


class TileText(Fuzzer):
    name, suffix = "tile-text", ".txt"

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        return mutated(dice.choice(samples()), SOUP, dice).encode("utf-8", "surrogatepass")

    def check(self, case: bytes) -> None:
        module = parse_tile_ir(case.decode("utf-8", "replace"))
        text = print_tile_ir(module)
        assert print_tile_ir(parse_tile_ir(text)) == text, "what is printed parses as something else"
        check_program(compile_tile(module, load_chip("tiny")).program)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of tile IR"
