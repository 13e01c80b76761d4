"""Assembly: assembled, verified, written back."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.program import Program
from systolith.isa.verify import verify_program
from systolith.runtime.inputs.sources import read_assembly
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tokens import mutated

ROOT = Path(__file__).resolve().parents[2]
SOUP = (
    "( ) [ ] { } , : = # @ . -> .. \" ' \\ \\u0000 0 1 -1 7 8 12 13 64 255 256 65535 2147483647 2147483648 -2147483649"
    f" 4294967295 4294967296 1e400 inf nan 0x 0x1p9 1_0 {'9' * 5000} r0 r1 r31 r32 t0 hbm vmem smem host link acc"
    " hbm(x) vmem[0]:0"
    " .pattern .kernel .end .buffer .probe .group .origin .chip .token .data body prologue epilogue carry wait"
    " signal halt loop jmp beq li lds sts dma.load mxu.load mxu.matmul vpu.run xlu.reduce xlu.shuffle trap sync"
    " nop.ld f32 s4 bf16 pred c64 f33 counts=(1) strides=(4) indirect=0 coord lo=0 \n \t \0 \ud800 é ٣ {}"
).split(" ")


@cache
def samples() -> tuple[str, ...]:
    """Programs by hand, and the disassembler's texts of them."""
    paths = [*sorted((ROOT / "tests" / "programs").glob("*.s")), ROOT / "examples" / "axpy.s"]
    texts = [path.read_text() for path in paths]
    return tuple(texts + [disassemble(assemble(text, load_chip("tiny"))) for text in texts])


class Assembler(Fuzzer):
    name, suffix = "assembler", ".s"

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        return mutated(dice.choice(samples()), SOUP, dice).encode("utf-8", "surrogatepass")

    def check(self, case: bytes) -> None:
        chip = load_chip("tiny")
        program = read_assembly(file_of(case, self.suffix), chip)
        verify_program(program, chip)
        check_program(program)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of assembly"


def check_program(program: Program) -> None:
    """A valid program has a binary and a text, and both read back as the same program."""
    data = to_bytes(program)
    assert to_bytes(from_bytes(data)) == data, "the binary reads back as another program"
    assert to_bytes(assemble(disassemble(program), load_chip("tiny"))) == data, "the text assembles to another program"
