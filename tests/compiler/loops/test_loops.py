"""Loops of tile IR: what they move, counts of every sort, iterations that overlap, tokens over the way back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from systolith.compiler.driver import compile_tile
from systolith.compiler.errors import CompileError
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tile.printer import print_tile_ir
from systolith.isa.chip import load_chip
from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction
from systolith.isa.program import Program
from systolith.sim.simulate import simulate
from systolith.sim.stats import RunResult

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


def row(at: int = 0, moves: str = "") -> str:
    """Copy a row: its offset, and how loops move it."""
    there = f", {at}, moves=({moves})" if moves else f", {at}"
    return f"""dma.load src=Ref(%a, p0{there}) dst=Ref(%x, p0) ; o0
xlu.shuffle src=Ref(%x, p0) dst=Ref(%z, p0) ; o0
dma.store src=Ref(%z, p0) dst=Ref(%r, p0{there}) ; o0
"""


def program(body: str) -> Program:
    return compile_tile(parse_tile_ir(HEAD + body), TINY).program


def ran(of: Program) -> tuple[RunResult, np.ndarray, np.ndarray]:
    """A run in hostile mode, the argument and the result."""
    given = np.arange(ROWS * 160, dtype=np.float32).reshape(ROWS, 160) + 1
    made = np.zeros(7680, np.uint8)
    result = simulate(of, TINY, {0: given.view(np.uint8).reshape(-1), 1: made}, hostile=True)
    return result, given, made.view(np.float32).reshape(ROWS, 160)


def rows_copied(body: str, rows: int) -> int:
    """Run it, see that it copies the first rows; cycles."""
    result, given, made = ran(program(body))
    assert result.ok, result.hazards
    assert (made[:rows] == given[:rows]).all()
    assert not made[rows:].any()
    assert result.cycles is not None
    return result.cycles


def counted(count: str, offset: int = 0) -> str:
    return f'loop $1 count {count} "g" {{\n{row(offset, "($1, 640,),")}}}\n'


@pytest.mark.parametrize("count", [0, 1, 2, 3, ROWS])
def test_a_loop_runs_as_often_as_it_says(count: int) -> None:
    rows_copied(counted(str(count)), count)
    rows_copied(f"li rd=$2 imm={count} ; o0\n" + counted("$2"), count)


def test_a_register_moves_with_every_loop_around() -> None:
    moves = "($1, 1920,), ($2, 640,),"
    rows_copied(f'loop $1 count 4 "g" {{\nloop $2 count 3 "g" {{\n{row(0, moves)}}}\n}}\n', ROWS)


def test_loops_one_after_another_may_have_one_variable() -> None:
    other = f'loop $1 count 2 "g" {{\n{row(1280, "($1, 1280,),")}{row(1920, "($1, 1280,),")}}}\n'
    rows_copied(counted("2") + other + counted("6", 6 * 640), ROWS)


def test_an_induction_variable_is_an_operand() -> None:
    """Iteration n stores n to scalar memory; the last one stays."""
    body = """%s = SMEM 4 align 4
%w = HBM 4 align 4 BufferDecl("w", "result", "s32", (1,), 4, 1)
p1 = Pattern("s32", (1,), (4,))
loop $1 count 5 "g" {
sts rb=$1 ra=0 imm=Ref(%s, p1) ; o0
}
dma.store src=Ref(%s, p1) dst=Ref(%w, p1) ; o0
"""
    made = np.zeros(4, np.uint8)
    result = simulate(program(body), TINY, {2: made}, hostile=True)
    assert result.ok
    assert made.view(np.int32)[0] == 4


FOLDED = row() + counted(str(ROWS - 2), 640) + row(7680 - 640)


def tokens_in_loop(of: Program) -> Counter[int]:
    """Tokens that instructions of the loop's body wait for."""
    head = next(n for n, i in enumerate(of.code) if i.op == "loop")
    end = of.code[head].args["end"]
    assert isinstance(end, int)
    return Counter(t for i in of.code[head + 1 : end] for t in i.waits)


def test_iterations_overlap_where_the_ends_are_written_out() -> None:
    overlapping = rows_copied(FOLDED, ROWS)
    joined = rows_copied(counted(str(ROWS)), ROWS)
    written_out = rows_copied("".join(row(n * 640) for n in range(ROWS)), ROWS)
    assert overlapping <= written_out + 2 * ROWS  # scalar instructions of the loop
    assert overlapping < joined


def without(i: Instruction, token: int) -> Instruction:
    waits = tuple(t for t in i.waits if t != token)
    return replace(i, waits=waits, signals=tuple(t for t in i.signals if t != token))


def test_every_token_of_a_loop_is_needed() -> None:
    """Without one of them an iteration races with the next, or with itself."""
    right = program(FOLDED)
    tokens = tokens_in_loop(right)
    assert len(tokens) > 2
    for token in tokens:
        wrong = program(FOLDED)
        wrong.code = [without(i, token) for i in right.code]
        assert not ran(wrong)[0].ok, token


def test_a_signal_too_few_before_a_loop_is_a_deadlock() -> None:
    right = program(FOLDED)
    head = next(n for n, i in enumerate(right.code) if i.op == "loop")
    carried = tokens_in_loop(right).keys() & {t for i in right.code[:head] for t in i.signals}
    pending = {t for t in carried if sum(i.signals.count(t) - i.waits.count(t) for i in right.code[:head])}
    assert pending
    for token in pending:
        wrong = program(FOLDED)
        first = next(n for n, i in enumerate(wrong.code[:head]) if token in i.signals)
        i = wrong.code[first]
        wrong.code[first] = replace(i, signals=tuple(t for t in i.signals if t != token))
        with pytest.raises(SystolithError, match=r"deadlock|waits"):
            ran(wrong)


def test_an_iteration_that_needs_one_long_before_waits_for_it() -> None:
    """Iteration n reads what iteration n - 3 wrote in HBM, and nothing that the last one wrote."""
    rest = [f"dma.load src=Ref(%a, p0, {n * 640}) dst=Ref(%x, p0) ; o0\n" for n in range(3)]
    first = "".join(f"{load}dma.store src=Ref(%x, p0) dst=Ref(%r, p0, {n * 640}) ; o0\n" for n, load in enumerate(rest))
    body = """dma.load src=Ref(%r, p0, moves=(($1, 640,),)) dst=Ref(%x, p0) ; o0
dma.store src=Ref(%x, p0) dst=Ref(%r, p0, 1920, moves=(($1, 640,),)) ; o0
"""
    result, given, made = ran(program(f'{first}loop $1 count {ROWS - 3} "g" {{\n{body}}}\n'))
    assert result.ok
    assert (made == np.tile(given[:3], (ROWS // 3, 1))).all()


def test_loops_round_trip() -> None:
    for body in (FOLDED, "li rd=$2 imm=3 ; o0\n" + counted("$2")):
        text = print_tile_ir(parse_tile_ir(HEAD + body))
        assert "loop $1 count" in text
        assert print_tile_ir(parse_tile_ir(text)) == text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (counted("$2"), "loop g: register VReg.n=2. is not set"),
        (counted("4294967296"), "loop g: count 4294967296: must be 0 to 2147483647"),
        ("li rd=$1 imm=3 ; o0\n" + counted("3"), "loop g: register VReg.n=1. is set outside"),
        ('loop $1 count 3 "g" {\nli rd=$1 imm=3 ; o0\n}\n', "its body sets the induction variable"),
        (row(0, "($1, 640,),"), "register VReg.n=1. is not set"),
    ],
)
def test_loops_that_break_a_rule_are_refused(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        program(body)


def test_a_nest_deeper_than_the_machine_has_is_refused() -> None:
    body = "".join(f'loop ${n} count 2 "g" {{\n' for n in range(1, 10)) + row() + "}\n" * 9
    with pytest.raises(SystolithError, match="9 loops nest: at most 8"):
        program(body)
