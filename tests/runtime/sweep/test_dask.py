"""The same study on a Dask cluster of several processes, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.run import sweep
from tests.runtime.sweep.studies import study

distributed = pytest.importorskip("distributed")
WALLS = ("compile_seconds", "simulate_seconds")


def rows(found: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in WALLS} for row in found.rows]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:  # fmt: skip
        yield made


@pytest.mark.slow
def test_a_cluster_gives_the_same_rows_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    raw = study(tmp_path, vary={"vmem.bytes": [4096, "16KiB", "64KiB"], "hbm.gbps": [0.5, 1, 1.5, 2, 2.5, 3]})
    killed: list[int] = []

    def watch(done: int, total: int, bad: int) -> None:
        if done >= 3 and not killed:
            killed.append(cluster.workers[1].pid)
            os.kill(killed[0], signal.SIGKILL)

    there = sweep(raw, tmp_path / "r.sqlite", dask=cluster.scheduler_address, watch=watch)
    assert killed
    assert there.ok
    assert there.computed == 18
    assert rows(there) == rows(sweep(raw, workers=1))


@pytest.mark.slow
def test_workers_with_other_sources_are_refused(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.runtime.sweep.pool.version", lambda: "0.0.1 other")
    with pytest.raises(SystolithError, match=r"worker tcp://.* has systolith .*, this is 0\.0\.1 other"):
        sweep(study(tmp_path), dask=cluster.scheduler_address)


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.runtime.sweep.pool._CLUSTER_SECONDS", 1)
    with pytest.raises(SystolithError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers"):
        sweep(study(tmp_path), dask="tcp://127.0.0.1:9")
