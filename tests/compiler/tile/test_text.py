"""Tile IR prints, parses and prints the same; the verifier finds errors."""

from __future__ import annotations

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import (
    Array,
    Block,
    Buf,
    GroupRecord,
    If,
    Ref,
    TileModule,
    TileOp,
    VReg,
    While,
)
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tile.printer import print_tile_ir
from systolith.compiler.tile.verifier import verify_tile_ir
from systolith.isa.dtypes import DTYPES, F32, S32
from systolith.isa.instruction import Space
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Origin, Role
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
    text = print_tile_ir(TileModule("m", _regions()))
    assert print_tile_ir(parse_tile_ir(text)) == text
    assert "while $1" in text
    assert "mxu.latch[1]" in text


def test_names_that_look_like_tile_ir_round_trip() -> None:
    # A buffer may be called as registers once were, and bytes of constants may be any.
    data = BufferDecl("v1", Role.CONSTANT, "u8", (7,), 7, data=b"%v1 $2'\"")
    hbm, near = Buf("v1", Space.HBM, 7, 4, data), Buf("o0", Space.VMEM, 7)
    pattern = Pattern(DTYPES["u8"], (7,), (1,))
    here = Origin("%v1", "$1 a=b", 'it"s %x')
    load = TileOp("dma.load", {"src": Ref(hbm, pattern), "dst": Ref(near, pattern)}, here)
    array = Array(near, DTYPES["u8"], (7,), (1,), (0,))
    record = GroupRecord("%v1", load, load, (), (("$1", array),))
    module = TileModule("m", Block([load]), buffers=[hbm], whole={near}, records=[record])
    again = parse_tile_ir(print_tile_ir(module))
    assert print_tile_ir(again) == print_tile_ir(module)
    assert again.buffers[0].decl == data
    assert again.records[0].outputs[0][0] == "$1"
    assert [op.origin for op in again.block.ops()] == [here]
    assert {b.name for b in again.whole} == {"o0"}


@pytest.mark.parametrize(
    "name", [pytest.param("mlp_infer_bf16", marks=pytest.mark.slow), "lstm_scan", "cond_switch", "int8_dot_i32"]
)
def test_compiled_modules_round_trip(name: str) -> None:
    text = compiled(load(name).text).stages["tile.txt"]
    again = parse_tile_ir(text)
    verify_tile_ir(again.block)
    assert print_tile_ir(again) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dma.load src=Ref(%a, p9) dst=Ref(%a, p0) ; o0", "p9"),
        ("dma.load src ; o0", "line 4"),
        ("}", "closes nothing"),
        ('while $1 "x" {\n' * 300, "deeper than 256"),
        ("dma.load src=" + "(" * 5000 + " ; o0", "line 4"),
        ("dma.load src=Ref(%a, 5) dst=Ref(%a, p0) ; o0", "pattern = 5"),
        ("dma.load src=[1] dst={1} ; o0", "not a number, text or name"),
        ("li imm=1or 1 ; o0", "line 4: .* invalid decimal literal"),
        ("mxu.latch ; o0 begin g0", "no 'g0'"),
        ('if $1 "x" {\n} do {', "does not end"),
        ('loop $1 count 2 "x" source holds %a, %z {\n}', "no '%z'"),
        ('%b = HBM 4 align 4 BufferDecl("b", "temp", "u8", (4,), 4), (1)', "line 4: .* more than a BufferDecl"),
        ('group GroupInfo("g", "k"), (1)', "line 4: .* more than a GroupInfo"),
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
    with pytest.raises(CompileError, match="b = 'x': must be signed 32-bit or register"):
        verify_tile_ir(_op("add", rd=VReg(1), ra=0, b="x"))
    with pytest.raises(CompileError, match="ra = 4: must be register"):
        verify_tile_ir(_op("add", rd=VReg(1), ra=4, b=1))
    in_smem = Ref(buf, Pattern(F32, (4,), (4,), indirect=0), index=Buf("list", Space.SMEM, 16))
    with pytest.raises(CompileError, match="must be in VMEM"):
        verify_tile_ir(_op("dma.load", src=in_smem, dst=Ref(buf, Pattern(F32, (4,), (4,)))))
