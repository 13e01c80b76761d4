"""The transcendental micro-operations in RTL: the same bits as the model's."""

import shutil
from pathlib import Path

import pytest

from systolith.hw import constants
from systolith.hw.tb.build import HW
from systolith.hw.tb.native import build
from systolith.hw.tb.trans_bench import BATCH, check
from systolith.hw.tb.trans_operands import corners, operands
from systolith.isa.numerics.transcendental import FUNCTIONS

# File, text, its replacement, and the functions that then differ: each in its own part of the sequences.
PLANTED = (
    ("exponential", "if (is_nan(x)) return CanonicalNan;\n    return raised(x);", "return raised(x);", ("exp",)),
    ("exponential", "p.n > 32'sd24", "p.n > 32'sd23", ("expm1",)),
    ("exponential", "32'h3F20_0000", "32'h3F1F_F000", ("tanh",)),
    ("exponential", "sub(y, mul(y, div(lost, total)))", "y", ("logistic",)),
    ("exponential", "32'h3F66_6666", "32'h3F66_6000", ("erf",)),
    ("logarithm", "parts(x, LogSqrtHalf)", "parts(x, LogSeam)", ("log",)),
    ("logarithm", "low = div(lost, u)", "low = lost", ("log1p",)),
    ("logarithm", "add(correction, LogTableLow[index])", "correction", ("pow",)),
    ("root", "div(One, sqrt(x))", "sqrt(div(One, x))", ("rsqrt",)),
    ("root", "t = improved(t, m);\n    t = improved", "t = improved", ("cbrt",)),
    ("trigonometric", "{8'd0, normal[51:28]}", "{8'd0, normal[51:29], 1'b0}", ("sin", "cos", "tan")),
    ("trigonometric", "add(negated(low), HalfPiLow)", "HalfPiLow", ("atan2",)),
)


@pytest.fixture(scope="module")
def executable() -> Path:
    return build("trans")


def test_the_constants_are_the_models() -> None:
    assert constants.TARGET.read_text() == constants.render(), f"run: {constants.COMMAND}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_corner_cases_have_the_models_bits(executable: Path, name: str) -> None:
    check(executable, name, *corners())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_random_operands_have_the_models_bits(executable: Path, name: str) -> None:
    check(executable, name, *operands(name, 1, BATCH // 16))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_operands_have_the_models_bits(executable: Path, name: str) -> None:
    for seed in range(100, 116):
        check(executable, name, *operands(name, seed, BATCH))


@pytest.mark.slow
def test_planted_errors_are_found(tmp_path: Path) -> None:
    for part in ("gen", "rtl", "tb"):
        shutil.copytree(HW / part, tmp_path / part)
    for file, text, error, _ in PLANTED:
        path = tmp_path / "rtl" / f"{file}_pkg.sv"
        assert path.read_text().count(text) == 1, text
        path.write_text(path.read_text().replace(text, error))
    executable = build("trans", tmp_path, "-mutants")
    assert {name for *_, names in PLANTED for name in names} == set(FUNCTIONS)
    for name in FUNCTIONS:
        with pytest.raises(AssertionError, match=f"{name}: .* differ"):
            check(executable, name, *operands(name, 1, BATCH))
