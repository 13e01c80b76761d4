"""The micro-operations in RTL, one lane: the same bits as the model's, for each of them."""

import shutil
from pathlib import Path

import pytest

from systolith.hw.tb import fp_bench, native
from systolith.hw.tb.build import HW
from systolith.hw.tb.fp_bench import F32, What
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS
from systolith.isa.numerics.transcendental import FUNCTIONS
from systolith.isa.opcodes import REDUCE_FUNCTIONS

ALU = [m.name for m in MICROOPS.values() if m.slot is Slot.ALU and m.name not in ("coord", "inside")]
TRANS = [m.name for m in MICROOPS.values() if m.slot is Slot.TRANS and m.name.removesuffix(".f32") not in FUNCTIONS]

# File, text, its replacement, and the micro-operations that then differ: each in its own part of the arithmetic.
PLANTED = (
    ("ieee754.svh", "larger[Bits-1] && !subtract", "larger[Bits-1]", ("add.f32", "sub.f32")),
    ("ieee754.svh", "|product[2*SigBits-WideBits:0]", "1'b0", ("mul.f32",)),
    ("ieee754.svh", "- exp_t'(less), {quotient, rest != '0}", "- exp_t'(less), {quotient, 1'b0}", ("div.f32",)),
    ("ieee754.svh", "{root, rest != '0}", "{root, 1'b0}", ("sqrt.f32",)),
    ("ieee754.svh", "if (exp_t'(i) != last) rest <<= 1;", "rest <<= 1;", ("rem.f32",)),
    ("ieee754.svh", "min = below(b, a)", "min = lt(b, a)", ("min.f32",)),
    ("ieee754_integer.svh", "up = half && (rest || odd)", "up = half", ("rne.f32",)),
    ("ieee754_integer.svh", "|sig[32-WideBits:0]", "1'b0", ("cvt.f32.s32", "cvt.f32.u32")),
    ("ieee754_integer.svh", "{x[Bits-1], {31{~x[Bits-1]}}}", "32'h7FFF_FFFF", ("cvt.s32.f32",)),
    ("formats_pkg.sv", "|| shifted << right != significand", "", ("round.f16", "round.f8e5m2")),
    ("formats_pkg.sv", "(image[16] || image[14:0] != '0)", "1'b1", ("round.bf16",)),
    ("formats_pkg.sv", "15'h7E,", "15'h7D,", ("round.f8e4m3fn",)),
    ("int_div_pkg.sv", "&& b != '0", "", ("div.s32",)),
    ("int_div_pkg.sv", "a[31] ? -magnitude.remainder", "b[31] ? -magnitude.remainder", ("rem.s32",)),
    ("alu_pkg.sv", "$signed(a) >>> b", "$signed(a) >>> b[4:0]", ("sra",)),
)


def check(executable: Path, name: str, seed: int, count: int) -> None:
    """Compare with the model; all pairs of corner cases, then `count` random ones."""
    a, b, c = fp_bench.operands(F32, seed, count)
    what = What.ALU if MICROOPS[name].slot is Slot.ALU else What.DIVIDE
    given = (a, b, c)[: MICROOPS[name].sources]
    got = fp_bench.run(executable, what, MICROOPS[name].code, a, b, c)
    fp_bench.compare(name, got, MICROOP_FUNCTIONS[name](*given), *given)


@pytest.fixture(scope="module")
def executable() -> Path:
    return native.build("fp")


def test_no_micro_operation_is_left_out() -> None:
    assert {"coord", "inside", "ld", "st", *ALU, *TRANS, *(f"{name}.f32" for name in FUNCTIONS)} == set(MICROOPS)


@pytest.mark.parametrize("name", ALU + TRANS)
def test_a_micro_operation_has_the_models_bits(executable: Path, name: str) -> None:
    check(executable, name, 1, 50_000)


@pytest.mark.parametrize("name", REDUCE_FUNCTIONS)
def test_a_reduction_is_its_micro_operation(executable: Path, name: str) -> None:
    a, b, c = fp_bench.operands(F32, 1, 50_000)
    got = fp_bench.run(executable, What.REDUCE, REDUCE_FUNCTIONS[name], a, b, c)
    fp_bench.compare(name, got, MICROOP_FUNCTIONS[name](a, b), a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALU + TRANS)
def test_many_operands_have_the_models_bits(executable: Path, name: str) -> None:
    for seed in (2, 3):
        check(executable, name, seed, 1_000_000)


@pytest.mark.parametrize(("file", "text"), [planted[:2] for planted in PLANTED])
def test_what_an_error_is_planted_in_is_there(file: str, text: str) -> None:
    assert (HW / "rtl" / file).read_text().count(text) == 1


@pytest.mark.slow
def test_planted_errors_are_found(tmp_path: Path) -> None:
    for part in ("gen", "rtl", "tb"):
        shutil.copytree(HW / part, tmp_path / part)
    for file, text, error, _ in PLANTED:
        path = tmp_path / "rtl" / file
        path.write_text(path.read_text().replace(text, error))
    executable = native.build("fp", tmp_path, "-mutants")
    for name in (name for *_, names in PLANTED for name in names):
        with pytest.raises(AssertionError, match=f"{name}: .* differ"):
            check(executable, name, 1, 50_000)
