"""Energy: counted from what was executed, adding up, and moving as its causes do."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.hlo_text import int8_mlp
from systolith import api as sl
from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import Chip, load_chip, parse_chip, to_toml, variant
from systolith.isa.chip_energy import ENERGY, EVENTS
from systolith.isa.energy_table import with_energy
from systolith.isa.errors import ConfigError
from systolith.isa.events import EventModel
from systolith.isa.instruction import Instruction
from systolith.runtime.jobs.job import Request, run
from systolith.sim.causes import InternalError
from systolith.sim.energy import EnergyUse, energy_of
from systolith.sim.simulate import simulate
from systolith.sim.stats import RunResult
from tests.corpus.load import load
from tests.runtime.command import systolith

ONES = dict.fromkeys(ENERGY, 1) | {"energy.leakage": 1.0}
TINY = load_chip("tiny", ONES)
V3 = load_chip("tpu_v3")


def use(chip: Chip, text: str, mode: str = "time", **more: Any) -> EnergyUse:
    """The energy of a run of HLO."""
    path = Path("m.hlo")
    path.write_text(text)
    found = run(Request(path, chip, mode=mode, **more)).result.energy
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dot(dtype: str, m: int, k: int, n: int, precision: str = "default", out: str = "f32") -> str:
    return (
        f"HloModule d\n\nENTRY e {{\n  x = {dtype}[{m},{k}] parameter(0)\n  w = {dtype}[{k},{n}] parameter(1)\n"
        f"  ROOT d = {out}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f" operand_precision={{{precision},{precision}}}\n}}\n"
    )


def test_operations_over_the_energy_of_units_and_ops() -> None:
    text = dot("f32", 16, 24, 32).replace("ROOT d", "d").replace("\n}", "\n  ROOT t = f32[16,32] tanh(d)\n}")
    found = use(TINY, text)
    operations = 2 * 16 * 24 * 32
    assert found.tops_per_watt_by_op == {"d": pytest.approx(operations / found.by_op["d"] * 1e3)}
    by_unit = {unit: operations / fj * 1e3 for unit, fj in found.by_unit.items() if fj}
    assert found.tops_per_watt_by_unit == pytest.approx(by_unit)
    assert 1 / sum(1 / n for n in by_unit.values()) > found.tops_per_watt  # idle and leakage come to it


def test_without_products_there_are_no_operations_per_watt() -> None:
    found = use(TINY, "HloModule m\n\nENTRY e {\n  x = f32[16,32] parameter(0)\n  ROOT t = f32[16,32] tanh(x)\n}\n")
    assert found.tops_per_watt_by_op == found.tops_per_watt_by_unit == {}


def test_a_product_by_hand() -> None:
    """64 x 24 x 8 on an 8 x 8 array: 3 weight tiles, loaded once or more; with every energy 1, counts are energies."""
    found = use(TINY, dot("bf16", 64, 24, 8))
    events = found.by_event
    assert events["mxu_mac_bf16"] == 64 * 24 * 8
    loads = sum(n for n, i in zip(found.executed, found.program.code, strict=True) if i.op == "mxu.load")
    assert loads >= 3
    assert events["mxu_weight_byte"] == loads * 8 * 8 * 2
    assert events["mxu_acc_byte"] >= 3 * 64 * 8 * 4
    assert (
        events["hbm_byte"]
        == int(found.executed @ (found.facts.read + found.facts.written))
        >= (64 * 24 + 24 * 8) * 2 + 64 * 8 * 4
    )
    assert events["mxu_mac_s8"] == events["vpu_trans"] == events["link_byte"] == events["host_byte"] == 0
    assert found.idle == found.cycles
    assert found.leakage == found.cycles * 10**6 // 100  # mW, at 100 MHz


def test_a_vector_operation_by_hand() -> None:
    """8 vectors of 8 x 2: two loads, an add and a store of each; three operands of 4 bytes an element."""
    given = "a = f32[128] parameter(0)\n b = f32[128] parameter(1)"
    text = f"HloModule a\nENTRY e {{\n {given}\n ROOT c = f32[128] add(a, b)\n}}\n"
    events = use(TINY, text).by_event
    assert events["vpu_add"] == 128
    assert events["vpu_int"] == events["vpu_mul"] == 0
    assert events["vpu_register_byte"] == (2 + 1 + 3) * 4 * 128
    assert events["vmem_byte"] == 2 * 3 * 4 * 128  # through the DMA engines and through the vector unit


@pytest.mark.parametrize("name", ["mlp_infer", "lstm_scan", "reduce_variants", "int8_dot_i32"])
def test_energies_add_up(name: str) -> None:
    result = run(Request(load(name).path, V3, random=0)).result
    found = result.energy
    assert found is not None
    record = found.to_json(np.array(result.timeline()["edges"], np.int64))
    assert record["total_fj"] == sum(record[f"{part}_fj"] for part in ("dynamic", "host", "idle", "leakage"))
    assert sum(record["by_unit"].values()) == sum(record["by_event"].values()) == sum(found.by_instruction)
    assert sum(record["by_group"].values()) == record["dynamic_fj"] + record["host_fj"]
    edges, watts = record["timeline"]["edges"], record["timeline"]["watts"]
    joules = sum(w * (b - a) for w, a, b in zip(watts, edges[:-1], edges[1:], strict=True)) / (V3.clock_mhz * 1e6)
    assert joules == pytest.approx(record["joules"])
    assert record["peak_watts"] >= record["average_watts"] > 0
    assert result.seconds is not None
    assert record["average_watts"] == pytest.approx(record["joules"] / result.seconds)


def test_time_and_full_agree() -> None:
    path = load("mlp_infer").path
    full, time = (
        run(Request(path, V3, mode=m, random=0 if m == "full" else None)).result.energy for m in ("full", "time")
    )
    assert full is not None
    assert time is not None
    edges = np.arange(0, full.cycles, 100)
    assert full.to_json(edges) == time.to_json(edges)


MIXED = """HloModule mixed
ENTRY e {
  x = bf16[64,64] parameter(0)
  y = bf16[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[64,64] tanh(y)
  t = token[] after-all()
  o = token[] outfeed(z, t)
  ROOT r = bf16[64,64] add(y, z)
}
"""


@lru_cache
def mixed() -> RunResult:
    chip = load_chip("tiny", {name: n + 3 for n, name in enumerate(ENERGY)} | {"energy.leakage": 1.5})
    program = compile_module(parse_hlo(MIXED), chip).program
    return simulate(program, chip, mode="time")


@given(name=st.sampled_from([*EVENTS, "idle", "leakage", "total"]), off=st.integers(-50, 50).filter(bool))
def test_a_part_that_is_off_by_anything_is_found(name: str, off: int) -> None:
    use = mixed().energy
    assert use is not None
    assert min(use.dynamic, use.host, use.idle, use.leakage) > 0
    use.check()
    if name in EVENTS:
        wrong = replace(use, by_event=use.by_event | {name: use.by_event[name] + off})
    else:
        wrong = replace(use, **{name: getattr(use, name) + off})
    with pytest.raises(InternalError, match="energy: dynamic, host, idle and leakage add up to"):
        wrong.check()


@given(data=st.data())
def test_an_instruction_that_is_charged_wrongly_is_found(data: st.DataObject) -> None:
    """Executions that the trace and the sequencer count differently, and amounts that are another instruction's."""
    result = mixed()
    use, trace = result.energy, result.trace
    assert use is not None
    assert trace is not None
    index = data.draw(st.sampled_from(sorted(set(trace.index.tolist()))))
    executed = result.executed.copy()
    executed[index] += data.draw(st.integers(1, 3))
    with pytest.raises(InternalError, match="energy: "):
        energy_of(use.program, use.chip, use.cycles, trace, use.facts, executed)
    once = list(use.once)
    once[index] += 1
    with pytest.raises(InternalError, match="energy: instructions add up to"):
        replace(use, once=once).check_sums()


def test_bytes_of_hbm_are_those_of_the_run() -> None:
    use = mixed().energy
    assert use is not None
    facts = replace(use.facts, read=use.facts.read + use.executed)
    with pytest.raises(InternalError, match=r"energy: hbm_byte is \d+ fJ, and \d+ bytes"):
        replace(use, facts=facts).check()


def test_every_run_checks_its_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of one kind of instruction, counted wrongly: no run of it ends, whoever asks for no record."""
    right = EventModel.of

    def wrong(self: EventModel, instr: Instruction) -> dict[str, int]:
        return dict(right(self, instr)) | ({"hbm_byte": 1} if instr.op == "dma.load" else {})

    monkeypatch.setattr(EventModel, "of", wrong)
    program = compile_module(parse_hlo(MIXED), V3).program
    for mode in ("time", "full"):
        with pytest.raises(InternalError, match="energy: hbm_byte"):
            simulate(program, V3, mode=mode)
    simulate(program, V3, mode="values")


def test_half_the_clock_doubles_leakage_alone() -> None:
    """Cycles stay where bandwidth and latency are in cycles."""
    fixed = variant(V3, {"hbm.p": V3.hbm.p, "hbm.q": V3.hbm.q, "hbm.latency": V3.hbm.latency})
    fast, slow = (use(variant(fixed, {"clock_mhz": clock}), dot("bf16", 256, 256, 256)) for clock in (940, 470))
    assert fast.cycles == slow.cycles
    assert abs(slow.leakage - 2 * fast.leakage) <= 1
    assert slow.by_event == fast.by_event
    assert slow.seconds == pytest.approx(2 * fast.seconds)


def negation(dtype: str) -> str:
    return f"HloModule n\nENTRY e {{\n a = {dtype}[65536] parameter(0)\n ROOT n = {dtype}[65536] negate(a)\n}}\n"


def test_half_the_traffic_is_half_the_energy_of_hbm() -> None:
    wide, narrow = (use(V3, negation(dtype)) for dtype in ("f32", "bf16"))
    assert wide.by_unit["hbm"] == 2 * narrow.by_unit["hbm"] == 2 * 65536 * 4 * V3_ENERGY.hbm_byte


V3_ENERGY = V3.energy if V3.energy is not None else pytest.fail("tpu_v3 has no energies")


def test_precision_and_type_move_the_energy_of_products() -> None:
    one, six = (use(V3, dot("f32", 256, 256, 256, p)) for p in ("default", "highest"))
    assert one.by_event["mxu_mac_bf16"] == 256**3 * V3_ENERGY.mxu_mac_bf16
    assert six.by_event["mxu_mac_bf16"] == 6 * one.by_event["mxu_mac_bf16"]
    bf16 = use(V3, dot("bf16", 256, 256, 256))
    assert bf16.by_event["mxu_mac_bf16"] == one.by_event["mxu_mac_bf16"]
    s8 = use(V3, dot("s8", 256, 256, 256, out="s32"))
    assert s8.by_event["mxu_mac_s8"] == 256**3 * V3_ENERGY.mxu_mac_s8
    assert s8.by_event["mxu_mac_bf16"] == 0


def test_a_loop_counts_each_of_its_turns() -> None:
    def loop(trips: int) -> str:
        return f"""HloModule loop
body {{
  p = (s32[], f32[128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[128] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  t = f32[128] tanh(x)
  ROOT r = (s32[], f32[128]) tuple(n, t)
}}
cond {{
  p = (s32[], f32[128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[128] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[128]) tuple(z, x)
  w = (s32[], f32[128]) while(t), condition=cond, body=body
  ROOT r = f32[128] get-tuple-element(w), index=1
}}
"""

    few, many = (use(TINY, loop(n), "full", random=0).by_event["vpu_trans"] for n in (5, 20))
    assert few == 5 * 128
    assert many == 20 * 128


def test_a_published_chip_is_in_the_range_of_its_power(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mlp.hlo").write_text(int8_mlp(200, (500, 500, 500)))
    ran = systolith(capsys, "run", "mlp.hlo", "--chip", "tpu_v1", "--mode", "time", "--json")
    energy = json.loads(ran.out)["energy"]
    assert 28 < energy["average_watts"] < 75  # idle, and TDP: arXiv 1704.04760, table 2
    assert energy["peak_watts"] < 75


def test_a_chip_without_energies_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "run", "m.hlo", "--chip", "small", "--random", 0)
    assert "no energy figures in chip small" in " ".join(ran.out.split())
    assert (
        json.loads(systolith(capsys, "run", "m.hlo", "--chip", "small", "--random", 0, "--json").out)["energy"] is None
    )


def test_summary_report_and_chips_have_energy(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "run", "m.hlo", "--chip", "tpu_v3", "--random", 0, "--report", "r.html")
    assert "TOPS/W" in ran.out
    page = (files / "r.html").read_text()
    assert 'id="energy-table"' in page
    assert 'id="energy-ops-table"' in page
    assert "energy.hbm_byte" in page
    assert "energy.hbm_byte" in systolith(capsys, "chips", "tpu_v3").out
    assert "area.vmem" in systolith(capsys, "chips", "tpu_v1").out


def test_energies_of_a_variant_read_back() -> None:
    chip = load_chip("tpu_v3", {"energy.hbm_byte": "30 pJ", "energy.leakage": "20 W"})
    assert chip.energy is not None
    assert (chip.energy.hbm_byte, chip.energy.leakage) == (30_000, 20_000.0)
    assert chip.digest() == V3.digest()
    again = parse_chip(to_toml(chip), "f")
    assert (again.energy, again.area) == (chip.energy, chip.area)


def test_a_chip_has_all_energies_or_none() -> None:
    with pytest.raises(ConfigError, match=r"chip tiny: energy\.mxu_mac_s8: missing; needed: an integer from 0"):
        load_chip("tiny", {"energy.hbm_byte": "30 pJ"})


CSV = "component,action,energy\n" + "".join(f"{e.replace('_', ',', 1)},{n}.5\n" for n, e in enumerate(EVENTS))


def test_energies_from_a_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "e.csv").write_text(CSV + "chip,idle_cycle,2\nchip,leakage,3.25\n")
    chip = with_energy(load_chip("tiny"), files / "e.csv")
    assert chip.energy is not None
    assert [getattr(chip.energy, e) for e in EVENTS] == [1000 * n + 500 for n in range(len(EVENTS))]
    assert (chip.energy.idle_cycle, chip.energy.leakage) == (2000, 3.25)
    ran = systolith(capsys, "run", "m.hlo", "--chip", "tiny", "--random", 0, "--energy", "e.csv", "--json")
    record = json.loads(ran.out)
    assert record["energy"]["total_fj"] > 0
    assert record["chip_digest"] == load_chip("tiny").digest()
    (files / "e.yaml").write_text(
        "ERT:\n  version: 0.4\n  tables:\n    - name: system.core.hbm\n      actions:\n"
        "        - name: byte\n          arguments: {}\n          energy: 40.25\n"
    )
    pytest.importorskip("yaml")
    merged = with_energy(chip, files / "e.yaml").energy
    assert merged is not None
    assert (merged.hbm_byte, merged.vmem_byte) == (40_250, chip.energy.vmem_byte)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.csv", "a,b\n1,2\n", "must have the columns component, action, energy"),
        ("e.csv", "component,action,energy\n", "holds no energies"),
        ("e.csv", "component,action,energy\nhbm,bytes,1\n", "line 2: hbm, bytes: no such event; the nearest is hbm_"),
        ("e.csv", "component,action,energy\nhbm,byte,x\n", "line 2: energy 'x': must be a number (pJ)"),
        ("e.csv", "component,action,energy\nhbm,byte,-1\n", "energy.hbm_byte = '-1."),
        ("e.csv", "component,action,energy\nhbm,byte,nan\n", "energy.hbm_byte = 'nan pJ'"),
        ("e.csv", "component,action,energy\nhbm,byte\n", "line 2: energy ''"),
        ("e.yaml", "ERT: 3\n", "must be ERT: tables"),
        ("e.yaml", "a: [", "while parsing"),
        ("none.csv", None, "none.csv: No such file"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused_in_one_line(name: str, text: str | None, message: str, files: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    if text is not None:
        (files / name).write_text(text)
    ran = systolith(capsys, "run", "m.hlo", "--chip", "tpu_v3", "--random", 0, "--energy", name)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err


def test_a_table_makes_a_chip(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "t.csv").write_text("component,action,energy\nhbm,byte,10\nchip,leakage,2000\n")
    ran = systolith(capsys, "chips", "tpu_v3", "--energy", "t.csv", "--toml")
    assert ran.code == 0, ran
    (files / "mine.toml").write_text(ran.out)
    words = ("run", "m.hlo", "--mode", "time", "--json")
    records = [
        json.loads(systolith(capsys, *words, *more).out)
        for more in (("--chip", "mine.toml"), ("--chip", "tpu_v3", "--energy", "t.csv"))
    ]
    assert records[0]["energy"] == records[1]["energy"]
    assert systolith(capsys, "chips", "--energy", "t.csv").code == 2


def test_energy_of_a_run_in_python() -> None:
    client = sl.Client("tpu_v3")
    exe = client.compile("HloModule m\nENTRY e {\n  a = f32[64] parameter(0)\n  ROOT b = f32[64] add(a, a)\n}\n")
    exe(client.put(np.ones(64, np.float32)))[0].numpy()
    assert exe.last_run is not None
    assert exe.last_run.record()["energy"]["joules"] > 0
