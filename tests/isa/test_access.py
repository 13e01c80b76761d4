from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.access import Access, Tile, accesses
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32
from systolith.isa.geometry import Bias, Interval, Unknown, interval, loop_strides, pitched
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Program, Role

TINY = load_chip("tiny")
TILE = Pattern(F32, (4, 8), (64, 4))


def touched(p: Pattern, bias: tuple[int, int], index: list[int]) -> list[int]:
    """Addresses of the elements inside, by the definition in `pattern.py`."""
    out = []
    for idx in product(*(range(c) for c in p.counts)):
        i = [index[v] if k == p.indirect else v for k, v in enumerate(idx)]
        cs = []
        for c in p.coords:
            v = c.offset + sum(a * b for a, b in zip(c.coefs, i, strict=True)) + (bias[c.bias] if c.bias >= 0 else 0)
            cs.append((v, c))
        if all(v % c.div == 0 and c.lo <= v // c.div < c.hi for v, c in cs):
            out.append(
                sum(s * v for s, v in zip(p.strides, i, strict=True)) + sum(v // c.div * c.stride for v, c in cs)
            )
    return out


def rows(a: Access) -> Access:
    """An access to TILE's rows within an interval."""
    return a._replace(run=32, pitch=64)


small = st.integers(-4, 4)


@st.composite
def small_patterns(draw: st.DrawFn) -> Pattern:
    n = draw(st.integers(1, 3))
    bounds = st.integers(-5, 5)
    coords = [
        Coord(
            draw(st.tuples(*[small] * n)), draw(small), draw(bounds | st.just(-(2**31))),
            draw(bounds | st.just(2**31 - 1)), draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 4, -8])),
            draw(st.integers(-1, 1)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]  # fmt: skip
    if len(coords) > 1 and draw(st.booleans()):
        factor = draw(st.sampled_from([1, 2, -1]))
        coords[-1] = replace(coords[-1], coefs=tuple(factor * k for k in coords[0].coefs))
    counts = draw(st.tuples(*[st.integers(1, 4)] * n))
    strides = draw(st.tuples(*[st.sampled_from([0, 4, -4, 12, 64])] * n))
    strides = draw(st.sampled_from([strides, *(tuple(4 * k for k in c.coefs) for c in coords)]))
    strides = draw(st.sampled_from([strides, (*strides[:-1], 4)]))
    return Pattern(F32, counts, strides, tuple(coords), indirect=draw(st.integers(-1, n - 1)))


@given(small_patterns(), st.tuples(small, small), st.lists(st.integers(-9, 9), min_size=4, max_size=4), st.booleans())
def test_the_interval_holds_every_element(p: Pattern, bias: tuple[int, int], index: list[int], known: bool) -> None:
    inside = touched(p, bias, index)
    got = interval(p, bias if known else (None, None))
    if got is None:
        assert not inside
    elif isinstance(got, Interval):
        assert all(got.lo <= a and a + 4 <= got.hi for a in inside)
    else:
        assert p.indirect >= 0 or not known or any(c.stride for c in p.coords)


@given(small_patterns())
def test_a_loop_s_stride_is_what_a_step_adds_to_every_address(p: Pattern) -> None:
    for k, stride in enumerate(loop_strides(p)):
        steps = [Fraction(p.strides[k]), *(Fraction(c.coefs[k], c.div) * c.stride for c in p.coords)]
        whole = all(c.coefs[k] % c.div == 0 for c in p.coords if c.stride)  # else some steps add nothing
        assert stride == (sum(steps) if whole and k != p.indirect else None)


def test_plain_intervals_are_exact() -> None:
    assert interval(TILE) == Interval(0, 3 * 64 + 32)
    assert interval(Pattern(F32, (4, 8), (-64, 4))) == Interval(-192, 32)


def test_bounds_narrow_loops_beside_others() -> None:
    """Rows of 16 of 128 columns: only the loops over rows advance the address as they do the coordinate."""
    rows = Coord((64, 128, 16, 1), 0, 0, 24000)
    assert interval(Pattern(F32, (2, 188, 4, 16), (2048, 4096, 512, 4), (rows,))) == Interval(0, 1499 * 512 + 16 * 4)
    assert interval(Pattern(F32, (2, 188, 4, 16), (0, 0, 0, 4), (rows,))) == Interval(0, 16 * 4)


def test_bounds_narrow_the_interval() -> None:
    # A convolution's input: 6 output rows, kernel of 3, one row of padding on each side of 6 rows of 32 bytes.
    p = Pattern(F32, (6, 3, 8), (32, 32, 4), (Coord((1, 1, 0), -1, 0, 6),))
    assert interval(p) == Interval(32, 32 + 6 * 32)  # the base is one row before the array
    strided = Pattern(F32, (3, 3, 8), (64, 32, 4), (Coord((2, 1, 0), -1, 0, 6),))
    assert interval(strided) == Interval(32, 32 + 6 * 32)


def test_steps_over_all_that_is_inside_reach_nothing() -> None:
    """Coordinates -1 and 1 of one row; -1, 2 and 5 of four rows: the one inside is the second."""
    assert interval(Pattern(F32, (2, 8), (64, 4), (Coord((2, 0), -1, 0, 1),))) is None
    assert interval(Pattern(F32, (3, 8), (96, 4), (Coord((3, 0), -1, 0, 4),))) == Interval(96, 96 + 32)


def test_coordinates_of_one_sum_narrow_one_another() -> None:
    """Every second row of a reversed axis from the second row on: 17 - x even, and x below 17, is 2 to 16."""
    x = Coord((2, 1), 0, 0, 17)
    reversed_rows = Coord((-2, -1), 17, 0, 9, 2, 40)
    assert interval(Pattern(F32, (9, 2), (0, 0), (reversed_rows, x))) == Interval(40, 8 * 40 + 4)
    assert interval(Pattern(F32, (9, 2), (0, 0), (reversed_rows, Coord((2, 1), 0, 20, 30)))) is None
    twice = Coord((4, 2), 1, 3, 10)
    assert interval(Pattern(F32, (9, 2), (8, 4), (twice, x))) == Interval(4, 4 * 4 + 4)


def test_the_tightest_of_bounds_that_share_loops_narrows_the_interval() -> None:
    columns = (Coord((0, 6, 1), 1, 0, 9), Coord((0, 6, 1), -1, 0, 4))
    for coords in (columns, columns[::-1]):
        assert interval(Pattern(F32, (9, 2, 6), (0, 24, 4), coords)) == Interval(4, 20)
    # 30 elements as 5 x 6, padded to 7 x 8, of a row of 26 padded by two on each side.
    sides = (Coord((1, 0), -1, 0, 5), Coord((0, 1), -1, 0, 6))
    p = Pattern(F32, (7, 8), (24, 4), (*sides, Coord((6, 1), -9, 0, 26)))
    assert interval(p) == Interval(36, 36 + 26 * 4)


def test_a_dynamic_bias_is_bounded_by_its_coordinate() -> None:
    p = Pattern(F32, (4, 8), (0, 4), (Coord((1, 0), lo=0, hi=10, stride=32, bias=0),))
    assert interval(p, (3, 0)) == Interval(96, 7 * 32)
    assert interval(p, (None, 0)) == Interval(0, 320)
    assert interval(p, (20, 0)) is None
    free = Pattern(F32, (4, 8), (0, 4), (Coord((1, 0), stride=32, bias=0),))
    unknown: Bias = (None, 0)
    assert isinstance(interval(free, unknown), Unknown)


def program() -> Program:
    ops = (MicroOp("ld", 0, (), 0), MicroOp("ld", 1, (), 1), MicroOp("st", -1, (0,), 1, 3))
    return Program(
        "p", "tiny", "",
        patterns=[TILE, Pattern(BF16, (4, 8), (16, 2)), Pattern(F32, (4, 8), (64, 4), indirect=0)],
        kernels=[Kernel("k", Section(ops, 4), 2, rotating=8)],
        buffers=[
            BufferDecl("a", Role.PARAMETER, "f32", (256,), 1024, 0),
            BufferDecl("b", Role.RESULT, "f32", (256,), 1024, 0, alias=0),
        ],
    )  # fmt: skip


def vmem(lo: int, hi: int, write: bool, dynamic: bool = False) -> Access:
    return Access(Space.VMEM, 0, lo, hi, write, dynamic)


def test_copies() -> None:
    instr = Instruction("dma.store", {"src": Stream(Space.VMEM, 0, 256), "dst": Stream(Space.HBM, 0, 0, 1)})
    assert accesses(instr, program(), TINY) == [rows(vmem(256, 480, False)), rows(Access(Space.HBM, 0, 0, 224, True))]


def test_registers_give_the_whole_space() -> None:
    instr = Instruction("dma.load", {"src": Stream(Space.HBM, 0, Reg(3), 1), "dst": Stream(Space.VMEM, 0, Reg(4))})
    got = accesses(instr, program(), TINY)
    assert got == [Access(Space.HBM, 0, 0, 1024, False, True), vmem(0, TINY.vmem.bytes, True, True)]
    assert accesses(Instruction("dma.load", {"src": Stream(Space.VMEM, 0, Reg(0)), "dst": Stream(Space.VMEM, 0, 512)}),
                    program(), TINY) == [rows(vmem(0, 224, False)), rows(vmem(512, 736, True))]  # fmt: skip


def test_index_lists_are_read() -> None:
    instr = Instruction("xlu.shuffle", {"src": Stream(Space.VMEM, 2, 0, index=4096), "dst": Stream(Space.VMEM, 0, 512)})
    got = accesses(instr, program(), TINY)
    assert got == [vmem(4096, 4112, False), vmem(0, TINY.vmem.bytes, False, True), rows(vmem(512, 736, True))]


def test_mxu() -> None:
    args: dict[str, Value] = {"src": Stream(Space.VMEM, 1), "row_loops": 1, "part": 0, "integer": 0}
    load = Instruction("mxu.load", {**args, "transpose": 0}, 0)
    assert accesses(load, program(), TINY) == [Access(Tile.SHADOW, 0, 0, 1, True), vmem(0, 64, False)]
    latch = accesses(Instruction("mxu.latch"), program(), TINY)
    assert latch == [Access(Tile.SHADOW, 0, 0, 1, False), Access(Tile.ACTIVE, 0, 0, 1, True)]
    matmul = Instruction("mxu.matmul", {**args, "acc": 16, "accumulate": 1})
    assert accesses(matmul, program(), TINY) == [
        Access(Tile.ACTIVE, 0, 0, 1, False),
        Access(Space.ACC, 0, 16 * 32, 20 * 32, True),
        vmem(0, 64, False),
    ]


def test_kernels_read_and_write_what_their_micro_operations_do() -> None:
    streams = (Stream(Space.VMEM, 0, 0), Stream(Space.VMEM, 0, 1024))
    instr = Instruction("vpu.run", {"kernel": 0, "streams": streams})
    assert accesses(instr, program(), TINY) == [
        rows(vmem(0, 224, False)),
        rows(vmem(1024, 1248, False)),
        rows(vmem(1024, 1248, True)),
    ]


def test_coordinates_of_listed_elements_read_the_list() -> None:
    p = program()
    asks = (MicroOp("inside", 0, (), 0), MicroOp("st", -1, (0,), 1, 3))
    p.kernels.append(Kernel("asks", Section(asks, 4), 2, rotating=8))
    streams = (Stream(Space.NONE, 2, index=4096), Stream(Space.VMEM, 0, 1024))
    instr = Instruction("vpu.run", {"kernel": 1, "streams": streams})
    assert accesses(instr, p, TINY) == [vmem(4096, 4112, False), rows(vmem(1024, 1248, True))]


def test_smem() -> None:
    word = Instruction("lds", {"rd": Reg(1), "ra": Reg(0), "imm": 8})
    assert accesses(word, program(), TINY) == [Access(Space.SMEM, 0, 8, 12, False)]
    store = Instruction("sts", {"rb": Reg(1), "ra": Reg(2), "imm": 8})
    assert accesses(store, program(), TINY) == [Access(Space.SMEM, 0, 0, 4096, True, True)]


def test_of_the_host_only_returns_wait_for_calls() -> None:
    """Each direction has one DMA queue, which keeps its order by itself."""
    p = program()
    p.buffers += [BufferDecl("c", role, "f32", (256,), 0, 1) for role in (Role.INFEED, Role.CALL, Role.RETURN)]
    host = [Stream(Space.HOST, 0, base, 1) for base in (2, 3, 4)]
    loads = [Instruction("dma.load", {"src": stream, "dst": Stream(Space.VMEM, 0)}) for stream in host]
    stores = [Instruction("dma.store", {"src": Stream(Space.VMEM, 0), "dst": stream}) for stream in host]
    moved = [[a for a in accesses(i, p, TINY) if a.space is Space.HOST] for i in (*loads, *stores)]
    returned, called = Access(Space.HOST, 1, 0, 1, False), Access(Space.HOST, 1, 0, 1, True)
    assert moved == [[], [], [returned], [], [called], []]


def elements_of(a: Access) -> set[int]:
    pitch, run = (a.pitch, a.run) if a.pitch else (a.hi - a.lo, a.hi - a.lo)
    return {start + b for start in range(a.lo, a.hi, pitch) for b in range(run)}


@st.composite
def spaced(draw: st.DrawFn) -> Access:
    """An interval, or runs at a pitch, as patterns give them: the last run is whole."""
    lo, run = draw(st.integers(0, 40)), draw(st.integers(1, 8))
    if draw(st.booleans()):
        return vmem(lo, lo + run, True)
    pitch, count = run + draw(st.integers(1, 9)), draw(st.integers(1, 6))
    return Access(Space.VMEM, 0, lo, lo + pitch * (count - 1) + run, True, False, run, pitch)


@given(spaced(), spaced())
def test_accesses_meet_if_they_share_a_byte(a: Access, b: Access) -> None:
    assert a.meets(b) == b.meets(a) == bool(elements_of(a) & elements_of(b))


@given(small_patterns())
def test_runs_at_a_pitch_hold_every_element(p: Pattern) -> None:
    p = replace(p, coords=(), indirect=-1)
    run, pitch = pitched(p)
    assert (run < pitch) == (pitch > 0)
    addresses = touched(p, (0, 0), [])
    if pitch:
        assert all((a - min(addresses)) % pitch + p.dtype.size <= run for a in addresses)


def test_meeting() -> None:
    assert vmem(0, 8, True).meets(vmem(7, 9, False))
    assert not vmem(0, 8, True).meets(vmem(8, 9, False))
    assert not vmem(0, 8, True).meets(Access(Space.SMEM, 0, 0, 8, True))
