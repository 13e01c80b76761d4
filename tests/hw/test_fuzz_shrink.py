"""Failing programs become small ones that fail alike, and are kept as text."""

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from systolith.hw.fuzz.campaign import search
from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.edits import idle, removed, tidy, tokens_of, without_tokens
from systolith.hw.fuzz.generate import program
from systolith.hw.fuzz.regression import from_text, load, save, to_text
from systolith.hw.fuzz.shrink import legal, shrink, weight
from systolith.isa.chip import load_chip
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.numerics.alu import RULES, Rule
from systolith.isa.program import Program, TokenDecl
from systolith.isa.verify import verify_program
from systolith.sim.kernel_code import compile_kernel
from systolith.sim.memory import Machine
from systolith.sim.simulate import simulate

TINY = load_chip("tiny")


def ops_of(case: Case) -> set[str]:
    """The micro-operations of a case's kernels."""
    return {m.op for k in case.program.kernels for s in (k.prologue, k.body, k.epilogue) for m in s.ops}


def divides_behind_a_fence(case: Case) -> bool:
    return "div.u32" in ops_of(case) and any(c.fence for c in case.program.code)


def contends(case: Case) -> bool:
    units = case.run().units
    return units["ld"].get("hbm_contention", 0) > 0 and units["st"].get("hbm_contention", 0) > 0


def first(predicate: object, seeds: range = range(200)) -> Case:
    assert callable(predicate)
    return next(case for case in (program(s, TINY) for s in seeds) if predicate(case))


def test_a_micro_operation_and_a_fence_are_all_that_is_left() -> None:
    case = first(divides_behind_a_fence)
    small = shrink(case, divides_behind_a_fence)
    assert divides_behind_a_fence(small)
    assert legal(small)
    assert len(small.program.code) <= 3
    assert ops_of(small) == {"div.u32"}
    assert small.pieces == ()
    assert weight(small) < weight(case) / 20


def test_two_transfers_are_left_that_want_hbm_at_once() -> None:
    small = shrink(first(contends), contends)
    assert contends(small)
    assert [c.op for c in small.program.code if c.op.startswith("dma")] in (
        ["dma.load", "dma.store"],
        ["dma.store", "dma.load"],
    )
    assert len(small.program.code) <= 4


def after(case: Case) -> bytes:
    """Everything in memory after a run."""
    machines: list[Machine] = []
    buffers = case.buffers()

    def setup(machine: Machine) -> None:
        case.setup(machine)
        machines.append(machine)

    simulate(case.program, case.chip, buffers, mode="values", setup=setup)
    m = machines[0]
    parts: list[np.ndarray] = [m.vmem, m.smem, *m.acc, *buffers.values()]
    return b"".join(x.tobytes() for x in parts)


def test_a_wrong_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES["max.s32"]

    def wrong(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(a == b, np.uint32(7), right.function(a, b))

    def check(case: Case) -> str | None:
        good = after(case)
        with monkeypatch.context() as patch:
            patch.setitem(RULES, "max.s32", Rule(wrong, right.takes_raw, right.gives_raw))
            return None if after(case) == good else "memory differs"

    found = next(search((program(s, TINY) for s in range(100)), check))
    assert found.what == "memory differs"
    assert weight(found.small) < weight(found.found) / 10
    ops = [c.op for c in found.small.program.code]
    assert len(ops) <= 3
    functions = {str(c.args.get("function")) for c in found.small.program.code}
    assert "max.s32" in ops_of(found.small) | functions


@cache
def programs() -> list[Case]:
    return [program(s, TINY) for s in range(80)]


@cache
def unchanged(seed: int) -> bytes:
    """Memory after a program, as the rules are."""
    return after(programs()[seed])


@pytest.mark.parametrize(
    "op",
    [
        "add.f32",
        "div.s32",
        "select",
        *(pytest.param(o, marks=pytest.mark.slow) for o in ("xor", "exp.f32", "round.bf16")),
    ],
)
def test_what_kernels_compute_reaches_memory(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES[op]
    seeds = [seed for seed, c in enumerate(programs()) if op in ops_of(c)][:16]

    def wrong(*values: np.ndarray) -> np.ndarray:
        return right.function(*values) ^ np.uint32(1 << 22)

    def shows(seed: int) -> bool:
        before = unchanged(seed)
        with monkeypatch.context() as patch:
            patch.setitem(RULES, op, Rule(wrong, False, False))
            compile_kernel.cache_clear()
            try:
                return after(programs()[seed]) != before
            finally:
                compile_kernel.cache_clear()

    assert len(list(islice(filter(shows, seeds), 3))) == 3


def test_what_does_not_fail_is_not_shrunk() -> None:
    case = program(0, TINY)
    with pytest.raises(ValueError, match="does not fail"):
        shrink(case, lambda _: False)
    illegal = replace(case, program=replace(case.program, code=case.program.code[:-1]))
    with pytest.raises(ValueError, match="not legal"):
        shrink(illegal, lambda _: True)


def test_a_case_survives_as_text() -> None:
    for seed in range(8):
        case = program(seed, TINY)
        again = from_text(to_text(case, "what it shows\nin two lines"), TINY)
        assert again.program == case.program
        assert after(again) == after(case)
        assert again.run().cycles == case.run().cycles


def test_a_case_survives_as_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cases") / "random3.s"
    case = program(3, TINY)
    save(case, path, "why")
    assert path.read_text().startswith("# why\n")
    assert load(path, TINY).program == case.program


def li(rd: int) -> Instruction:
    return Instruction("li", {"rd": Reg(rd), "imm": rd})


def looping() -> Program:
    """li, a loop over two, a branch to the next one, li, halt; w0 signals s0."""
    loop = Instruction("loop", {"count": 2, "end": 4})
    branch = Instruction("beq", {"ra": Reg(0), "rb": Reg(0), "target": 6})
    nops = [Instruction("nop", {"queue": "w0"}, signals=(0,)), Instruction("nop", {"queue": "s0"}, waits=(0,))]
    code = [li(1), loop, *nops, branch, li(5), li(6), Instruction("halt")]
    return Program("looping", "tiny", "", code, tokens=[TokenDecl("w0", "s0")])


def test_targets_follow_what_they_named() -> None:
    less = removed(looping(), {0, 5})
    assert [c.op for c in less.code] == ["loop", "nop", "nop", "beq", "li", "halt"]
    assert less.code[0].args["end"] == 3
    assert less.code[3].args["target"] == 4


def test_a_loop_goes_with_its_body() -> None:
    less = removed(looping(), {2, 3})
    assert [c.op for c in less.code] == ["li", "beq", "li", "li", "halt"]
    assert less.code[1].args["target"] == 3


def test_tokens_go_on_both_sides() -> None:
    bare = without_tokens(looping(), {0})
    assert tokens_of(bare, range(len(bare.code))) == set()
    assert tidy(bare).tokens == []
    verify_program(tidy(bare), TINY)


def test_what_has_tokens_stays_to_wait_and_to_signal() -> None:
    less = idle(looping(), [0, 2])
    assert [c.op for c in less.code] == ["loop", "nop", "nop", "beq", "li", "li", "halt"]
    assert less.code[1].signals == (0,)
