"""Temporaries in HBM: those whose lives do not overlap share memory, the others never do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.memory.hbm import buffer_table, share_temporaries
from systolith.compiler.memory.vmem import lives
from systolith.compiler.tile.ir import Array as TileArray
from systolith.compiler.tile.ir import Block, Buf, GroupRecord, Ref, TileOp, VReg, While
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Origin, Role
from tests.compiler.machine import TINY, Array, check, compare, with_vmem
from tests.compiler.memory.random_blocks import random_block
from tests.compiler.memory.random_donations import random_donation

WORD = Pattern(S32, (1,), (0,))


def temp(name: str, size: int, role: Role = Role.TEMP) -> Buf:
    return Buf(name, Space.HBM, size, 4, BufferDecl(name, role, "s32", (size // 4,), size))


def use(*bufs: Buf) -> TileOp:
    return TileOp("vpu.run", {"streams": tuple(Ref(b, WORD) for b in bufs)}, Origin())


def test_a_chain_takes_what_two_neighbours_take() -> None:
    a, b, c, d = (temp(n, s) for n, s in (("a", 400), ("b", 800), ("c", 200), ("d", 600)))
    share_temporaries(Block([use(a), use(a, b), use(b, c), use(c, d), use(d)]))
    table = buffer_table([a, b, c, d])
    assert [t.name for t in table[:2]] == ["a", "b"]
    assert {t.name: t.decl.alias for t in table if t.decl} == {"a": -1, "b": -1, "c": 0, "d": 1}


def test_the_tightest_piece_is_taken() -> None:
    large, small, last = temp("large", 800), temp("small", 400), temp("last", 300)
    share_temporaries(Block([use(large, small), use(last)]))
    assert last.memory is small


def test_results_of_a_group_stay_until_it_ends() -> None:
    """A load that moved ahead reads the first result before the group makes the second one."""
    operand, first, second, read = temp("operand", 400), temp("first", 400), temp("second", 400), temp("read", 400)
    ops = [use(operand), use(operand), use(first), use(first, read), use(second), use(second, read)]
    arrays = {b.name: (b.name, TileArray(b, S32, (100,), (4,), (0,))) for b in (operand, first, second)}
    share_temporaries(Block([*ops]), (), [GroupRecord("g", ops[2], ops[4], (arrays["operand"],), (arrays["first"],))])
    assert first.memory not in {operand.memory, second.memory}
    share_temporaries(Block([*ops]))
    assert len({b.memory for b in (operand, first, second)}) == 1


def test_what_is_carried_by_a_loop_is_not_shared_within_it() -> None:
    state, inside, after = temp("state", 800), temp("inside", 400), temp("after", 400)
    body = Block([use(state), use(inside)])
    share_temporaries(Block([use(state), While(Block(), VReg(1), body), use(after)]))
    assert inside.memory is inside
    assert after.memory is inside or after.memory is state


def test_only_temporaries_share() -> None:
    a, b = temp("a", 400, Role.PARAMETER), temp("b", 400, Role.CONSTANT)
    c, d = temp("c", 400), temp("d", 400, Role.RESULT)
    share_temporaries(Block([use(a), use(b), use(c), use(d)]))
    assert all(x.shares is None for x in (a, b, c, d))


@st.composite
def blocks(draw: st.DrawFn, roles: tuple[Role, ...] = (Role.TEMP,)) -> Block:
    bufs = [
        temp(f"t{n}", 4 * draw(st.integers(1, 50)), draw(st.sampled_from(roles)))
        for n in range(draw(st.integers(1, 12)))
    ]
    return random_block(draw, lambda: use(*draw(st.lists(st.sampled_from(bufs), min_size=1, max_size=3))))


@given(blocks())
def test_what_lives_together_has_memory_of_its_own(block: Block) -> None:
    share_temporaries(block)
    alive = list(lives(block, (Space.HBM,)))
    for n, a in enumerate(alive):
        assert a.value.bytes <= a.value.memory.bytes
        for b in alive[:n]:
            together = a.first <= b.last and b.first <= a.last
            assert not (together and a.value.memory is b.value.memory)


@given(blocks((Role.TEMP, Role.PARAMETER, Role.RESULT)), st.data())
def test_temporaries_in_memory_of_parameters_and_results_are_alone_in_it(block: Block, data: st.DataObject) -> None:
    given = [v.value for v in lives(block, (Space.HBM,)) if v.value.decl and v.value.decl.role is Role.PARAMETER]
    made = [v.value for v in lives(block, (Space.HBM,)) if v.value.decl and v.value.decl.role is Role.RESULT]
    for p, r in zip(given, made, strict=False):
        if r.bytes <= p.bytes and data.draw(st.booleans()):
            r.shares = p
    some = {b for b in (*given, *made) if b.shares is None and data.draw(st.booleans())}
    share_temporaries(block, [b for b in (*given, *made) if b.memory in some])
    alive = list(lives(block, (Space.HBM,), given, made))
    for n, a in enumerate(alive):
        assert a.value.bytes <= a.value.memory.bytes
        for b in alive[:n]:
            together = a.first <= b.last and b.first <= a.last
            temporary = any(x.value.decl and x.value.decl.role is Role.TEMP for x in (a, b))
            assert not (together and temporary and a.value.memory is b.value.memory)
        if a.value.memory in (*given, *made) and a.value not in (*given, *made):
            assert a.value.memory in some


LENGTH = 4
SPILLED = (
    "HloModule t\nENTRY e {\n  v0 = f32[36,20] parameter(0)\n  w = f32[20,20] parameter(1)\n"
    + "".join(
        f"  {'ROOT ' * (n == LENGTH)}v{n} = f32[36,20] dot(v{n - 1}, w),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        for n in range(1, LENGTH + 1)
    )
    + "}\n"
)


SMALL = with_vmem(TINY, 2 << 10)


def test_spilled_values_of_a_chain_take_the_memory_of_two() -> None:
    rng = np.random.default_rng(0)
    args: list[Array] = [rng.standard_normal(s).astype(np.float32) / 10 for s in ((36, 20), (20, 20))]
    memory = check(SPILLED, args, SMALL, "default", 3e-2).memory
    assert memory.temporaries_unshared == (LENGTH - 1) * 36 * 20 * 4
    assert memory.temporaries == 2 * 36 * 20 * 4


@pytest.mark.parametrize("seed", [0, 10, 13, 18, *(pytest.param(s, marks=pytest.mark.slow) for s in (28, 36, 41))])
def test_random_modules_that_spill(seed: int) -> None:
    text, args = random_donation(seed)
    chip = with_vmem(TINY, 6 << 10)
    made = compare(text, args, chip)
    assert any(b.alias >= 0 for b in made.program.buffers if b.role is Role.TEMP)
