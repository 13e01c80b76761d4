from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.asm import assemble
from systolith.isa.chip import load_chip
from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Instruction, Reg, Stream
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.opcodes import OPCODES
from systolith.isa.program import Program
from systolith.isa.verify import verify_code, verify_program
from systolith.isa.verify_kernel import verify_kernel
from tests.examples import examples
from tests.isa.strategies import field_values

TINY = load_chip("tiny")

GOOD = """
.buffer x parameter f32 [4, 8] number=0
.buffer y result f32 [4, 8] number=0
.token loaded ld -> vpu
.token ready vpu -> w0
.token summed s0 -> st
.pattern block f32 counts=(4, 8) strides=(32, 4)
.pattern vectors f32 counts=(2, 2, 8) strides=(64, 32, 4)
    coord coefs=(2, 1, 0) lo=0 hi=4
.pattern list f32 counts=(4, 8) strides=(32, 4) indirect=0
.pattern narrow bf16 counts=(2, 2, 8) strides=(64, 32, 4)
.kernel twice auto
  body
    a = ld s0
    b = add.f32 a, a
    st s1, b
.end
    dma.load hbm(x)[0]:block, vmem[0]:block signal loaded
    vpu.run twice, (2), streams=(vmem[0]:vectors, vmem[128]:vectors) wait loaded signal ready
    mxu.load@0 vmem[128]:block, 1 wait ready
    mxu.latch@0
    mxu.matmul@0 vmem[128]:block, 1, 0 signal summed
    loop 3, after
    li r1, 4
after:
    dma.store vmem[128]:block, hbm(y)[0]:block wait summed
    xlu.reduce vmem[0]:block, vmem[2048]:0, add.f32
    halt
"""


def edit(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def legal() -> str:
    # xlu.reduce of four rows gives four elements.
    return GOOD.replace(".kernel twice", ".pattern four f32 counts=(4) strides=(4)\n.kernel twice").replace(
        "vmem[2048]:0", "vmem[2048]:four"
    )


def test_a_good_program_passes() -> None:
    verify_program(assemble(legal(), TINY), TINY)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vmem[128]:block, 1 wait ready", "smem[128]:block, 1 wait ready", "instruction 2: mxu.load: src: space SMEM"),
        ("dma.load hbm(x)[0]:block", "dma.load acc(0)[0]:block", "space ACC: must be HBM or HOST or SMEM or VMEM"),
        ("dma.load hbm(x)[0]:block", "dma.load hbm(7)[0]:block", "buffer 7: HBM has 2 buffers"),
        ("dma.load hbm(x)[0]:block", "dma.load host(5)[0]:block", "buffer 5: HOST has 2 host queues"),
        ("dma.load hbm(x)[0]:block", "dma.load hbm(x)[0]:99", "pattern 99"),
        ("dma.load hbm(x)[0]:block", "dma.load hbm(x)[4]:block", "HBM buffer x: bytes 4 to 131: it has 128"),
        ("vmem[0]:block signal", "vmem[262080]:block signal", "VMEM 0: bytes 262080 to 262207: it has 262144"),
        ("hbm(x)[0]:block, vmem[0]:block", "hbm(x)[0]:block, vmem[0]:vectors", None),
        ("hbm(x)[0]:block", "hbm(x)[0]:four", "src has 4 elements, dst has 32"),
        ("vmem[0]:vectors, vmem[128]:vectors)", "vmem[0]:vectors, acc(0)[130]:vectors)", "base or a stride in ACC"),
        ("vmem[0]:vectors, vmem[128]:vectors)", "vmem[0]:vectors, acc(0)[128]:narrow)", "bf16 in ACC: must be f32"),
        ("vmem[128]:block, 1 wait ready", "vmem[128]:list, 1 wait ready", "src: an indirect pattern"),
        ("vmem[128]:block, 1 wait ready", "vmem[128]:block, 3 wait ready", "row_loops 3: the pattern has 2 loops"),
        ("vmem[128]:block, 1 wait ready", "vmem[128]:block, 2 wait ready", "tile of 32 x 1: the array has 8 x 8"),
        ("vmem[128]:block, 1 wait ready", "vmem[128]:block, 1, integer=1 wait ready", "f32, integer 1"),
        ("vmem[128]:block, 1, 0 signal", "vmem[128]:block, 1, 253 signal", "accumulator rows 253 to 256"),
        ("vmem[128]:block, 1, 0 signal", "vmem[128]:block, 0, 0 signal", "rows of 32 elements: the array has 8"),
        ("mxu.latch@0", "mxu.latch@1", "queue s1: the chip has"),
        ("twice, (2)", "twice, (3)", "counts (2,): the nest's are (3,)"),
        ("twice, (2)", "twice, (2, 1)", "3 loops: the nest has 2"),
        ("twice, (2)", "twice, (2), inner=2", "inner 2: the nest has 1 loops"),
        ("twice, (2)", "9, (2)", "kernel 9: there are 1"),
        (", vmem[128]:vectors)", ")", "st of stream 1: there are 1"),
        ("vmem[0]:block, vmem[2048]:four, add.f32", "vmem[0]:block, vmem[2048]:block, add.f32", "src has 4 rows"),
        (", vmem[128]:vectors)", ", vmem[128]:vectors, vmem[0]:77)", "streams[2]: pattern 77"),
        ("add.f32\n    halt", "add.s32\n    halt", "function add.s32: not of f32"),
        ("vmem[128]:block, hbm(y)", "vmem[128]:list index=262140, hbm(y)", "index list 262140 to 262156"),
        ("vmem[128]:block, hbm(y)", "vmem[128]:list index=2, hbm(y)", "must be a multiple of 4"),
        ("li r1, 4", "jmp 0", "crosses the loop at 5 to 6"),
        ("loop 3, after", "loop 3, 99", "end 99"),
        ("li r1, 4", "li r1, 4 signal summed", "instruction 6: li: tokens or a fence: of SEQ's"),
        ("li r1, 4", "nop seq wait summed", "instruction 6: nop: tokens or a fence: of SEQ's"),
        ("halt", "sync", "ends with sync"),
        ("halt", "jmp 99\nhalt", "target 99"),
        ("wait loaded signal ready", "signal ready", None),
        ("signal loaded", "signal ready", "instruction 0: dma.load of ld signals token 1: its producer is vpu"),
        ("wait summed", "wait ready", "its consumer is w0"),
        ("block signal loaded", "block", "waits for token 0: nothing before it signals it"),
        ("li r1, 4", "nop s0 signal summed", "instruction 6: token 2 counts 1 on one way here and 2 on another"),
        ("mxu.latch@0", "mxu.latch@0 signal summed", "mxu.matmul: signals token 2, as instruction 3, mxu.latch, does"),
        (".token loaded ld -> vpu", ".token loaded ld -> w1", "token 0: queue 'w1'"),
        ("number=0\n.buffer y", "bytes=99999999\n.buffer y", "hbm.bytes"),
        ("number=0\n.token", "alias=5\n.token", "alias 5"),
        (".pattern block f32", ".pattern wide f64 counts=(1) strides=(8)\n.pattern block f32", "f64"),
    ],
)
def test_each_rule(old: str, new: str, message: str | None) -> None:
    text = legal()
    assert old in text
    program = assemble(text.replace(old, new, 1), TINY)
    if message is None:
        verify_program(program, TINY)
        return
    with pytest.raises(ProgramError) as e:
        verify_program(program, TINY)
    assert message in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dst": {"base": 262080}}, "VMEM 0: bytes 262080 to 262207: it has 262144"),
        ({"src": {"base": 4}}, "HBM buffer x: bytes 4 to 131: it has 128"),
        ({"src": {"base": 2**31}}, "operand 2147483648"),
        ({"src": {"base": 0.0}}, "operand 0.0"),
        ({"src": {"buffer": 7}}, "buffer 7: HBM has 2 buffers"),
        ({"dst": {"pattern": 99}}, "pattern 99"),
        ({"waits": (0,) * 5}, "at most 4 tokens"),
        ({"signals": (-1,)}, "must be from 0 to"),
    ],
)
def test_each_rule_holds_for_the_second_instruction_of_a_form(change: dict[str, Any], message: str) -> None:
    program = assemble(legal(), TINY)
    load = replace(program.code[0], waits=(), signals=())
    program.code[:0] = [load, load]
    program.debug = []
    streams = {k: replace(cast(Stream, load.args[k]), **v) for k, v in change.items() if k in load.args}
    tokens = {k: v for k, v in change.items() if k not in load.args}
    program.code[1] = replace(load, args={**load.args, **streams}, **tokens)
    with pytest.raises(ProgramError) as e:
        verify_program(program, TINY)
    assert str(e.value).startswith("instruction 1: dma.load: ")
    assert message in str(e.value)


def test_loops_nest_at_most_eight_deep() -> None:
    def nest(n: int) -> Program:
        loops = "\n".join(["loop 2, end"] * n)
        return assemble(f"{loops}\nli r1, 1\nend: halt", TINY)

    verify_program(nest(8), TINY)
    with pytest.raises(ProgramError, match="9 loops nest: at most 8"):
        verify_program(nest(9), TINY)


def test_branches_must_agree_about_tokens() -> None:
    text = ".token t ld -> seq\nbeq r1, r0, skip\nnop ld signal t\nskip: sync\nhalt"
    with pytest.raises(ProgramError, match="token 0 counts"):
        verify_program(assemble(text, TINY), TINY)
    both = (
        ".token t ld -> seq\nbeq r1, r0, other\nnop ld signal t\njmp on\nother: nop ld signal t\non: sync wait t\nhalt"
    )
    verify_program(assemble(both, TINY), TINY)


def test_tokens_do_not_overflow() -> None:
    text = ".token t ld -> seq\n" + "nop ld signal t\n" * 16 + "halt"
    with pytest.raises(ProgramError, match=r"token 0 counts 16: token\.max is 15"):
        verify_program(assemble(text, TINY), TINY)


@examples(75, 400)
@given(st.data())
def test_any_change_of_a_field_is_good_or_refused_in_words(data: st.DataObject) -> None:
    program = assemble(legal(), TINY)
    at = data.draw(st.sampled_from([i for i, c in enumerate(program.code) if c.args]))
    instr = program.code[at]
    field = data.draw(st.sampled_from(OPCODES[instr.op].fields))
    program.code[at] = replace(instr, args={**instr.args, field.name: data.draw(field_values(field))})
    with contextlib.suppress(ProgramError):
        verify_program(program, TINY)


def test_another_chip_is_refused() -> None:
    with pytest.raises(ProgramError, match="program is for chip tiny"):
        verify_program(assemble("halt", TINY), load_chip("small"))


LD, ADD = MicroOp("ld", 0, (), 0, 0, 0), MicroOp("add.f32", 1, (0, 0), 0, 3, 0)
ST = MicroOp("st", -1, (1,), 1, 5, 0)
KERNEL = Kernel("k", Section((LD, ADD, ST), 6), 1, rotating=8)


def _body(*ops: MicroOp, **changes: int) -> Kernel:
    section = Section(ops, changes.pop("length", 6))
    return replace(KERNEL, body=section, **changes)  # type: ignore[arg-type]


CASES: list[tuple[Callable[[], Kernel], str]] = [
    (lambda: _body(LD, replace(ADD, cycle=2), ST), "reads v0 in cycle 2: it is there in 3"),
    (lambda: _body(LD, replace(ADD, slot=2), ST), "slot 2: the chip has 2 of alu"),
    (lambda: _body(LD, ADD, replace(ADD, dst=2), ST), "alu slot 0 is taken"),
    (lambda: _body(LD, replace(LD, dst=3, cycle=1), ADD, ST), "load slot 0 is taken"),
    (lambda: _body(LD, ADD, ST, length=5), "result in cycle 6: the length is 5"),
    (lambda: _body(LD, ADD, ST, length=65), "65 iterations in flight"),
    (lambda: _body(ADD, LD, ST), "must be listed in issue order"),
    (lambda: _body(LD, ADD, ST, rotating=65), "rotating 65"),
    (lambda: _body(LD, replace(ADD, srcs=(0, 5)), ST), "reads v5, which nothing before it wrote"),
    (lambda: _body(LD, replace(ADD, srcs=(0, 64)), ST), "operand 64"),
    (lambda: _body(LD, replace(ADD, srcs=(0,)), ST), "1 operands"),
    (lambda: _body(LD, replace(ADD, dst=-1), ST), "result -1"),
    (lambda: _body(LD, ADD, replace(ST, imm=12)), "stream 12"),
    (lambda: _body(LD, replace(ADD, dst=9), replace(ST, srcs=(9,), cycle=7), length=8), "reads v9 in cycle 7"),
    # Two rotating registers, and a value that lives for three iterations.
    (lambda: _body(LD, replace(ADD, cycle=6), replace(ST, cycle=8), length=9, rotating=2), "overwrites v0"),
    (lambda: _body(replace(ST, srcs=(0,), cycle=0), LD, ADD), "a store listed before it issues in 0"),
]


@pytest.mark.parametrize(("make", "message"), CASES)
def test_illegal_schedules(make: Callable[[], Kernel], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        verify_kernel(make(), TINY)


def test_a_legal_schedule() -> None:
    verify_kernel(KERNEL, TINY)


def test_a_recurrence_shorter_than_its_latency_is_refused() -> None:
    start = Section((MicroOp("mov", 8, (64,)),), 2)
    body = Section((LD, MicroOp("add.f32", 8, (8, 0), 0, 3, 0)), 5)
    kernel = Kernel("k", body, 2, start, Section(), (0,), 8)
    verify_kernel(kernel, TINY)
    with pytest.raises(ProgramError, match="needs v8 2 cycles later: ii is 1"):
        verify_kernel(replace(kernel, ii=1), TINY)


def test_resolved_instructions_are_verified_like_others() -> None:
    program = assemble(legal(), TINY)
    program.code[4] = replace(program.code[4], args={**program.code[4].args, "acc": Reg(3)})
    verify_program(program, TINY)
    program.code[4] = Instruction("mxu.matmul", {**program.code[4].args, "acc": 256}, signals=(2,))
    with pytest.raises(ProgramError, match="accumulator rows 256"):
        verify_program(program, TINY)


@pytest.mark.parametrize(
    ("dtype", "fill", "limits"), [("s8", 200, "-128 to 127"), ("u4", 16, "0 to 15"), ("pred", 2, "0 to 1")]
)
def test_integer_products_read_values_of_their_type_outside(dtype: str, fill: int, limits: str) -> None:
    text = f".pattern t {dtype} counts=(8, 8) strides=(8, 1) fill={fill}\nmxu.load@0 vmem[0]:t, 1, integer=1\nhalt"
    with pytest.raises(ProgramError, match=f"src: fill {fill}: {dtype} has {limits}"):
        verify_program(assemble(text, TINY), TINY)
    verify_program(assemble(text.replace(f"fill={fill}", "fill=1"), TINY), TINY)


@given(st.lists(st.tuples(st.integers(-9, 160), st.integers(-4, 72)), min_size=1, max_size=6))
def test_the_first_of_a_form_that_breaks_a_rule_is_named(places: list[tuple[int, int]]) -> None:
    """Products of few forms, some beyond VMEM or the accumulators: each by itself says what is wrong with it."""
    program = assemble(legal(), TINY)
    product = next(i for i in program.code if i.op == "mxu.matmul")
    first = TINY.vmem.bytes - 128 - 144, TINY.mxu.acc_rows - 68
    src = cast(Stream, product.args["src"])
    code = [
        replace(product, args={**product.args, "src": replace(src, base=first[0] + at), "acc": first[1] + row})
        for at, row in places
    ]

    def refusal(some: list[Instruction]) -> str | None:
        try:
            verify_code(some, program, TINY)
        except ProgramError as error:
            return str(error)
        return None

    alone = [refusal([one]) for one in code]
    expected = next((f"instruction {n}:{e.removeprefix('instruction 0:')}" for n, e in enumerate(alone) if e), None)
    assert refusal(code) == expected
