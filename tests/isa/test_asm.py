from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa import asm
from systolith.isa.asm import assemble, disassemble, instruction_text
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import F32
from systolith.isa.errors import AsmError
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.kernel import MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Program, Role
from systolith.isa.verify import verify_program
from tests.examples import examples
from tests.isa.strategies import programs

TINY = load_chip("tiny")


def manual_example() -> str:
    doc = asm.__doc__ or ""
    return doc[doc.index("    .program") : doc.index("An instruction is")]


@examples(12, 150)
@given(programs(TINY.name, TINY.digest()))
def test_disassembly_assembles_to_the_same_program(program: Program) -> None:
    text = disassemble(program)
    again = assemble(text, TINY)
    assert again == program
    assert disassemble(again) == text


def test_the_example_of_the_manual_is_a_legal_program() -> None:
    program = assemble(manual_example(), TINY)
    verify_program(program, TINY)
    assert [i.op for i in program.code] == ["dma.load", "vpu.run", "dma.store", "halt"]
    assert program.code[1].args["scalars"] == (0x40000000, 0, 0, 0)
    assert program.code[1].waits == (0,)
    assert program.buffers[0].bytes == 64


def test_labels_registers_and_defaults() -> None:
    text = """
    .pattern p bf16 counts=(4, 8) strides=(16, 2)
        li r1, 3
    again: loop r1, done          # r1 times
        mxu.matmul@0 vmem[r2]:p bias=(r3, -1), 1, acc=r4
    done:
        bne r1, r0, again
        halt
    """
    code = assemble(text, TINY).code
    assert code[1] == Instruction("loop", {"count": Reg(1), "end": 3})
    src = Stream(Space.VMEM, 0, Reg(2), 0, (Reg(3), -1))
    args: dict[str, Value] = {"src": src, "row_loops": 1, "acc": Reg(4), "accumulate": 0, "part": 0, "integer": 0}
    assert code[2] == Instruction("mxu.matmul", args)
    assert code[3].args["target"] == 1


def test_a_buffer_that_is_no_argument_and_no_result_has_no_number() -> None:
    (buffer,) = assemble(".buffer t temp f32 [4]\n    halt\n", load_chip("tiny")).buffers
    assert buffer == BufferDecl("t", Role.TEMP, "f32", (4,), 16)
    assert (buffer.number, buffer.alias) == (-1, -1)


def test_names_for_integers_and_registers() -> None:
    text = """
    .equ n 6
    .equ bytes n * 4
    .equ row r5
    .pattern p f32 counts=(n/2, 2) strides=(bytes - 2*n, -n+2)
        coord coefs=(n -1, 1) hi=n-1
    li row, bytes - 3*n - 1
    lds r1, row, mxu.cols * 4
    mxu.matmul vmem[row]:p bias=(row, -n), 1, acc=n
    vpu.run 0, (n), scalars=(row, -n, n, 1.5), streams=(vmem[bytes + 8]:p)
    """
    program = assemble(text, TINY)
    assert program.patterns[0] == Pattern(F32, (3, 2), (12, -4), (Coord((5, 1), hi=5),))
    assert program.code[0].args == {"rd": Reg(5), "imm": 5}
    assert program.code[1].args == {"rd": Reg(1), "ra": Reg(5), "imm": TINY.mxu.cols * 4}
    assert program.code[2].args["src"] == Stream(Space.VMEM, 0, Reg(5), 0, (Reg(5), -6))
    assert program.code[2].args["acc"] == 6
    assert program.code[3].args["scalars"] == (Reg(5), 2**32 - 6, 6, 0x3FC00000)
    assert program.code[3].args["streams"] == (Stream(Space.VMEM, 0, 32),)


def test_a_line_that_ends_with_a_comma_goes_on() -> None:
    text = """
    .buffer b constant u8 [4] data="0102",   # half
                                   "0304"
    .pattern p f32 counts=(1,
        2) strides=(8, 4)
    xlu.shuffle vmem[0]:p,
        vmem[8]:p
    halt
    """
    program = assemble(text, TINY)
    assert program.buffers[0].data == bytes([1, 2, 3, 4])
    assert program.patterns[0].counts == (1, 2)
    assert [i.op for i in program.code] == ["xlu.shuffle", "halt"]


def test_kernels_with_cycles_are_taken_as_they_are() -> None:
    text = ".kernel k ii=2 rotating=8\n const 1.5\n body length=4\n @0.0 v0 = ld s3\n @3.0 st s1, c0\n.end"
    kernel = assemble(text, TINY).kernels[0]
    ops = (MicroOp("ld", 0, (), 3, 0, 0), MicroOp("st", -1, (64,), 1, 3, 0))
    assert (kernel.body, kernel.ii, kernel.rotating) == (Section(ops, 4), 2, 8)
    assert kernel.constants == (0x3FC00000,)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("frob r1", 1, 1, "frob: no such instruction"),
        ("\nli r1", 2, 6, "missing: imm"),
        ("li r1, 2, 3", 1, 11, "3: unexpected"),
        ("li r1, 0x80000000", 1, 1, "li.imm"),
        ("add r1, r99, 1", 1, 1, "register = 99"),
        ("jmp nowhere", 1, 5, "nowhere: no such label"),
        ("a: halt\na: halt", 2, 1, "label a: defined before"),
        ("halt ;", 1, 6, "unexpected ';'"),
        ("sync wait t", 1, 11, "t: no such token"),
        ("dma.load vmem[0]:p, vmem[0]:p", 1, 18, "p: no such pattern"),
        ("dma.load ram[0]:0, vmem[0]:0", 1, 10, "ram: no such space"),
        (".frob", 1, 1, "no such directive"),
        (".equ n 3\n.equ n 4", 2, 1, "n: defined before"),
        ("halt\nli r1,  # one\n  frob\nhalt", 3, 3, "expected imm, an integer"),
        ("halt\nli r1,", 2, 7, "ends with a comma: must go on"),
        (".equ mxu.cols 3", 1, 1, "mxu.cols: defined before"),
        (".equ r7 3", 1, 1, "r7: defined before"),
        (".equ n 3\nli r1, n * m", 2, 12, "expected imm, an integer"),
        (".equ n 3\nli r1, n / 2", 2, 10, "3 / 2: must leave no remainder"),
        ("li r1, 4 / 0", 1, 10, "4 / 0: must leave no remainder"),
        (".pattern p f33 counts=(1)", 1, 12, "f33: no such element type"),
        (".pattern p f32 counts=(0) strides=(1)", 1, 1, "each at least 1"),
        (".buffer b thing f32 [1]", 1, 11, "role thing"),
        (".kernel k auto\nbody\n x = ld s0\n y = frob x\n.end", 4, 6, "frob: no such micro-operation"),
        (".kernel k auto\nbody\n x = mov y\n.end", 3, 10, "y: not defined"),
        (".kernel k auto\nbody\n st s0, a7\n.end", 3, 9, "a7: there are 4"),
        (".kernel k\nbody\n v0 = ld s0\n.end", 3, 2, "expected '@'"),
        (".kernel k auto\nbody", 1, 1, "kernel k: has no .end"),
        ('.chip tiny "1234"', 1, 7, "this is tiny"),
    ],
)
def test_errors_say_where(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(AsmError) as e:
        assemble(text, TINY)
    assert str(e.value).startswith(f"line {line}, column {column}: ")
    assert message in str(e.value)
    source, caret = e.value.excerpt.split("\n")
    assert source == text.split("\n")[line - 1]
    assert caret == " " * (column - 1) + "^"


@examples(100, 300)
@given(st.data())
def test_damaged_text_assembles_or_is_refused_with_its_line(data: st.DataObject) -> None:
    text = manual_example()
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.sampled_from(["", " ", ",", "(", ")", "=", "-1", "99999999999", "x", '"', "r7", ":", "\n"]))
    text = text[:at] + new + text[at + data.draw(st.integers(0, 4)) :]
    lines = []
    try:
        assemble(text, TINY)
    except AsmError as e:
        lines.append(e.line)
    assert all(1 <= n <= len(text.splitlines()) + 1 for n in lines)


def test_one_instruction_as_text() -> None:
    program = assemble(manual_example(), TINY)
    assert instruction_text(program.code[0], program) == "dma.load hbm(x)[0]:p0, vmem[0]:p0 signal t0"
    assert instruction_text(Instruction("jmp", {"target": 7}), program) == "jmp 7"
