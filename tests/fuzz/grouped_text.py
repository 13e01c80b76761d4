"""Grouped HLO: read as groups, printed, compiled to a program."""

from __future__ import annotations

from functools import cache

from systolith.compiler.driver import compile_groups
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.group import read_groups
from systolith.isa.chip import load_chip
from systolith.runtime.inputs.sources import parse_module
from tests.compiler.machine import compiled
from tests.fuzz.assembler import check_program
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tile_text import LOOP, MODULES
from tests.fuzz.tokens import mutated

OTHERS = (
    "x = f32[8,6] parameter(0)  y = f32[8,6] exponential(x)  z = f32[] constant(0)"
    "  r = f32[8] reduce(y, z), dimensions={1}, to_apply=add  b = f32[8,6] broadcast(r), dimensions={0}"
    "  ROOT d = f32[8,6] divide(y, b)",
    "x = f32[1,6,6,4] parameter(0)  w = f32[3,3,1,4] parameter(1)  ROOT y = f32[1,6,6,4] convolution(x, w),"
    " window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=4",
    "x = f32[3,5] parameter(0)  i = s32[] parameter(1)  u = f32[1,5] parameter(2)  z = s32[] constant(0)"
    "  s = f32[3,5] dynamic-update-slice(x, u, i, z)  t = f32[5,3] transpose(s), dimensions={1,0}"
    "  ROOT r = f32[15] reshape(t)",
)
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\n"
SOUP = (
    "{ } ( ) [ ] , = f32[] f32[2] f32[8,6] s32[] pred[] kLoop kInput kOutput kCustom kind=kLoop kind=kCustom ROOT"
    ' fusion calls=add backend_config={"tiling":{"dims":[0]}} backend_config={"tiling":{"dims":[9]}} dims 0 1 -1 2 99'
    " parameter constant tanh add dot reduce transpose reshape bitcast tuple get-tuple-element while convolution"
    " broadcast copy"
).split(" ")


@cache
def samples() -> tuple[str, ...]:
    """The compiler's texts of small modules, one of them in blocks."""
    texts = [f"HloModule m\n{ADD}ENTRY e {{ {text} }}\n" for text in (*MODULES, *OTHERS)]
    found = [compiled(text).stages["grouped.hlo"] for text in (*texts, LOOP)]
    return (*found, compiled(texts[3].replace("8,6", "96,1024").replace("f32[8]", "f32[96]")).stages["grouped.hlo"])


class GroupedText(Fuzzer):
    name, suffix, seconds = "grouped-text", ".hlo", 20

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        return mutated(dice.choice(samples()), SOUP, dice).encode("utf-8", "surrogatepass")

    def check(self, case: bytes) -> None:
        module = read_groups(parse_module(case.decode("utf-8", "replace"), "m"))
        text = print_hlo(module)
        assert print_hlo(read_groups(parse_module(text, "m"))) == text, "what is printed reads back as something else"
        if sum(leaf.size for i in module.instructions() for leaf in i.shape.leaves()) < 1 << 20:
            check_program(compile_groups(module, load_chip("tiny")).program)

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of grouped HLO"
