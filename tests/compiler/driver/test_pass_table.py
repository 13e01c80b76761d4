"""Lists of passes: their names, options and forms."""

from __future__ import annotations

from random import Random

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone
from systolith.compiler.pass_table import GROUPED_PASSES, Form, read_passes, run_steps, table
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.isa.chip import load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.inputs.sources import parse_module
from systolith.runtime.jobs.pass_check import compare_modules
from tests.fuzz.grouped_text import ADD, OTHERS
from tests.fuzz.tile_text import MODULES

TINY = load_chip("tiny")


def test_a_list_has_names_and_options() -> None:
    first, second = read_passes("prefetch{bytes=64 loads=-2} , hbm_sharing")
    assert (first.of.name, first.options) == ("prefetch", {"bytes": 64, "loads": -2})
    assert (second.of.name, second.options) == ("hbm-sharing", {})
    assert read_passes(" ") == []


def test_every_pass_says_what_it_does() -> None:
    assert all(p.summary for p in table().values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefetch{", "'prefetch{': names are separated by commas"),
        ("dce cse", "'dce cse': names"),
        ("dce,{a=1}", "names are separated"),
        ("dce{a=1}", "pass 'dce' has no option 'a=1'; it has none"),
        ("prefetch{bytes}", "has no option 'bytes'; it has bytes=0 loads=0"),
        ("prefetch{bytes=x}", "has no option 'bytes=x'"),
        ("prefetc", "no pass is called 'prefetc'; did you mean 'prefetch'"),
        ("dce,prefetch", "pass 'prefetch' takes tile IR, and 'dce' before it gives HLO"),
        ("emit,emit", "pass 'emit' takes tile IR, and 'emit' before it gives text"),
    ],
)
def test_a_bad_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        read_passes(text)


def test_a_pass_for_a_chip_needs_one() -> None:
    with pytest.raises(CompileError, match="pass 'prefetch' is for a chip: say which by --chip"):
        run_steps(parse_tile_ir('module "m"\n'), read_passes("prefetch"), None)
    assert run_steps(parse_tile_ir('module "m"\n'), read_passes("hbm-sharing"), None)[1] is Form.TILE


@pytest.mark.parametrize("part", range(2))
def test_passes_on_groups_in_any_order_keep_values_or_refuse(part: int) -> None:
    texts = [f"HloModule m\n{ADD}ENTRY e {{ {text} }}\n" for text in (*MODULES, *OTHERS)]
    names = [name for name, of in GROUPED_PASSES.items() if of.gives is Form.GROUPED]
    kept = 0
    for seed in range(part, 40, 2):
        dice = Random(seed)
        steps = ["fusion", *(dice.choice(names) for _ in range(4))]
        dice.shuffle(steps)
        module = parse_module(dice.choice(texts), "m")
        before = clone(module)
        try:
            made, _ = run_steps(module, read_passes(",".join(steps)), TINY)
        except SystolithError:
            continue
        assert compare_modules(before, made, 1, seed).difference is None, steps
        kept += 1
    assert kept > 3
