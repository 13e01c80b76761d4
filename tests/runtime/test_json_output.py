"""`--json` where a value is infinite: JSON that any reader takes, `systolith report` too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from systolith.isa.chip import PRESETS
from tests.isa.test_json_text import strict
from tests.runtime.command import systolith

FAR = np.full(4, 1.5e308)


def loops(count: int, trips: str) -> str:
    """Nested loops that state a trip count and run never."""
    config = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    bodies = ["p = f32[64] parameter(0)\n  ROOT r = f32[64] add(p, p)"]
    bodies += [
        f"p = f32[64] parameter(0)\n  ROOT w{n} = f32[64] while(p), condition=never, body=b{n}, {config}"
        for n in range(count)
    ]
    texts = [f"b{n} {{ {body} }}" for n, body in enumerate(bodies[:-1])] + [f"ENTRY e {{ {bodies[-1]} }}"]
    never = "never { p = f32[64] parameter(0)\n  ROOT c = pred[] constant(false) }"
    return "\n".join(["HloModule m", never, *texts])


def test_an_infinite_error_is_a_string_that_reports_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wide.toml").write_text(
        (PRESETS / "tiny.toml").read_text().replace("wide = { value = false", "wide = { value = true")
    )
    (tmp_path / "m.hlo").write_text("HloModule m\nENTRY e {\n a = f64[4] parameter(0)\n ROOT b = f64[4] copy(a)\n}\n")
    np.savez(tmp_path / "args.npz", allow_pickle=False, arg0=-FAR)
    np.savez(tmp_path / "expected.npz", allow_pickle=False, out0=FAR)
    words = [tmp_path / "m.hlo", "--chip", tmp_path / "wide.toml", "--args", tmp_path / "args.npz"]
    ran = systolith(capsys, "run", *words, "--expect", tmp_path / "expected.npz", "--json")
    assert ran.code == 1
    record = strict(ran.out)
    assert (record["max_abs_error"], record["max_rel_error"]) == ("Infinity", "Infinity")
    run = tmp_path / "run.json"
    run.write_text(ran.out)
    assert systolith(capsys, "report", run, "-o", tmp_path / "r.html").code == 0
    run.write_text(ran.out.replace('"Infinity"', '"infinite"'))
    ran = systolith(capsys, "report", run, "-o", tmp_path / "r.html")
    assert ran.code == 2
    assert "max_abs_error" in ran.err


def test_costs_beyond_the_largest_float_are_strings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large, left, right = (f"f32[{n},{k}]" for n, k in ((2**20, 2**20), (2**20, 2**40), (2**40, 2**20)))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    dot = f"b = {right} constant({{...}})\n  d = {large} dot(p, b), {dims}"
    body = loops(1, "9" * 18).replace("ROOT r = f32[64] add(p, p)", f"{dot}\n  ROOT r = f32[64] add(p, p)")
    path = tmp_path / "m.hlo"
    path.write_text(body.replace("f32[64]", left))
    ran = systolith(capsys, "cost", path, "--trip-counts", "--json")
    assert (ran.code, ran.err) == (0, "")
    record = strict(ran.out)
    assert record["properties"]["flops"] == "Infinity"
    assert record["products"] > 1e39


@pytest.mark.parametrize(("count", "trips"), [(4, "9" * 18), (99, "9" * 18), (30, "99")])
def test_loops_beyond_counting_are_refused(
    count: int, trips: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(loops(count, trips))
    for options in ((), ("--json",), ("--by-op",), ("--chip", "tiny")):
        ran = systolith(capsys, "cost", path, "--trip-counts", *options)
        assert (ran.code, ran.out) == (2, "")
        assert re.fullmatch(
            r"systolith: .*m\.hlo:\d+:\d+: while 'w\d+' states that its body runs over 2\^63 times",
            ran.err.splitlines()[0],
        )


@pytest.mark.parametrize("trips", ["4294967296", "9" * 18, "9" * 19, "9" * 5000])
def test_a_stated_trip_count_that_no_register_holds_is_not_counted(
    trips: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The condition, which is false at once, decides."""
    path = tmp_path / "m.hlo"
    path.write_text(loops(1, trips))
    np.savez(tmp_path / "args.npz", allow_pickle=False, arg0=np.arange(64, dtype=np.float32))
    np.savez(tmp_path / "same.npz", allow_pickle=False, out0=np.arange(64, dtype=np.float32))
    words = ["--chip", "tiny", "--args", tmp_path / "args.npz", "--expect", tmp_path / "same.npz", "--json"]
    ran = systolith(capsys, "run", path, *words)
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["max_abs_error"] == 0
