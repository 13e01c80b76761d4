"""Tile IR prints, parses and prints the same; the verifier finds what is wrong."""

from __future__ import annotations

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import Block, Buf, If, Ref, TileOp, VReg, While
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_ir
from systolith.isa.dtypes import F32, S32
from systolith.isa.instruction import Space
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import Origin
from tests.compiler.machine import compiled
from tests.corpus.load import load

WORD = Pattern(S32, (1,), (0,))


def _regions() -> Block:
    word, data = Buf("w", Space.SMEM, 4), Buf("x.in~1", Space.VMEM, 64, 32)
    padded = Pattern(F32, (4, 4), (16, 4), (Coord((1, 0), -1, 0, 4, 2, 8, 1),), 0x7F800000)
    here = Origin("h", "g", "read it's", 3)
    read = TileOp("lds", {"rd": VReg(1), "ra": 0, "imm": Ref(word, WORD)}, here)
    move = TileOp(
        "dma.load", {"src": Ref(data, padded, 4, VReg(1), (VReg(1), 2)), "dst": Ref(data, padded)}, Origin(), unit=0
    )
    loop = While(
        Block([read]), VReg(1), Block([move, If(VReg(1), [Block([move]), Block(), Block([read])], "c")]), "l", 20
    )
    return Block([read, loop, TileOp("mxu.latch", {}, here, unit=1)])


def test_regions_round_trip() -> None:
    text = print_tile_ir(_regions())
    assert print_tile_ir(parse_tile_ir(text)) == text
    assert "while %v1" in text
    assert "mxu.latch[1]" in text


@pytest.mark.parametrize("name", ["mlp_infer_bf16", "lstm_scan", "cond_switch", "int8_dot_i32"])
def test_compiled_modules_round_trip(name: str) -> None:
    text = compiled(load(name).text).stages["tile.txt"]
    again = parse_tile_ir(text)
    verify_tile_ir(again)
    assert print_tile_ir(again) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dma.load src=Ref(%a, p9) dst=Ref(%a, p0) ; o0", "p9"),
        ("dma.load src ; o0", "line 4"),
        ("}", "closes nothing"),
    ],
)
def test_bad_text_names_the_line(line: str, message: str) -> None:
    head = '%a = VMEM 64 align 4\np0 = Pattern("f32", (4,), (4,))\no0 = Origin()\n'
    with pytest.raises(CompileError, match=message):
        parse_tile_ir(head + line)


def _op(op: str, **args: object) -> Block:
    return Block([TileOp(op, dict(args), Origin("", "g", "w"))])  # type: ignore[arg-type]


def test_verifier_refuses_what_is_wrong() -> None:
    buf = Buf("b", Space.VMEM, 16)
    long = Ref(buf, Pattern(F32, (8,), (4,)))
    with pytest.raises(CompileError, match="bytes 0 to 32 of b, 16 long"):
        verify_tile_ir(_op("dma.load", src=long, dst=long))
    with pytest.raises(CompileError, match="not an operation"):
        verify_tile_ir(_op("jmp", target=0))
    with pytest.raises(CompileError, match="arguments"):
        verify_tile_ir(_op("mxu.latch", src=long))
    with pytest.raises(CompileError, match="not set"):
        verify_tile_ir(_op("add", rd=VReg(1), ra=VReg(2), b=1))
