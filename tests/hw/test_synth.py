import json
from pathlib import Path

import pytest

from systolith.hw import synth, yosys
from systolith.hw.synth import hierarchy, main, report
from systolith.hw.yosys import CACHE, Chain, Source, SynthesisError, check_whole, rtl, synthesize

pytestmark = pytest.mark.skipif(not yosys.has_yosys(), reason="Yosys is not installed")

LATCH = "module latch(input logic e_i, d_i, output logic q_o); always @* if (e_i) q_o = d_i; endmodule"
LOOP = "module loop(input logic a_i, output logic y_o); logic b; assign b = y_o & a_i; assign y_o = ~b; endmodule"
UNDRIVEN = "module undriven(input logic a_i, output logic y_o); logic b; assign y_o = a_i & b; endmodule"
DRIVERS = "module drivers(input logic a_i, b_i, output wire y_o); assign y_o = a_i; assign y_o = b_i; endmodule"
FAULTS = {
    "latch": (LATCH, "Assertion failed: selection is not empty:.* t:.dlatch"),
    "loop": (LOOP, "found logic loop"),
    "undriven": (UNDRIVEN, "1 bits have no driver"),
    "drivers": (DRIVERS, "multiple conflicting drivers"),
}

INVERTER = """module inverter (
  input  logic a_i,
  output logic y_o
);
  assign y_o = ~a_i;
endmodule"""
RING = """module ring (
  input  logic a_i,
  output logic y_o
);
  logic b;
  inverter u_first(.a_i(y_o & a_i), .y_o(b));
  inverter u_second(.a_i(b), .y_o(y_o));
endmodule"""
COUNTER = """module counter #(
  parameter int unsigned Width = 4
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  output logic [Width-1:0] count_o
);
  always_ff @(posedge clk_i or negedge rst_ni) if (!rst_ni) count_o <= '0; else count_o <= count_o + 1'b1;
endmodule"""
PAIR = """module pair (
  input  logic       clk_i,
  input  logic       rst_ni,
  output logic [7:0] a_o,
  output logic [7:0] b_o
);
  counter #(.Width(8)) u_a(.clk_i, .rst_ni, .count_o(a_o));
  counter #(.Width(8)) u_b(.clk_i, .rst_ni, .count_o(b_o));
endmodule"""
CHAIN = """module chain #(
  parameter int unsigned Stages = 8
) (
  input  logic [Stages-1:0][7:0] a_i,
  output logic [7:0]             y_o
);
  always_comb begin
    y_o = 8'h5A;
    for (int unsigned s = 0; s < Stages; s++) y_o = (y_o ^ a_i[s]) + 8'd3;
  end
endmodule"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yosys, "CACHE", tmp_path / "synth")


def written(folder: Path, **modules: str) -> Source:
    for name, text in modules.items():
        (folder / f"{name}.sv").write_text(text)
    return Source.of(sorted(folder.glob("*.sv")))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(tmp_path: Path, fault: str) -> None:
    text, said = FAULTS[fault]
    with pytest.raises(SynthesisError, match=said):
        synthesize(written(tmp_path, **{fault: text}), fault)


@pytest.mark.parametrize("opaque", [(), ("inverter",)])
def test_a_loop_through_two_modules_is_refused_in_the_flat_netlist(tmp_path: Path, opaque: tuple[str, ...]) -> None:
    source = written(tmp_path, inverter=INVERTER, ring=RING)
    hierarchy(source, "ring", ())
    with pytest.raises(SynthesisError, match="found logic loop"):
        check_whole(source, "ring", (), opaque)


def test_a_module_is_counted_as_often_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth, "UNITS", {"core": synth.CORE, "pair": "both"})
    source = written(tmp_path, counter=COUNTER, pair=PAIR)
    units = hierarchy(source, "pair", ())
    assert set(units) == {("pair", ()), ("counter", (("Width", 8),))}
    area = report(units, "pair", ()).areas["both"]
    assert area.flip_flops == 16
    assert area.total == 2 * sum(units["counter", (("Width", 8),)].gates.values()) > 16


def test_what_is_known_is_used_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, inverter=INVERTER)
    assert synthesize(source, "inverter").gates == {"not": 1}
    with monkeypatch.context() as broken:
        broken.setattr(yosys, "yosys", lambda *_: pytest.fail("done again"))
        assert synthesize(source, "inverter").gates == {"not": 1}
    written(tmp_path, inverter=INVERTER.replace("~", ""))
    assert synthesize(source, "inverter").gates == {}


def test_extrapolated_gates_are_nearly_those_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, chain=CHAIN)
    whole = synthesize(source, "chain", (("Stages", 20),))
    monkeypatch.setitem(yosys.CHAINS, "chain", Chain("Stages", 4, 8))
    estimate = synthesize(source, "chain", (("Stages", 20),))
    assert estimate.estimated
    assert not whole.estimated
    assert sum(estimate.gates.values()) == pytest.approx(sum(whole.gates.values()), rel=0.02)


def test_a_chain_stays_as_wide_with_fewer_stages() -> None:
    shorter = yosys.CHAINS["token_counters"].parameters((("Max", 15), ("Slots", 75), ("Queues", 7)), 5)
    assert shorter == (("Max", 15 + 4 * 70), ("Slots", 5), ("Queues", 7))


def test_a_small_unit_of_the_core_has_gates_and_flip_flops() -> None:
    unit = synthesize(rtl(), "hbm_ctrl", (("P", 16), ("Q", 1), ("Chunk", 32)))
    assert 0 < sum(unit.gates.values()) < 1000
    assert unit.flip_flops > 0
    assert unit.children == ()


@pytest.mark.slow
def test_the_core_at_tiny_synthesizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yosys, "CACHE", CACHE)
    assert main("tiny") == 0
    found = json.loads((CACHE / "tiny.json").read_text())
    assert found["units"]["MXU: array"]["gates"] > 100_000
    assert found["units"]["MXU: array"]["flip_flops"] >= 8 * 8 * (16 + 16 + 32)
    assert found["memory_bits"]["acc_mem"] == 256 * 8 * 32
    assert 0 < found["mxu_share"] < found["mxu_share_without_transcendental_lanes"] < 1
