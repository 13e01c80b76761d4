"""A study that is wrong or impossible is refused in one line, before any work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith.isa.errors import SystolithError
from systolith.runtime.sweep import run
from systolith.runtime.sweep.points import Space
from systolith.runtime.sweep.run import sweep
from systolith.runtime.sweep.study import study_of
from tests.runtime.sweep.studies import study

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"models": ["gone.hlo"]}, "models: gone.hlo: no such file"),
    ({"models": []}, "models = .*: must be a list"),
    ({"chips": ["tpu_v33"]}, "no such preset"),
    ({"chips": ["tiny", "tiny"]}, "chips: 'tiny' is there twice"),
    ({"vary": {"vmem.byte": [4096]}}, "vmem.byte: unknown field of a chip; did you mean vmem.bytes"),
    ({"vary": {"vmem": {"byte": [4096]}}}, "vmem.byte: unknown field"),
    ({"vary": {"vmem": [4096]}}, "vmem: unknown field of a chip; fields of vmem: bytes"),
    ({"vary": 3}, "vary = 3: must be a table"),
    ({"points": [3]}, "points = 3: must be a table"),
    ({"points": []}, r"points = \[\]: must be a list with something in it"),
    ({"sample": 3}, "sample = 3: must be a table"),
    ({"vary": {"hbm.latency": {"from": "50 ns", "to": "90 ns"}}}, "from 50 ns to 90 ns: must be in cycles"),
    ({"vary": {"energy.hbm_byte": ["3 GB/s"]}}, "energy.hbm_byte = '3 GB/s': must be a number.*units: fJ, pJ"),
    ({"vary": {"vmem.bytes": ["8Mib"]}}, "vmem.bytes = '8Mib': must be a number"),
    ({"vary": {"vmem.bytes": [4096, "4KiB"]}}, "vmem.bytes: a value is there twice"),
    ({"vary": {"vmem.bytes": []}}, "vmem.bytes: must have a value"),
    ({"vary": {"hbm.gbps": {"from": 1, "to": 2}}}, "a range is for latin-hypercube and optimise"),
    ({"varry": {}}, "varry: unknown key; did you mean vary"),
    ({"program": "tune"}, "program = 'tune': must be one of tuned, fixed"),
    ({"options": {"precision": "low"}}, "options.precision = 'low': must be one of"),
    ({"options": {"presicion": "high"}}, "presicion: unknown option; did you mean precision"),
    ({"options": {"autotune": 2}, "program": "fixed"}, "options.autotune: is for program = 'tuned'"),
    ({"constraints": ["vmem.bytes <= "]}, "'vmem.bytes <= ' is no formula"),
    ({"constraints": ["__import__('os')"]}, "is not understood"),
    ({"constraints": ["mxu.row < 3"]}, "unknown mxu.row; did you mean mxu.rows"),
    ({"constraints": ["mxu.rows < 3"]}, "no point fulfils 'mxu.rows < 3'"),
    ({"vary": {"vmem.bytes": [3, 5]}}, "no point fulfils the limits of chips; the first: .*vmem.bytes = 3"),
    ({"pareto": ["seconds", "area"]}, "pareto: 'area': unknown area"),
    ({"pareto": ["area.vpu"]}, "'area.vpu': chip tiny states no area.vpu"),
    ({"constraints": ["energy.hbm_byte < 3"]}, "'energy.hbm_byte < 3': chip tiny states no energies"),
    ({"sample": {"method": "random"}}, "sample.method = 'random': must be one of"),
    ({"sample": {"method": "latin-hypercube"}}, "sample.points: missing"),
    ({"sample": {"points": 3}}, "sample.points: factorial takes all points"),
    ({"sample": {"method": "latin-hypercube", "points": 3, "objective": "seconds"}}, "is for method optimise"),
    ({"points": [{"vmem.bytes": 4096}]}, "vary.vmem.bytes: is in points too"),
    ({"vary": {"hbm.gbps": list(range(1, 2000)), "fifo.depth": list(range(1000))}}, "points: must be at most 1000000"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_study_that_is_wrong_is_refused_before_any_work(
    changes: Mapping[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "pool_for", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(SystolithError, match=message):
        sweep(study(tmp_path, **changes), tmp_path / "r.sqlite")
    assert not (tmp_path / "r.sqlite").exists()


def test_a_model_that_cannot_be_read_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "bad.hlo").write_text("HloModule bad\nENTRY e { ROOT x = f32[2] parmeter(0) }\n")
    with pytest.raises(SystolithError, match=r"models: .*bad\.hlo.*parmeter"):
        sweep(study(tmp_path, models=[str(tmp_path / "bad.hlo")]))


@pytest.mark.parametrize("junk", [3, None, [1]])
def test_what_is_no_study_is_refused(junk: Any) -> None:
    with pytest.raises(SystolithError, match="study: expected str or Path or Mapping or Study, got"):
        sweep(junk)


def test_numbers_may_be_of_numpy(tmp_path: Path) -> None:
    space = Space(study_of(study(tmp_path, vary={"vmem.bytes": list(2 ** np.arange(12, 15))})))
    assert [point.chip.vmem.bytes for point in space.points() if point.chip] == [4096, 8192, 16384]


def test_points_are_all_combinations(tmp_path: Path) -> None:
    raw = study(tmp_path, chips=["tiny", "small"], options={"precision": ["default", "high"]})
    found = [(p.base, *p.settings.values(), p.options["precision"]) for p in Space(study_of(raw)).points()]
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2


def test_explicit_points_are_combined_with_what_varies(tmp_path: Path) -> None:
    raw = study(tmp_path, points=[{"vmem.bytes": 4096}, {"vmem": {"bytes": "64KiB"}}], vary={"hbm.gbps": [1, 2]})
    found = [tuple(p.settings.values()) for p in Space(study_of(raw)).points()]
    assert found == [(4096, 1), (4096, 2), (65536, 1), (65536, 2)]


def test_constraints_on_chips_leave_points_out(tmp_path: Path) -> None:
    raw = study(tmp_path, constraints=["vmem.bytes * hbm.gbps <= 64 * 1024"])
    found = [tuple(p.settings.values()) for p in Space(study_of(raw)).points()]
    assert found == [(4096, 1), (4096, 2), (65536, 1)]


def test_a_latin_hypercube_has_a_point_in_each_part_of_each_axis(tmp_path: Path) -> None:
    axes = {
        "hbm.gbps": {"from": 0.5, "to": 2.0},
        "hbm.latency": {"from": 8, "to": 800, "scale": "log"},
        "mxu.acc_rows": {"from": 16, "to": 256},
        "vmem.bytes": {"from": "4KiB", "to": "64KiB"},
    }
    raw = study(tmp_path, vary=axes, sample={"method": "latin-hypercube", "points": 10, "seed": 3})
    found = [p.settings for p in Space(study_of(raw)).points()]
    assert sorted(int((s["hbm.gbps"] - 0.5) / 0.15) for s in found) == list(range(10))
    assert all(8 <= s["hbm.latency"] <= 800 and type(s["hbm.latency"]) is int for s in found)
    assert {s["mxu.acc_rows"] for s in found} == {16, 32, 64, 128, 256}
    assert all(4096 <= s["vmem.bytes"] <= 65536 and s["vmem.bytes"] % 4 == 0 for s in found)
    assert found == [p.settings for p in Space(study_of(raw)).points()]
