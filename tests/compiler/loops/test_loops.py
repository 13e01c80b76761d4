"""Loops of tile IR: what they move, counts of every sort, iterations that overlap, tokens over the way back."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from systolith.compiler.driver import compile_tile
from systolith.compiler.emit.nodes import Before, Nodes
from systolith.compiler.emit.tokens import Ordered, Orderer
from systolith.compiler.errors import CompileError
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tile.printer import print_tile_ir
from systolith.isa.errors import SystolithError
from systolith.isa.instruction import Instruction
from systolith.isa.program import Program
from systolith.sim.simulate import simulate
from systolith.sim.stats import RunResult
from tests.compiler.loops.rows import HEAD, NESTS, ROWS, TINY, counted, loop, nested, program, row


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


@pytest.mark.parametrize("count", [0, 1, 2, 3, ROWS])
def test_a_loop_runs_as_often_as_it_says(count: int) -> None:
    rows_copied(counted(str(count)), count)
    rows_copied(f"li rd=$2 imm={count} ; o0\n" + counted("$2"), count)


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_runs_each_iteration_once(name: str) -> None:
    of = program(NESTS[name].body)
    result, given, made = ran(of)
    assert result.ok, result.hazards
    rows = NESTS[name].rows
    assert (made[:rows] == given[:rows]).all()
    assert not made[rows:].any()
    stores = [n for n, i in enumerate(of.code) if i.op == "dma.store"]
    assert len(stores) == NESTS[name].body.count("dma.store")
    assert result.executed[stores].sum() == NESTS[name].copies


def test_a_register_moves_with_every_loop_around() -> None:
    rows_copied(nested("($1, 1920,), ($2, 640,),"), ROWS)


def test_loops_one_after_another_may_have_one_variable() -> None:
    other = f'loop $1 count 2 "g" {{\n{row(1280, "($1, 1280,),")}{row(1920, "($1, 1280,),")}}}\n'
    rows_copied(counted("2") + other + counted("6", 6 * 640), ROWS)


def word_stored(body: str) -> int:
    """Run a body that leaves a number in register $9."""
    head = """%s = SMEM 4 align 4
%w = HBM 4 align 4 BufferDecl("w", "result", "s32", (1,), 4, 1)
p1 = Pattern("s32", (1,), (4,))
li rd=$9 imm=0 ; o0
"""
    store = "sts rb=$9 ra=0 imm=Ref(%s, p1) ; o0\ndma.store src=Ref(%s, p1) dst=Ref(%w, p1) ; o0\n"
    made = np.zeros(4, np.uint8)
    assert simulate(program(head + body + store), TINY, {2: made}, hostile=True).ok
    return int(made.view(np.int32)[0])


def test_an_induction_variable_is_an_operand() -> None:
    assert word_stored('loop $1 count 5 "g" {\nadd rd=$9 ra=$1 b=0 ; o0\n}\n') == 4


@pytest.mark.parametrize("count", ["0", "1", "3", "$5"])
def test_scalar_instructions_of_nests_run_once_an_iteration(count: str) -> None:
    inner = f'loop $2 count {count} "g" {{\nadd rd=$9 ra=$9 b=1 ; o0\n}}\n'
    body = f'li rd=$5 imm=2 ; o0\nloop $1 count 4 "g" {{\nadd rd=$9 ra=$9 b=100 ; o0\n{inner}}}\n'
    assert word_stored(body) == 400 + 4 * int(count.replace("$5", "2"))


FOLDED = row() + counted(str(ROWS - 2), 640) + row(7680 - 640)

ENDS = {
    "both ends written out": (FOLDED, ROWS - 2),
    "the first iteration written out": (row() + counted(str(ROWS - 1), 640), ROWS - 1),
    "the last iteration written out": (counted(str(ROWS - 1)) + row(7680 - 640), ROWS - 1),
    "nothing written out": (counted(str(ROWS)), ROWS),
}
"""Loops that copy all rows, and their iterations."""


def tokens_in_loop(of: Program) -> Counter[int]:
    """Tokens that instructions of the loop's body wait for."""
    head = next(n for n, i in enumerate(of.code) if i.op == "loop")
    end = of.code[head].args["end"]
    assert isinstance(end, int)
    return Counter(t for i in of.code[head + 1 : end] for t in i.waits)


@pytest.mark.parametrize("name", ENDS)
def test_iterations_overlap_whatever_ends_are_written_out(name: str) -> None:
    overlapping = rows_copied(ENDS[name][0], ROWS)
    joined = rows_copied(f"li rd=$2 imm={ROWS} ; o0\n" + counted("$2"), ROWS)
    written_out = rows_copied("".join(row(n * 640) for n in range(ROWS)), ROWS)
    assert overlapping <= written_out + 3 * ROWS  # scalar instructions of the loop
    assert overlapping < joined


def without(i: Instruction, token: int) -> Instruction:
    waits = tuple(t for t in i.waits if t != token)
    return replace(i, waits=waits, signals=tuple(t for t in i.signals if t != token))


@pytest.mark.parametrize("name", ENDS)
def test_every_token_of_a_loop_is_needed(name: str) -> None:
    """Without one of them an iteration races with the next, or with itself."""
    body, count = ENDS[name]
    right = program(body)
    tokens = tokens_in_loop(right)
    assert len(tokens) > 2
    for token in tokens:
        wrong = program(body)
        wrong.code = [without(i, token) for i in right.code]
        result = ran(wrong)[0]
        assert not result.ok, token
        assert any(re.search(rf"in iteration \d+ of {count} ", str(hazard)) for hazard in result.hazards)


@pytest.mark.parametrize("name", ENDS)
def test_a_signal_too_few_before_a_loop_is_a_deadlock(name: str) -> None:
    right = program(ENDS[name][0])
    head = next(n for n, i in enumerate(right.code) if i.op == "loop")
    carried = tokens_in_loop(right).keys() & {t for i in right.code[:head] for t in i.signals}
    pending = {t for t in carried if sum(i.signals.count(t) - i.waits.count(t) for i in right.code[:head])}
    assert pending
    for token in pending:
        wrong = program(ENDS[name][0])
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


FAR = """dma.load src=Ref(%r, p0, moves=(($1, 640,),)) dst=Ref(%x, p0) ; o0
dma.store src=Ref(%x, p0) dst=Ref(%r, p0, 1920, moves=(($1, 640,),)) ; o0
"""


REGISTER, JOINED = "its count is in a register", "SEQ joins the queues in its body"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (FOLDED, []),
        (counted(1), []),
        (counted(ROWS), []),
        ("li rd=$2 imm=3 ; o0\n" + counted("$2"), [("all", REGISTER)]),
        (row() + loop("$1", 9, FAR), [("the 9", "an iteration depends on one before the last")]),
        (
            row() + loop("$2", 4, loop("$1", 4, FAR.replace("(($1", "(($2, 960,), ($1"))),
            [("the 4", JOINED), ("the 4", "an iteration depends on one before the last")],
        ),
        (NESTS["a loop of register count in a loop"].body, [("the 4", JOINED), ("all", REGISTER)]),
        (NESTS["a loop that ends with a while"].body, [("the 3", JOINED)]),
        (NESTS["a loop of one iteration in a loop"].body, [("the 4", JOINED)]),
    ],
)
def test_loops_whose_iterations_do_not_overlap_are_told(body: str, said: list[tuple[str, str]]) -> None:
    made = compile_tile(parse_tile_ir(HEAD + body), TINY)
    told = [line for decision in made.explain for line in decision.lines()]
    heads = [n for n, i in enumerate(made.program.code) if i.op == "loop"]
    assert told == [
        f"repeat g: SEQ joins the queues after each of {count} iterations of the loop at instruction {head} ({why})"
        for head, (count, why) in zip(heads, said, strict=False)
    ]


def test_all_loops_that_do_not_overlap_are_found_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    run = Orderer.run

    def counted_run(self: Orderer, *args: Any) -> Ordered:
        rounds.append(len(args[0]))
        return run(self, *args)

    monkeypatch.setattr(Orderer, "run", counted_run)
    body = row() + "".join(loop(f"${n}", 9, FAR.replace("$1", f"${n}")) for n in range(1, 6))
    made = compile_tile(parse_tile_ir(HEAD + body), TINY)
    assert len(made.explain) == 5
    assert len(rounds) == 2


def test_a_program_is_ordered_once_where_a_loop_is_ordered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here only the second iteration would wait for what is copied before it."""
    runs: list[int] = []
    taken_back: list[int] = []
    run, back = Orderer.run, Nodes.back

    def counted_run(self: Orderer, *args: Any) -> Ordered:
        runs.append(0)
        return run(self, *args)

    def counted_back(self: Nodes, to: Before) -> None:
        taken_back.append(to.many)
        back(self, to)

    monkeypatch.setattr(Orderer, "run", counted_run)
    monkeypatch.setattr(Nodes, "back", counted_back)
    made = compile_tile(parse_tile_ir(HEAD + counted(str(ROWS))), TINY)
    assert (len(runs), len(taken_back)) == (1, 1)
    assert not made.explain


def test_loops_round_trip() -> None:
    for body in (FOLDED, "li rd=$2 imm=3 ; o0\n" + counted("$2")):
        text = print_tile_ir(parse_tile_ir(HEAD + body))
        assert "loop $1 count" in text
        assert print_tile_ir(parse_tile_ir(text)) == text


OUTSIDE = r"moves of %s: must be loops around it \(%s\), each once, the outermost first"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (counted("$2"), r"tile IR line 8: loop g: register \$2 is not set"),
        (counted("4294967296"), "line 8: loop g: count 4294967296: must be 0 to 2147483647"),
        ("li rd=$1 imm=3 ; o0\n" + counted("3"), r"line 9: loop g: register \$1 is set outside"),
        ('loop $1 count 3 "g" {\nli rd=$1 imm=3 ; o0\n}\n', "line 9: loop g: its body sets the induction variable"),
        (row(0, "($1, 640,),"), "line 8: dma.load of 'g' .copy.: src: " + OUTSIDE % (r"\$1", "none")),
        (nested("($2, 640,), ($1, 1920,),"), "line 10: .* src: " + OUTSIDE % (r"\$2, \$1", r"\$1, \$2")),
        (nested("($1, 320,), ($1, 320,),"), "line 10: .* src: " + OUTSIDE % (r"\$1, \$1", r"\$1, \$2")),
        (counted("13"), "line 9: .* src: bytes 0 to 8320 of a, 7680 long in all iterations"),
        ("li rd=$2 imm=0 ; o0\n" + counted("$2", 7680), "line 10: .* src: bytes 7680 to 8320 of a, 7680 long"),
        (nested("($1, 1920,), ($2, -640,),"), "line 10: .* src: bytes -1280 to 6400 of a"),
        (
            "li rd=$2 imm=0 ; o0\n" + loop("$1", 2, "li rd=$2 imm=0 ; o0\n" + row(0, "($1, 640,),", "$2")),
            r"line 11: .* src: starts from register \$2, which a loop that moves it sets",
        ),
        (loop("$1", 2, "lds rd=$3 ra=0 imm=Ref(%x, p0, 0, moves=(($1, 4,),)) ; o0\n"), "line 9: .* imm: a number"),
        (
            loop("$1", 2, "dma.load src=Ref(None, p0, 0, moves=(($1, 4,),)) dst=Ref(%x, p0) ; o0\n"),
            "line 9: .* src: moved by 0 and by loops: no coordinate without a bias that could be moved",
        ),
        ("dma.load src=Ref(None, p0, 4) dst=Ref(%x, p0) ; o0\n", "line 8: .* src: moved by 4: no coordinate"),
    ],
)
def test_loops_that_break_a_rule_are_refused(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        program(body)


def test_a_nest_deeper_than_the_machine_has_is_refused() -> None:
    body = "".join(f'loop ${n} count 2 "g" {{\n' for n in range(1, 10)) + row() + "}\n" * 9
    with pytest.raises(SystolithError, match="9 loops nest: at most 8"):
        program(body)
