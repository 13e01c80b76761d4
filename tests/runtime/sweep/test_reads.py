"""A record of what is read of a chip is complete: with the same values there, the same binary comes out."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.compiler.schedule.program import complete
from systolith.isa.binary import to_bytes
from systolith.isa.chip import SCHEMA, Chip, describe, load_chip, value_of, variant
from systolith.isa.chip_reads import Known, holds, recording
from systolith.isa.errors import SystolithError
from systolith.runtime.sweep import work
from systolith.runtime.sweep.points import Model
from systolith.sim.simulate import simulate
from tests.examples import examples
from tests.isa.chip_variants import changes

TINY = load_chip("tiny")
NETWORKS = Path(__file__).parents[2] / "corpus"
TEXTS = {
    "dot": "HloModule m\nENTRY e {\n  x = f32[16,24] parameter(0)\n  w = f32[24,32] parameter(1)\n"
    "  y = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  ROOT r = f32[16,32] tanh(y)\n}\n",
    "reduce": "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
    "ENTRY e {\n  x = f32[16,24,9] parameter(0)\n  z = f32[] constant(0)\n"
    "  t = f32[24,16,9] transpose(x), dimensions={1,0,2}\n"
    "  ROOT r = f32[16,9] reduce(t, z), dimensions={0}, to_apply=add\n}\n",
}  # fmt: skip
OPTIONS = Options(probes=False)


def test_what_is_read_is_recorded_and_equal() -> None:
    chip, reads = recording(TINY)
    assert reads == {}
    assert chip.mxu.rows == TINY.mxu.rows
    assert value_of(chip, "hbm.latency") == TINY.hbm.latency
    assert reads == {"mxu.rows": TINY.mxu.rows, "hbm.latency": TINY.hbm.latency}
    assert chip.name == TINY.name
    assert len(reads) == 2
    with pytest.raises(AttributeError, match="rowz"):
        chip.mxu.rowz  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("group", ["mxu", "vpu", "hbm"])
def test_groups_hash_and_compare_as_plain_ones_and_read_all(group: str) -> None:
    (one, reads), (other, others) = recording(TINY), recording(TINY)
    mine, its, plain = (getattr(chip, group) for chip in (one, other, TINY))
    assert hash(mine) == hash(plain)
    assert set(reads) == {name for name in SCHEMA if name.startswith(f"{group}.")}
    assert mine == its == plain == mine
    assert set(others) == set(reads)
    changed = getattr(variant(TINY, {"mxu.pipeline": 9, "vpu.alu_latency": 9, "hbm.latency": 9}), group)
    assert mine != changed
    assert changed != mine


def test_all_is_read_in_the_end_and_nothing_else_is_there() -> None:
    chip, reads = recording(TINY)
    assert describe(chip) == describe(TINY)
    assert reads.keys() == SCHEMA.keys() - {"name"}
    assert holds(reads, TINY)
    assert not holds(reads, variant(TINY, {"fifo.depth": TINY.fifo.depth * 2}))


def test_results_are_known_for_chips_with_the_same_in_what_was_read_and_no_more_is_read_to_find_them() -> None:
    made: list[str] = []

    def make(chip: Chip) -> int:
        made.append(chip.name)
        return chip.vmem.bytes if chip.mxu.count > 1 else chip.mxu.rows

    known: Known[int] = Known(2)
    one = variant(TINY, {"mxu.count": 1})
    assert known.get("a", one, make) == one.mxu.rows
    assert known.get("a", variant(one, {"vmem.bytes": 2**16}), make) == one.mxu.rows
    assert len(made) == 1
    two = variant(TINY, {"mxu.count": 2})
    outer, reads = recording(two)
    assert known.get("a", outer, make) == two.vmem.bytes
    assert set(reads) == {"mxu.count", "vmem.bytes"}
    again, others = recording(two)
    assert known.get("a", again, make) == two.vmem.bytes
    assert others == reads
    assert len(made) == 2
    assert known.get("a", two, make, lambda value: value != two.vmem.bytes) == two.vmem.bytes
    assert len(made) == 3
    assert known.get("b", one, make) == one.mxu.rows
    assert known.get("a", one, make) == one.mxu.rows
    assert len(made) == 5, "the oldest of more than two is forgotten"


def test_recordings_that_are_gone_leave_nothing() -> None:
    known: Known[int] = Known(4096)

    def ask(times: int) -> None:
        for _ in range(times):
            known.get("rows", recording(TINY)[0], lambda chip: chip.vpu.sublanes)

    ask(200)
    tracemalloc.start()
    try:
        ask(200)
        before = tracemalloc.get_traced_memory()[0]
        ask(2000)
        assert tracemalloc.get_traced_memory()[0] - before < 20_000  # bytes: 10 a recording
    finally:
        tracemalloc.stop()


def test_threads_share_what_is_known() -> None:
    known: Known[int] = Known(3)

    def rows_and(key: int, chip: Chip) -> int:
        return chip.mxu.rows + key

    def ask(seed: int) -> list[int]:
        keys = [(seed + n) % 7 for n in range(400)]
        return [known.get(key, TINY, partial(rows_and, key)) for key in keys]

    with ThreadPoolExecutor(8) as pool:
        for seed, found in enumerate(pool.map(ask, range(8))):
            assert found == [TINY.mxu.rows + (seed + n) % 7 for n in range(400)]


@pytest.mark.parametrize("name", TEXTS)
def test_fields_that_were_not_read_change_nothing(name: str) -> None:
    chip, reads = recording(TINY)
    program = compile_module(parse_hlo(TEXTS[name]), chip, OPTIONS).program
    unread = [n for n in SCHEMA if n not in reads and n not in ("name", "features.wide")]
    assert "clock_mhz" in unread
    for field in unread:
        value = value_of(TINY, field)
        other = variant(TINY, {field: value * 2})
        expected = compile_module(parse_hlo(TEXTS[name]), other, OPTIONS).program
        assert to_bytes(work.moved(program, other)) == to_bytes(expected), field


@examples(3, 200)
@given(st.sampled_from(sorted(TEXTS)), st.lists(changes(), min_size=3, max_size=3))
def test_programs_of_a_sweep_are_fresh_ones_bit_for_bit(name: str, settings_of: list[dict[str, object]]) -> None:
    """Each with some fields twice, so that programs are taken again where they may be."""
    model = Model(name, TEXTS[name].encode(), name)
    for change in settings_of:
        for clock in (100.0, 250.0):
            try:
                chip = variant(TINY, change | {"clock_mhz": clock})
                expected = compile_module(parse_hlo(TEXTS[name]), chip, Options(probes=False, elided="zeros")).program
            except SystolithError:
                continue
            found, _ = work.program_for(model, {}, chip)
            complete(found, chip)
            assert to_bytes(found) == to_bytes(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50_infer_224", "bert_base_layer", "gpt2_decode_kvcache"])
def test_networks_of_a_sweep_are_fresh_ones(name: str) -> None:
    """Tuned points bit for bit, and fixed ones the base's program under other times, in any order of points."""
    text = (NETWORKS / f"{name}.hlo").read_text()
    model, options = Model(name, text.encode(), name), Options(probes=False, elided="zeros")
    base = load_chip("tpu_v3")
    plain = compile_module(parse_hlo(text), base, options).program
    for rate, vmem, units in ((500, 8, 2), (600, 8, 2), (600, 16, 2), (900, 16, 4), (500, 8, 2)):
        chip = variant(base, {"hbm.gbps": rate, "vmem.bytes": vmem << 20, "mxu.count": units})
        found, decoded = work.program_for(model, {}, chip)
        cycles = simulate(found, chip, mode="time", decoded=decoded).cycles
        complete(found, chip)
        fresh = compile_module(parse_hlo(text), chip, options).program
        assert to_bytes(found) == to_bytes(fresh)
        assert cycles == simulate(fresh, chip, mode="time").cycles
        other = variant(base, {"hbm.gbps": rate})
        (_, row), *_ = work.measure(work.Job(model, {}, [("key", other, base)]))
        assert row["cycles"] == simulate(work.moved(plain, other), other, mode="time").cycles


def test_programs_are_taken_again_where_nothing_that_was_read_differs(compilations: list[str]) -> None:
    model = Model("again", TEXTS["dot"].encode(), "again")
    for clock, rows in ((100.0, 8), (250.0, 8), (250.0, 16), (100.0, 16)):
        work.program_for(model, {}, variant(TINY, {"clock_mhz": clock, "mxu.acc_rows": rows}))
    assert len(compilations) == 2
