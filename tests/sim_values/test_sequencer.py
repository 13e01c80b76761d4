"""SEQ: arithmetic, control flow, runs with and without values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.instruction import Reg, Space, Stream
from systolith.isa.opcodes import ALU_OPS, BRANCH_OPS
from systolith.isa.program import BufferDecl, Role
from systolith.sim.decoded import Issue
from systolith.sim.memory import Machine, SimulationError
from systolith.sim.scalar import ALU, BRANCH, signed
from systolith.sim.sequencer import Hooks, TraceNeededError, run_control, run_values
from tests.sim_values.build import TINY, Builder

R = [Reg(n) for n in range(32)]
_word = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 31, 32, 2**31, 2**31 - 1, 2**32 - 1]))


def trip(issues: list[Issue]) -> list[tuple[int, bool]]:
    return [(i.index, i.taken) for i in issues]


def test_tables_are_complete() -> None:
    assert set(ALU) == set(ALU_OPS)
    assert set(BRANCH) == set(BRANCH_OPS)


@given(_word, _word)
def test_arithmetic_agrees_with_numpy(a: int, b: int) -> None:
    ua, ub = np.uint32(a), np.uint32(b)
    with np.errstate(over="ignore"):
        assert ALU["add"](a, b) == int(ua + ub)
        assert ALU["sub"](a, b) == int(ua - ub)
        assert ALU["mul"](a, b) == int(ua * ub)
        assert ALU["mulhu"](a, b) == int((np.uint64(a) * np.uint64(b)) >> np.uint64(32))
        assert ALU["sra"](a, b) == int((ua.view(np.int32) >> np.int32(b & 31)).view(np.uint32))
    assert signed(a) == int(ua.view(np.int32))
    assert ALU["min"](a, b) == (a if signed(a) < signed(b) else b)
    assert ALU["divu"](a, b) == (a // b if b else 2**32 - 1)
    assert ALU["remu"](a, b) == (a % b if b else a)
    assert BRANCH["bltu"](a, b) == (a < b)
    assert BRANCH["bge"](a, b) == (signed(a) >= signed(b))


def test_r0_stays_zero_and_loops_nest() -> None:
    b = Builder()
    b.add("li", rd=R[0], imm=5)
    b.add("loop", count=3, end=6)
    b.add("add", rd=R[1], ra=R[1], b=1)
    b.add("loop", count=R[1], end=5)
    b.add("add", rd=R[2], ra=R[2], b=1)
    b.add("add", rd=R[3], ra=R[0], b=7)
    b.add("sts", rb=R[2], ra=R[0], imm=8)
    b.add("sts", rb=R[3], ra=R[0], imm=12)
    r = b.run()
    assert list(r.machine.smem[8:16].view(np.uint32)) == [1 + 2 + 3, 7]
    assert trip(r.issues) == trip(list(run_control(b.program)))


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_loop_of_no_trips_is_skipped(count: int) -> None:
    b = Builder()
    b.add("loop", count=count, end=2)
    b.add("trap", code=1)
    assert [i.index for i in b.run().issues] == [0, 2]


def test_a_branch_leaves_a_loop() -> None:
    b = Builder()
    b.add("loop", count=10, end=3)
    b.add("add", rd=R[1], ra=R[1], b=1)
    b.add("beq", ra=R[1], rb=R[2], target=4)
    b.add("jmp", target=5)
    b.add("trap", code=1)
    b.add("loop", count=2, end=7)
    b.add("nop", queue="vpu")
    assert [i.index for i in b.run().issues] == [0, *[1, 2] * 10, 3, 5, 6, 6, 7]
    b.program.code[1].args["b"] = 0
    with pytest.raises(SimulationError, match="traps with code 1"):
        b.run()


def while_program() -> tuple[Builder, int]:
    """HBM holds n; the body runs while a counter in VMEM, copied to SMEM each time, is not n."""
    b = Builder()
    number = b.buffer(np.array([5], np.int32))
    one = b.dense("s32", (1, 1, 1))
    word = b.dense("s32", (1,))
    step = b.kernel([("ld", 0, (), 0), ("add.s32", 0, (0, 64)), ("st", -1, (0,), 0)], constants=[1])
    b.add("dma.load", src=Stream(Space.HBM, word, buffer=number), dst=Stream(Space.SMEM, word, 0))
    b.add("lds", rd=R[4], ra=R[0], imm=0)
    b.run_kernel(step, (1,), (b.vmem(one, 64),))
    b.add("dma.store", src=b.vmem(word, 64), dst=Stream(Space.SMEM, word, 4))
    b.add("lds", rd=R[5], ra=R[0], imm=4)
    b.add("blt", ra=R[5], rb=R[4], target=2)
    b.add("sts", rb=R[5], ra=R[0], imm=8)
    b.add("halt")
    return b, number


def test_while_loop_through_smem_and_its_replay() -> None:
    b, _ = while_program()
    r = run_values(b.program, TINY, b.data)
    assert r.machine.smem[8] == 5
    assert r.decisions == [5, 1, 2, 3, 4, 5]
    assert sum(i.taken for i in r.issues) == 4
    assert trip(r.issues) == trip(list(run_control(b.program, r.decisions)))
    with pytest.raises(TraceNeededError, match=r"instruction 5 \(blt, %op6\): the branch depends on data"):
        list(run_control(b.program))
    with pytest.raises(SimulationError, match="trace ends after 3 reads"):
        list(run_control(b.program, r.decisions[:3]))


def test_words_that_seq_stored_are_known_without_data() -> None:
    b = Builder()
    b.add("li", rd=R[1], imm=3)
    b.add("sts", rb=R[1], ra=R[0], imm=16)
    b.add("lds", rd=R[2], ra=R[0], imm=16)
    b.add("loop", count=R[2], end=5)
    b.add("nop", queue="w0")
    b.add("halt")
    assert [i.index for i in run_control(b.program)] == [0, 1, 2, 3, 4, 4, 4, 5]
    word = b.dense("s32", (1,))
    b.program.code[1] = b.program.code[5]
    b.program.code.insert(2, b.program.code[0])
    copy = Builder()
    copy.program.patterns.extend(b.program.patterns)
    copy.add("sts", rb=R[1], ra=R[0], imm=16)
    copy.add("dma.load", src=copy.vmem(word), dst=Stream(Space.SMEM, word, 16))
    copy.add("lds", rd=R[2], ra=R[0], imm=16)
    copy.add("loop", count=R[2], end=5)
    copy.add("nop", queue="w0")
    copy.add("halt")
    with pytest.raises(TraceNeededError, match=r"instruction 3 \(loop, %op4\): the trip count depends on data"):
        list(run_control(copy.program))


def test_registers_are_resolved_and_objects_reused() -> None:
    b = Builder()
    p = b.dense("s32", (4,))
    source = Stream(Space.VMEM, p, R[1], bias=(R[2], 0), index=R[3])
    b.add("li", rd=R[2], imm=-3)
    b.add("loop", count=4, end=5)
    b.add("dma.load", src=source, dst=b.vmem(p, 512))
    b.add("dma.load", src=b.vmem(p), dst=b.vmem(p, 512))
    b.add("xor", rd=R[1], ra=R[1], b=32)
    issues = [i for i in b.run().issues if i.queue == "ld"]
    streams = [i.instr.args["src"] for i in issues[::2]]
    assert streams == [Stream(Space.VMEM, p, base, bias=(-3, 0), index=0) for base in (0, 32, 0, 32)]
    assert issues[0].instr is issues[4].instr
    assert all(i.instr is b.program.code[3] for i in issues[1::2])


def test_hooks_see_memory_before_and_after() -> None:
    b = Builder()
    b.add("li", rd=R[1], imm=9)
    at = b.add("sts", rb=R[1], ra=R[0], imm=0)
    b.add("halt")
    seen: list[int] = []

    def look(m: Machine) -> None:
        seen.append(int(m.smem[0]))

    run_values(b.program, TINY, {}, hooks=Hooks({at: look}, {at: look}))
    assert seen == [0, 9]


def test_runaway_programs_and_missing_halts_are_errors() -> None:
    b = Builder()
    b.add("jmp", target=0)
    with pytest.raises(SimulationError, match="still running after 1000 instructions"):
        run_values(b.program, TINY, {}, max_steps=1000)
    b.program.code[0] = b.program.code[0].__class__("sync")
    with pytest.raises(SimulationError, match="runs on to 1"):
        run_values(b.program, TINY, {})


def test_scalar_memory_has_bounds() -> None:
    b = Builder()
    b.add("lds", rd=R[1], ra=R[0], imm=TINY.smem.bytes)
    with pytest.raises(SimulationError, match=r"instruction 0 \(lds, %op1\): smem word"):
        b.run()


def test_buffers_are_bound_and_checked() -> None:
    b = Builder()
    b.buffer(np.zeros(8, np.uint8), "x")
    b.add("halt")
    with pytest.raises(SimulationError, match=r"buffer 0 \(x\): bound to uint8\[7\], needs 8 bytes"):
        run_values(b.program, TINY, {0: np.zeros(7, np.uint8)})


def test_aliased_buffers_share_their_memory() -> None:
    b = Builder()
    b.program.buffers.append(BufferDecl("result", Role.RESULT, "u8", (4,), 4, 0, alias=1))
    b.program.buffers.append(BufferDecl("parameter", Role.PARAMETER, "u8", (4,), 4, 0, b"abcd"))
    b.add("halt")
    m = run_values(b.program, TINY, {}).machine
    m.buffers[0][0] = 65
    assert bytes(m.buffers[1]) == b"Abcd"
    given = np.zeros(4, np.uint8)
    assert run_values(b.program, TINY, {1: given}).machine.buffers[0] is given
    with pytest.raises(SimulationError, match="buffer 2: bound, but the program has 2"):
        run_values(b.program, TINY, {2: given})
