"""Chips: read, described, and compiled and run for."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from systolith.compiler.driver import compile_module
from systolith.isa.chip import PRESETS, describe, load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.inputs.sources import parse_module
from systolith.sim.simulate import simulate
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tokens import mutated

SOUP = (
    "[ ] [[ ]] { } , = . \" ' # \\ \\u0000 \\ud800 0 1 -1 2 3 4 8 16 64 128 1000 4096 65536 16777216 2147483648"
    f" 4294967296 9223372036854775807 9223372036854775808 1e400 -0.0 0.5 inf -inf nan 0x 0xff 0o7 1_0 1__0 {'9' * 5000}"
    " true false 1979-05-27 07:32:00 name mxu vpu vmem hbm rows cols lanes value provenance source published"
    " invented {a=1} [] [1] \n \t \r \0 é ٣ \ufeff"
).split(" ")
DOT = """HloModule dot

ENTRY main {
  x = f32[6,9] parameter(0)
  w = f32[9,5] parameter(1)
  d = f32[6,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[6,5] tanh(d)
}
"""


@cache
def samples() -> tuple[str, ...]:
    """The presets."""
    return tuple(path.read_text() for path in sorted(PRESETS.glob("*.toml")))


class ChipToml(Fuzzer):
    name, suffix, seconds = "chip", ".toml", 20

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        return mutated(dice.choice(samples()), SOUP, dice).encode("utf-8", "surrogatepass")

    def check(self, case: bytes) -> None:
        chip = load_chip(file_of(case, self.suffix))
        describe(chip)
        with suppress(SystolithError):  # a chip may be too small for it
            simulate(compile_module(parse_module(DOT, "dot"), chip).program, chip, mode="time")

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of a chip"
