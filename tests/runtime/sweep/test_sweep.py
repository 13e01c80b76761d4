"""Sweeps: every point as `run --mode time` has it, kept as it comes, none computed twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.isa import host_functions, routines
from systolith.isa.chip import SCHEMA, load_chip, variant
from systolith.isa.chip_schema import TIME_FIELDS, value_of
from systolith.isa.errors import ConfigError, SystolithError
from systolith.runtime.sweep import run, work
from systolith.runtime.sweep.points import Space, version, with_times_of
from systolith.runtime.sweep.pool import Processes
from systolith.runtime.sweep.run import sweep
from systolith.runtime.sweep.study import study_of
from systolith.runtime.sweep.work import Job
from systolith.sim.simulate import simulate
from tests.installed import install, path_of
from tests.runtime.sweep.studies import MODEL, study


def cycles(settings: dict[str, Any], compiled: dict[str, Any] | None = None, precision: str | None = None) -> int:
    """Cycles of the model by a compilation of its own."""
    tiny = load_chip("tiny")
    chip, other = variant(tiny, settings), variant(tiny, compiled if compiled is not None else settings)
    program = compile_module(parse_hlo(MODEL), other, Options(precision, probes=False)).program
    program.chip_digest = ""
    found = simulate(program, chip, mode="time").cycles
    assert found is not None
    return found


def test_tuned_points_are_fresh_compilations(tmp_path: Path) -> None:
    found = sweep(study(tmp_path, options={"precision": ["default", "highest"]}), workers=1)
    assert found.ok
    assert len(found.rows) == 8
    for row in found.rows:
        settings = {"vmem.bytes": row["vmem.bytes"], "hbm.gbps": row["hbm.gbps"]}
        assert row["cycles"] == cycles(settings, precision=row["precision"])
        assert row["seconds"] == pytest.approx(row["cycles"] / load_chip("tiny").clock_mhz / 1e6)
        assert row["program"] == "tuned"


def test_fixed_points_run_one_binary_for_each_set_of_other_fields(tmp_path: Path, compilations: list[str]) -> None:
    found = sweep(
        study(tmp_path, program="fixed", vary={"vmem.bytes": [4096, "64KiB"], "hbm.p": [2, 4, 8, 16]}), workers=1
    )
    assert len(compilations) == 2
    for row in found.rows:
        only = {"vmem.bytes": row["vmem.bytes"]}
        assert row["cycles"] == cycles(only | {"hbm.p": row["hbm.p"]}, only)


def test_fixed_points_run_one_binary_where_the_chunk_follows_the_bandwidth(
    tmp_path: Path, compilations: list[str]
) -> None:
    rates = [0.8, 4, 40]
    found = sweep(study(tmp_path, program="fixed", vary={"hbm.gbps": rates}), workers=1)
    assert len({value["hbm.chunk"] for value in found.values}) > 1
    assert len(compilations) == 1
    assert [row["cycles"] for row in found.rows] == [cycles({"hbm.gbps": rate}, {}) for rate in rates]


def test_several_processes_give_the_same_rows(tmp_path: Path) -> None:
    here, there = (sweep(study(tmp_path), workers=n) for n in (1, 2))
    walls = ("compile_seconds", "simulate_seconds")
    assert [{k: v for k, v in row.items() if k not in walls} for row in here.rows] == [
        {k: v for k, v in row.items() if k not in walls} for row in there.rows
    ]


def other(field: str) -> Any:
    tiny = load_chip("tiny")
    value = value_of(tiny, field)
    for changed in (value * 2, value // 2, value + 1):
        try:
            return variant(tiny, {field: changed})
        except ConfigError:
            continue
    raise AssertionError(field)


@pytest.mark.parametrize("field", sorted(TIME_FIELDS))
def test_times_change_neither_values_nor_what_is_legal(field: str) -> None:
    import numpy as np

    from systolith.isa.verify import verify_program

    tiny, chip = load_chip("tiny"), other(field)
    assert with_times_of(chip, tiny).digest() == tiny.digest() != chip.digest()
    program = compile_module(parse_hlo(MODEL), tiny).program
    moved = work.moved(program, chip)
    verify_program(moved, chip)
    rng = np.random.default_rng(0)
    memory = {n: rng.random(b.bytes // 4, np.float32).view(np.uint8) for n, b in enumerate(program.buffers)}
    outs = [
        simulate(p, c, {n: m.copy() for n, m in memory.items()}, mode="values").outputs[0]
        for p, c in ((program, tiny), (moved, chip))
    ]
    assert np.array_equal(outs[0], outs[1])


def test_a_refused_point_is_a_row_and_the_others_run(tmp_path: Path) -> None:
    big = MODEL.replace("16", "320")
    (tmp_path / "big.hlo").write_text(big)
    raw = study(
        tmp_path, models=[str(tmp_path / "big.hlo")], vary={"hbm.bytes": [2**16, 2**24], "vmem.bytes": [3, 4096]}
    )
    study(tmp_path)
    found = sweep(raw, workers=1)
    assert [row["status"] for row in found.rows] == ["refused", "refused", "refused", "ok"]
    assert "vmem.bytes = 3: must be" in found.rows[0]["reason"]
    assert "bytes of HBM" in found.rows[1]["reason"]
    assert not found.ok


def test_what_is_known_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "r.sqlite"
    assert sweep(study(tmp_path), store, workers=1).computed == 4
    monkeypatch.setattr(run, "pool_for", lambda *_: pytest.fail("work was begun"))
    again = sweep(study(tmp_path), store, workers=1)
    assert (again.known, again.computed, again.ok) == (4, 0, True)


def test_a_study_can_grow_and_a_model_can_change(tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    sweep(study(tmp_path), store, workers=1)
    more = sweep(study(tmp_path, vary={"vmem.bytes": [4096, "64KiB"], "hbm.gbps": [1, 2, 3]}), store, workers=1)
    assert (more.known, more.computed) == (4, 2)
    (tmp_path / "layer.hlo").write_text(MODEL.replace("tanh", "negate"))
    assert sweep(study(tmp_path), store, workers=1).computed == 4


def test_results_depend_on_installed_extensions(tmp_path: Path) -> None:
    text = "class Nothing:\n    def run(self, module):\n        return False\n"
    folder, store = tmp_path / "site", tmp_path / "r.sqlite"
    folder.mkdir()
    install(folder, "extension_of_a_sweep", text, {"systolith.passes": {"nothing": "extension_of_a_sweep:Nothing"}})
    computed = []
    for changed in (None, "", "", "# changed\n"):
        version.cache_clear()
        if changed is None:
            computed.append(sweep(study(tmp_path), store, workers=1).computed)
            continue
        (folder / "extension_of_a_sweep.py").write_text(text + changed)
        with path_of(folder):
            computed.append(sweep(study(tmp_path), store, workers=1).computed)
    version.cache_clear()
    assert computed == [4, 4, 0, 4]


CALLS = """\
HloModule calls
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} custom-call(x), custom_call_target="of.a.sweep"
  ROOT z = f32[8]{0} add(x, y)
}
"""


LOAD = "dma.load hbm(x)[0]:flat, vmem[copy]:flat"
COPY = f"""\
.buffer x parameter f32 [n]
.buffer y result f32 [n]
.scratch copy vmem 4 * n
.token loaded ld -> st
.pattern flat f32 counts=(n) strides=(4)
COPIES
{LOAD} signal loaded
dma.store vmem[copy]:flat, hbm(y)[0]:flat wait loaded
halt
"""


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A study of a model with a custom call; what is registered for it is forgotten."""
    (tmp_path / "calls.hlo").write_text(CALLS)
    yield study(tmp_path, models=[str(tmp_path / "calls.hlo")], vary={"hbm.gbps": [1, 2]})
    host_functions.unregister("of.a.sweep")
    routines.unregister("of.a.sweep")


def test_a_call_that_was_refused_runs_once_it_is_registered(calls: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    assert not sweep(calls, store, workers=1).ok
    host_functions.register("of.a.sweep", lambda x: x)
    assert sweep(calls, store, workers=1).ok


def test_another_routine_has_results_of_its_own(calls: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for copies in (1, 2):
        routines.register("of.a.sweep", COPY.replace("COPIES", "\n".join([LOAD] * copies)))
        found.append(sweep(calls, tmp_path / "r.sqlite", workers=1))
        assert found[-1].ok, found[-1].rows
    assert [row["cycles"] for row in found[0].rows] < [row["cycles"] for row in found[1].rows]


@pytest.mark.slow
def test_processes_know_what_is_registered(calls: dict[str, Any]) -> None:
    host_functions.register("of.a.sweep", lambda x: x)
    assert sweep(calls, workers=2).ok
    host_functions.unregister("of.a.sweep")
    routines.register("of.a.sweep", COPY.replace("COPIES", LOAD))
    here, there = sweep(calls, workers=1), sweep(calls, workers=2)
    assert [row["cycles"] for row in there.rows] == [row["cycles"] for row in here.rows]


def test_a_sweep_that_is_interrupted_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = work.measure
    done: list[Job] = []

    def interrupted(job: Job) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job)
        return measure(job)

    monkeypatch.setattr(work, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(study(tmp_path), tmp_path / "r.sqlite", workers=1)
    monkeypatch.undo()
    again = sweep(study(tmp_path), tmp_path / "r.sqlite", workers=1)
    assert (again.known, again.computed) == (2, 2)


def test_a_store_of_another_study_is_refused_and_stays(tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    sweep(study(tmp_path, name="a"), store, workers=1)
    before = store.read_bytes()
    with pytest.raises(SystolithError, match=r"r\.sqlite: holds results of the study 'a', not of 'b'"):
        sweep(study(tmp_path, name="b"), store)
    assert store.read_bytes() == before


def test_a_store_that_is_none_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes and no results\n" * 100)
    with pytest.raises(SystolithError, match=r"notes\.txt: is no file of results"):
        sweep(study(tmp_path), path)
    assert path.read_text().startswith("these are notes")
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("create table mine (x)")
    with pytest.raises(SystolithError, match=r"other\.sqlite: is no file of results"):
        sweep(study(tmp_path), other)


def test_a_store_that_is_no_file_is_refused_by_what_it_is(tmp_path: Path) -> None:
    for path in ("/dev/zero", "/dev/null"):
        with pytest.raises(SystolithError, match=f"^{path}: is a device: results are kept in a file"):
            sweep(study(tmp_path), path)


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    sweep(study(tmp_path), store, workers=1)
    with sqlite3.connect(store, isolation_level=None) as db:
        db.execute("begin exclusive")
        with pytest.raises(SystolithError, match=r"r\.sqlite: is in use"):
            sweep(study(tmp_path), store)
    db.close()


def test_no_room_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(SystolithError, match=r"4 results need \d+ bytes, 1000 are free"):
        sweep(study(tmp_path), tmp_path / "r.sqlite")


def test_a_full_disk_ends_the_sweep_and_loses_nothing(tmp_path: Path) -> None:
    """By the limit of a database's pages, which SQLite reports as a full disk."""
    store = tmp_path / "r.sqlite"
    raw = study(tmp_path)
    sweep(raw, store, workers=1)
    from systolith.runtime.sweep.store import Store

    with Store(store, "study") as kept:
        before = kept.known()
        kept._db.execute("pragma max_page_count = 1")
        with pytest.raises(SystolithError, match="full; the results so far are there"):
            kept.add((str(n), {"x": "y" * 500}) for n in range(100))
    with Store(store, "study") as kept:
        assert kept.known() == before


def batches_of(folder: Path) -> list[list[Job]]:
    points = Space(study_of(study(folder))).points()
    return [[job] for job in run._jobs([(p.key, p) for p in points], 1)]


@pytest.mark.slow
def test_a_process_does_the_jobs_of_a_batch(tmp_path: Path) -> None:
    """Each job's results come by themselves, so that a sweep that is killed loses no more than those under way."""
    jobs = [job for batch in batches_of(tmp_path) for job in batch]

    class Watched(Processes):
        def _submitted(self, job: Job, worker: int) -> Any:
            given[job.points[0][0]] = worker
            return super()._submitted(job, worker)

    given: dict[str, int] = {}
    pool = Watched(2)
    try:
        found = [key for results in pool.run([jobs[:3], jobs[3:]]) for key, _ in results]
    finally:
        pool.close()
    keys = [job.points[0][0] for job in jobs]
    assert sorted(found) == sorted(keys)
    assert [given[key] for key in keys] == [0, 0, 0, 1]


@pytest.mark.slow
def test_a_process_that_is_killed_is_made_anew_and_its_points_are_computed(tmp_path: Path) -> None:
    pool = Processes(2)

    def kill() -> None:
        while not pool.processes:
            time.sleep(0.01)
        os.kill(pool.processes[0].pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    try:
        found = dict(item for results in pool.run(batches_of(tmp_path)) for item in results)
    finally:
        pool.close()
    assert [row["status"] for row in found.values()] == ["ok"] * 4


class Deadly(Processes):
    """Processes that one job kills, as often as it is tried."""

    def _submitted(self, job: Job, worker: int) -> Any:
        self.deadly = getattr(self, "deadly", job)
        return self._submit(worker, os._exit, 1) if job is self.deadly else super()._submitted(job, worker)


@pytest.mark.slow
def test_a_point_whose_process_always_dies_is_a_row_and_the_others_run(tmp_path: Path) -> None:
    pool = Deadly(2)
    try:
        found = [row for results in pool.run(batches_of(tmp_path)) for _, row in results]
    finally:
        pool.close()
    assert sorted(row["status"] for row in found) == ["failed", "ok", "ok", "ok"]


def test_every_field_of_times_is_one_of_chips() -> None:
    assert SCHEMA.keys() >= TIME_FIELDS
