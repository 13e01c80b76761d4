"""Groups that are copies of others that are alike are what lowering each would give: operations, names, decisions."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import Compiled, Front
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.lower import lowering
from systolith.compiler.lower.group_template import Template
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.ops.group import Group
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.tile.ir import Array, Ref, TileOp
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.binary import to_bytes
from systolith.isa.chip import Chip, load_chip, variant
from systolith.isa.chip_reads import recording
from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.work import moved
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.loops.cases import rolled_everywhere
from tests.examples import THOROUGH, examples, with_slow
from tests.isa.chip_variants import changes

CORPUS = Path(__file__).parents[2] / "corpus"
OPTIONS = Options(elided="zeros")
LAYERS = (
    "HloModule layers\n"
    + scalar_computation("maximum", name="max")
    + scalar_computation("add")
    + """ENTRY e {
  x = f32[24,32] parameter(0)
"""
)


def _softmax(n: int, dims: tuple[int, ...], low: str, zero: str) -> list[str]:
    """`out` of `y`, both with a number, along the last dimension; `low` and `zero` are initial values."""
    whole, rows = (f"f32[{','.join(map(str, d))}]" for d in (dims, dims[:-1]))
    last, rest = len(dims) - 1, ",".join(map(str, range(len(dims) - 1)))
    return [
        f"top.{n} = {rows} reduce(y.{n}, {low}), dimensions={{{last}}}, to_apply=max",
        f"tops.{n} = {whole} broadcast(top.{n}), dimensions={{{rest}}}",
        f"less.{n} = {whole} subtract(y.{n}, tops.{n})",
        f"raised.{n} = {whole} exponential(less.{n})",
        f"sum.{n} = {rows} reduce(raised.{n}, {zero}), dimensions={{{last}}}, to_apply=add",
        f"sums.{n} = {whole} broadcast(sum.{n}), dimensions={{{rest}}}",
        f"out.{n} = {whole} divide(raised.{n}, sums.{n})",
    ]


def _layers(many: int) -> str:
    """Products and softmaxes one after another, in memory whose places differ."""
    lines, last = [], "x"
    for n in range(many):
        w = f"w.{n}"
        lines += [
            f"{w} = f32[32,32] parameter({n + 1})",
            f"lo.{n} = f32[] constant(-inf)",
            f"zero.{n} = f32[] constant(0)",
            f"y.{n} = f32[24,32] dot({last}, {w}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            *_softmax(n, (24, 32), f"lo.{n}", f"zero.{n}"),
        ]
        last = f"out.{n}"
    body = "".join(f"  {line}\n" for line in lines)
    return f"{LAYERS}{body}  ROOT result = f32[24,32] copy({last})\n}}\n"


def _attention(many: int) -> str:
    """Attention, which runs in blocks of heads, and products that mix the heads, one after another."""
    x, square, mixing = "f32[5,64,16]", "f32[5,64,64]", "f32[5,16,5,16]"
    outer = "lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}"
    batched = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
    lines, last = ["lo = f32[] constant(-inf)", "zero = f32[] constant(0)"], "x"
    for n in range(many):
        lines += [
            f"k.{n} = {x} parameter({2 * n + 1})",
            f"m.{n} = {mixing} parameter({2 * n + 2})",
            f"y.{n} = {square} dot({last}, k.{n}), {batched}, rhs_contracting_dims={{2}}",
            *_softmax(n, (5, 64, 64), "lo", "zero"),
            f"part.{n} = {x} dot(out.{n}, k.{n}), {batched}, rhs_contracting_dims={{1}}",
            f"mixed.{n} = f32[64,5,16] dot(part.{n}, m.{n}), {outer}",
            f"next.{n} = {x} transpose(mixed.{n}), dimensions={{1,0,2}}",
        ]
        last = f"next.{n}"
    body = "".join(f"  {line}\n" for line in lines)
    return f"{LAYERS.replace('f32[24,32]', x)}{body}  ROOT result = {x} copy({last})\n}}\n"


TEXTS = {"layers": _layers(3), "attention": _attention(3)} | {
    name: (CORPUS / f"{name}.hlo").read_text() for name in ("mlp_train_sgd", "gpt2_tiny_infer", "int8_dot_i32")
}
DRAWN = [
    (name, base)
    for name in sorted(TEXTS)
    for base in ("tiny", "small")
    if THOROUGH
    or name in ("layers", "int8_dot_i32")
    or (name, base) in (("attention", "small"), ("mlp_train_sgd", "small"))
]


def _all_of(compiled: Compiled, chip: Chip) -> tuple[str | bytes, ...]:
    binary = to_bytes(moved(compiled.program, chip))
    tile = compiled.stages["tile.txt"].split("\n", 2)[2]  # after the chip's digest
    return binary, tile, compiled.stages["explain.txt"]


def _alone(text: str, chip: Chip) -> tuple[str | bytes, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "source_of", lambda *_: None)
        return _all_of(Front(parse_hlo(text)).compile(chip, OPTIONS), chip)


@pytest.mark.parametrize("name", ["layers", "mlp_train_sgd"])
def test_copies_are_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = Template.copy

    def counting(template: Template, *args: object) -> None:
        copied.append(len(template.items))
        copy(template, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Template, "copy", counting)
    front, small = Front(parse_hlo(TEXTS[name])), load_chip("small")
    front.compile(small, OPTIONS)
    before = len(copied)
    assert before > 0 or name != "layers"
    front.compile(variant(small, {"hbm.gbps": 7}), OPTIONS)
    assert len(copied) > before + 2


def test_blocks_of_equal_layers_are_lowered_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever accumulators of the layers before end: from then on they are copies."""
    lowered: list[str] = []
    blocks = Lowering._blocks

    def counting(self: Lowering, group: Group, *arrays: list[Array]) -> None:
        lowered.append(group.name)
        blocks(self, group, *arrays)

    monkeypatch.setattr(Lowering, "_blocks", counting)
    Front(parse_hlo(_attention(4))).compile(load_chip("small"), OPTIONS)
    assert 0 < len(lowered) <= 3


def _products(many: int) -> str:
    lines = ["x = f32[96,128] parameter(0)", "y.0 = f32[96,128] copy(x)"]
    for n in range(many):
        lines += [
            f"w.{n} = f32[128,128] parameter({n + 1})",
            f"y.{n + 1} = f32[96,128] dot(y.{n}, w.{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        ]
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule products\nENTRY e {{\n{body}  ROOT r = f32[96,128] negate(y.{many})\n}}\n"


@pytest.mark.parametrize(
    ("change", "on_ring"),
    [
        pytest.param({"hbm.gbps": 1}, True, marks=pytest.mark.slow),
        ({"hbm.gbps": 40}, True),
        pytest.param({"mxu.acc_rows": 32}, False, marks=pytest.mark.slow),
    ],
)
def test_groups_with_loops_are_copied(
    change: dict[str, object], on_ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sums on a ring of accumulators, or on all of them."""
    copied: list[bool] = []
    copy = Template.copy

    def noting(template: Template, *args: object) -> None:
        copied.append(template.variables > 0 and (template.ring > 0) == on_ring)
        copy(template, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Template, "copy", noting)
    text, chip = _products(4), variant(load_chip("tiny"), change)
    with rolled_everywhere():
        expected = _alone(text, chip)
        assert not copied
        compiled = Front(parse_hlo(text)).compile(recording(chip)[0], OPTIONS)
    for got, wanted in zip(_all_of(compiled, chip), expected, strict=True):
        assert _unnumbered(got) == _unnumbered(wanted)
    assert any(copied)


def _unnumbered(text: str | bytes) -> str | bytes:
    """A text without the numbers of induction variables, which say nothing."""
    return re.sub(r"\$\d+", "$", text) if isinstance(text, str) else text


@examples(2, 150)
@given(st.sampled_from(DRAWN), st.lists(changes(), min_size=1, max_size=3 if THOROUGH else 1))
def test_compilations_for_several_chips_are_those_without_copies(
    drawn: tuple[str, str], settings_of: list[dict[str, object]]
) -> None:
    name, base = drawn
    front = Front(parse_hlo(TEXTS[name]))
    for change in ({}, *settings_of):
        try:
            chip = variant(load_chip(base), change)
            expected = _alone(TEXTS[name], chip)
        except SystolithError:
            continue
        assert _all_of(front.compile(recording(chip)[0], OPTIONS), chip) == expected


@pytest.mark.parametrize("base", ["small", pytest.param("tiny", marks=pytest.mark.slow)])
def test_a_program_that_counts_loops_serves_chips_of_other_times(base: str) -> None:
    """The operations that count them are of no module, so nothing stands for them in the next one."""
    text, chip = (CORPUS / "lstm_scan.hlo").read_text(), load_chip(base)
    front, other = Front(parse_hlo(text)), variant(chip, {"hbm.latency": chip.hbm.latency + 1})
    front.compile(chip, OPTIONS)
    assert _all_of(front.compile(other, OPTIONS), other) == _alone(text, other)


@pytest.mark.parametrize("name", with_slow(sorted(TEXTS), {"gpt2_tiny_infer"}))
def test_passes_that_say_that_they_change_nothing_do_not(name: str) -> None:
    """Else what comes of them could not be kept by the module that they are given."""
    module = Front(parse_hlo(TEXTS[name])).canonical
    for make in GROUPING.values():
        before = print_hlo(module)
        changed = run_pass(module, make(load_chip("small"), OPTIONS)).changed
        assert changed or print_hlo(module) == before


@pytest.mark.parametrize(
    ("vmem", "body"),
    [
        (
            8192,
            "w = f32[64,64] parameter(1)\n"
            "  ROOT y = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ),
        (16384, "o = f32[] constant(0)\n  ROOT y = f32[8] reduce(x, o), dimensions={1}, to_apply=add"),
    ],
    ids=["of weights larger than VMEM", "in parts"],
)
def test_groups_are_copied(vmem: int, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For another chip, which agrees in what was read."""
    copied: list[Template] = []
    copy = Template.copy

    def noting(template: Template, *args: Any) -> None:
        copied.append(template)
        copy(template, *args)

    monkeypatch.setattr(Template, "copy", noting)
    text = f"HloModule m\n{scalar_computation('add')}ENTRY e {{\n  x = f32[8,64] parameter(0)\n  {body}\n}}\n"
    front, chip = Front(parse_hlo(text)), variant(load_chip("tiny"), {"vmem.bytes": vmem})
    for latency in (50, 60):
        front.compile(variant(chip, {"hbm.latency": latency}), OPTIONS)
    assert copied


def test_programs_of_the_same_operations_are_made_once() -> None:
    front, small = Front(parse_hlo(TEXTS["layers"])), load_chip("small")
    first = front.compile(small, OPTIONS)
    for change in ({"hbm.latency": small.hbm.latency + 1}, {"clock_mhz": small.clock_mhz * 2}):
        other = variant(small, change)
        again, expected = front.compile(other, OPTIONS), Front(parse_hlo(TEXTS["layers"])).compile(other, OPTIONS)
        assert again.program.code is first.program.code
        assert _all_of(again, other) == _all_of(expected, other)
        assert again.stages["memory.txt"] == expected.stages["memory.txt"]
    other = variant(small, {"vmem.bytes": small.vmem.bytes // 2})
    assert front.compile(other, OPTIONS).program.code is not first.program.code


def test_copies_are_freed_without_a_search_for_cycles() -> None:
    """A sweep makes many in a process, and searches rarely (`sweep/work.py`)."""
    small = load_chip("small")
    front = Front(parse_hlo(TEXTS["layers"]))
    gc.collect()
    gc.disable()
    try:
        for n in range(3):
            front.compile(variant(small, {"vmem.bytes": small.vmem.bytes - 4096 * n}), OPTIONS)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [type(o).__name__ for o in gc.garbage if isinstance(o, Ref | TileOp | Template)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not found
