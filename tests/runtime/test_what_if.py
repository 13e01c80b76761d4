"""`run --what-if`: the same program under other times, against simulations of chips that have them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from systolith.isa.chip import describe, load_chip, variant
from systolith.isa.errors import ConfigError
from systolith.reports.html import render_report
from systolith.reports.run_data import from_json
from systolith.runtime.cli import cli
from systolith.runtime.jobs.job import Request, run
from systolith.runtime.jobs.what_if import NAMED, retimed, suppositions, what_if
from tests.corpus.load import load

MLP = load("mlp_infer").path


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["run", *map(str, arguments)], standalone_mode=False)


def test_every_supposition_is_of_times() -> None:
    outcome = run(Request(MLP, "small", mode="time"))
    for what in suppositions(["all"]):
        program, chip = retimed(outcome.program, outcome.result.chip, what)
        assert program.code == outcome.program.code
        assert chip.digest() != outcome.result.chip.digest()


def test_a_supposition_that_is_given_twice_is_made_once() -> None:
    assert suppositions(["hbm-bandwidth", "all", "all"]) == suppositions(["all"])
    assert len(suppositions(["hbm.latency=9", "hbm.latency=9"])) == 1


def test_faster_parts_never_take_longer_and_nothing_changed_is_the_same_run() -> None:
    outcome = run(Request(MLP, "small", mode="time"))
    cycles = {
        found["name"]: found["cycles"] for found in what_if(outcome.result, suppositions(["all", "hbm.latency=99"]))
    }
    assert outcome.result.cycles
    assert all(cycles[name] <= outcome.result.cycles for name, _ in NAMED.values())
    same = describe(outcome.result.chip)
    latency = next(row.value for row in same if row.field == "hbm.latency")
    (again,) = what_if(outcome.result, suppositions([f"hbm.latency={latency}"]))
    assert again["cycles"] == outcome.result.cycles


def test_a_longer_latency_is_that_of_a_chip_with_it() -> None:
    """A program whose code does not depend on the latency: assembly, run on the other chip itself."""
    text = Path("examples/axpy.s")
    outcome = run(Request(text, mode="time"))
    (found,) = what_if(outcome.result, suppositions(["hbm.latency=1000"]))
    other = variant(outcome.result.chip, {"hbm.latency": 1000})
    assert found["cycles"] == run(Request(text, other, mode="time")).result.cycles
    assert found["cycles"] != outcome.result.cycles


def test_decisions_are_replayed() -> None:
    case = load("cond_switch")
    outcome = run(Request(case.path, "tiny", args=case.args_path))
    (same,) = what_if(outcome.result, suppositions(["hbm.granule=32"]))[:1]
    assert same["cycles"]


def test_the_record_the_summary_and_the_report(tmp_path: Path) -> None:
    result = invoke(MLP, "--chip", "small", "--mode", "time", "--json", "--what-if", "hbm-bandwidth")
    record = json.loads(result.stdout)
    (found,) = from_json(record).what_if
    assert found.name == NAMED["hbm-bandwidth"][0]
    assert found.changes == {"hbm.p": "65536", "hbm.q": "1"}
    assert f">{found.cycles:,}<" in render_report(from_json(record))
    shown = invoke(MLP, "--chip", "small", "--mode", "time", "--what-if", "hbm.latency=1,fifo.depth=64", "--top", 1)
    assert f"with hbm.latency=1,fifo.depth=64: {record['cycles']:,} -> " in " ".join(shown.stdout.split())
    assert "Groups by cycles, 1 of" in shown.stdout


def test_quiet() -> None:
    result = invoke(MLP, "--chip", "small", "--mode", "time", "--quiet")
    assert (result.return_value, result.output) == (0, "")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("everything", "must be FIELD=VALUE, all, or one of hbm-bandwidth"),
        ("vmem.bytes=8KiB", r"vmem\.bytes decides which programs there are.*--set"),
        ("hbm.latency=0", r"hbm\.latency = 0"),
        ("hbm.speed=1", r"hbm\.speed"),
    ],
)
def test_suppositions_that_are_none(text: str, part: str) -> None:
    outcome = run(Request(Path("examples/axpy.s"), mode="time"))
    with pytest.raises(ConfigError, match=part):
        what_if(outcome.result, suppositions([text]))


def test_it_needs_cycles() -> None:
    result = invoke(MLP, "--chip", "tiny", "--random", 0, "--mode", "values", "--what-if", "all")
    assert "--what-if needs cycles" in str(result.exception)


def test_names_are_of_a_chip() -> None:
    chip = load_chip("tpu_v3")
    assert variant(chip, {"hbm.p": 65536, "hbm.q": 1}).hbm.chunk == 65536
