"""Regions to labels, virtual to real registers, addresses, tables."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.emit.codegen import Generator
from systolith.compiler.emit.linearize import Jump, Label, Linear, linearize, vregs_of
from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import Block, Buf, If, Ref, TileOp, VReg, While
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import F32
from systolith.isa.instruction import Reg, Space, Stream
from systolith.isa.pattern import Pattern
from systolith.isa.program import Origin

ROW = Pattern(F32, (4,), (4,))


def _add(rd: int, ra: int) -> TileOp:
    return TileOp("add", {"rd": VReg(rd), "ra": VReg(ra), "b": 1}, Origin())


def _set(rd: int) -> TileOp:
    return TileOp("li", {"rd": VReg(rd), "imm": rd}, Origin())


def test_loop_tests_first_and_jumps_back() -> None:
    line = linearize(Block([_set(1), While(Block([_add(2, 1)]), VReg(2), Block([_add(3, 2)]), "l")]))
    kinds = [i.op if isinstance(i, TileOp | Jump) else "label" for i in line.items]
    assert kinds == ["li", "label", "add", "beq", "add", "jmp", "label"]
    labels = {i.name: n for n, i in enumerate(line.items) if isinstance(i, Label)}
    jumps = [i for i in line.items if isinstance(i, Jump)]
    assert labels[jumps[0].target] == 6
    assert labels[jumps[1].target] == 1


def test_the_last_branch_is_taken_for_any_other_index() -> None:
    line = linearize(Block([_set(1), If(VReg(1), [Block([_set(10 + k)]) for k in range(3)])]))
    ops = [i for i in line.items if isinstance(i, TileOp | Jump)]
    assert [i.op for i in ops[:4]] == ["li", "beq", "li", "beq"]
    first = ops[4]
    assert isinstance(first, TileOp)
    assert first.args["imm"] == 12


def _overlap(line: Linear, a: VReg, b: VReg) -> bool:
    spans: dict[VReg, list[int]] = {}
    for n, item in enumerate(line.items):
        for v in vregs_of(item):
            spans.setdefault(v, [n, n])[1] = n
    (s, e), (t, f) = spans[a], spans[b]
    return s < f and t < e


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40))
def test_registers_that_live_together_differ(pairs: list[tuple[int, int]]) -> None:
    line = linearize(Block([*(_set(n) for n in range(1, 13)), *(_add(a, b) for a, b in pairs)]))
    for a, x in line.registers.items():
        assert 0 < x < 28
        for b, y in line.registers.items():
            assert a == b or x != y or not _overlap(line, a, b)


def test_a_register_read_in_a_loop_is_kept_through_it() -> None:
    """A register that the body writes after its last read of r1 would be read as r1 in the next turn."""
    loop = While(Block([_set(2)]), VReg(2), Block([_add(3, 1), _set(4), _add(5, 4), _add(6, 3)]))
    line = linearize(Block([_set(1), loop]))
    kept = line.registers[VReg(1)]
    assert kept not in {line.registers[VReg(n)] for n in (2, 3, 4, 5, 6)}


def test_a_register_of_a_loop_that_is_read_after_it_is_kept_through_it() -> None:
    """The last turn of the condition runs after the body wrote r3."""
    loop = While(Block([_set(2), _set(4), _add(2, 4)]), VReg(2), Block([_set(3)]))
    line = linearize(Block([loop, _add(5, 3)]))
    assert line.registers[VReg(3)] not in {line.registers[VReg(n)] for n in (2, 4)}


NAMES = st.integers(1, 12)
OPERATIONS = st.one_of(st.builds(_set, NAMES), st.builds(_add, NAMES, NAMES))
BLOCKS = st.recursive(
    st.builds(Block, st.lists(OPERATIONS, max_size=5)),
    lambda inner: st.builds(
        lambda parts: Block([item for part in parts for item in part.items]),
        st.lists(
            st.one_of(
                inner,
                st.builds(lambda c, p, b: Block([While(c, VReg(p), b, "l")]), inner, NAMES, inner),
                st.builds(lambda p, a, b: Block([If(VReg(p), [a, b])]), NAMES, inner, inner),
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@given(BLOCKS, st.randoms(use_true_random=False))
def test_a_read_finds_what_was_written_on_any_path(block: Block, chance: random.Random) -> None:
    """Branches go either way; whatever a register is read as was the last to be written to it."""
    line = linearize(block)
    places = {item.name: n for n, item in enumerate(line.items) if isinstance(item, Label)}
    holds: dict[int, VReg] = {}
    written: set[VReg] = set()
    at = steps = 0
    while at < len(line.items) and steps < 200:
        item, at, steps = line.items[at], at + 1, steps + 1
        target = item.args["rd"] if isinstance(item, TileOp) else None
        for v in vregs_of(item):
            if v is not target and v not in written:
                return  # the verifier refuses it
            assert v is target or holds[line.registers[v]] == v
        if isinstance(target, VReg):
            holds[line.registers[target]] = target
            written.add(target)
        elif isinstance(item, Jump) and (item.op == "jmp" or chance.random() < 0.4):
            at = places[item.target]


def test_too_many_scalars_are_refused() -> None:
    many = [_set(n) for n in range(1, 40)]
    with pytest.raises(CompileError, match="scalars are live at once"):
        linearize(Block([*many, *(_add(100 + n, n) for n in range(1, 40))]))


def test_addresses_and_tables() -> None:
    a, b = Buf("a", Space.VMEM, 64), Buf("b", Space.HBM, 64)
    move = TileOp("dma.load", {"src": Ref(b, ROW, 16, VReg(1)), "dst": Ref(a, ROW, 8)}, Origin())
    plain = TileOp("dma.load", {"src": Ref(b, ROW, 16), "dst": Ref(a, ROW, 8)}, Origin())
    line = linearize(Block([_set(1), move, plain]))
    generator = Generator(line, {a: 128}, [b], load_chip("tiny"))
    code = [x.instruction for x in generator.run() if x.instruction is not None]
    assert [i.op for i in code] == ["li", "add", "dma.load", "dma.load"]
    assert code[1].args["b"] == 16
    assert code[2].args["src"] == Stream(Space.HBM, 0, code[1].args["rd"], 0)  # type: ignore[arg-type]
    assert code[2].args["dst"] == Stream(Space.VMEM, 0, 136)
    assert code[3].args["src"] == Stream(Space.HBM, 0, 16, 0)
    assert isinstance(code[0].args["rd"], Reg)
    assert list(generator.tables.patterns) == [ROW]


def test_a_register_that_nothing_sets_has_its_value_from_before() -> None:
    """A group by itself reads registers that the program sets before it."""
    line = linearize(Block([_set(2), _add(3, 2), _set(4), _add(5, 4), _add(6, 1)]))
    assert all(line.registers[VReg(1)] != line.registers[VReg(n)] for n in range(2, 6))
