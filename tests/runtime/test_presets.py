"""Published chips run what they were built for: small models with values, ResNet-50 and BERT in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.hlo_text import int8_mlp
from systolith.isa.chip import load_chip, preset_names
from systolith.runtime.jobs.job import Outcome, Request, run
from tests.corpus.load import load

PUBLISHED = [name for name in preset_names() if name.startswith("tpu_")]
FLOATING = [name for name in PUBLISHED if name != "tpu_v1"]
# 20 M weights in 5 layers, batch 200: the totals of MLP0 of TPU v1 (arXiv 1704.04760); the shapes are not published.
MLP0 = (2000,) * 6


def on(chip: str, path: Path, mode: str = "time") -> Outcome:
    return run(Request(path, chip, mode=mode, random=0 if mode == "full" else None, check=mode == "full"))


@pytest.mark.parametrize("chip", PUBLISHED)
def test_a_small_mlp_of_integers_is_right(chip: str, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(int8_mlp(8, (96, 160, 64)))
    outcome = on(chip, tmp_path / "m.hlo", "full")
    assert outcome.failures == []
    assert outcome.record()["mxu_utilization"] > 0


@pytest.mark.parametrize("chip", FLOATING)
def test_a_small_network_is_right(chip: str) -> None:
    assert on(chip, load("mlp_infer").path, "full").failures == []


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50_infer_224", "bert_base_layer", "resnet18_infer_224"])
@pytest.mark.parametrize("chip", FLOATING)
def test_a_large_model_runs_in_time(chip: str, model: str) -> None:
    record = on(chip, load(model).path).record()
    assert 0 < record["mxu_utilization"] <= 1


@pytest.mark.slow
def test_an_mlp_of_integers_waits_for_weights_on_v1(tmp_path: Path) -> None:
    """Each of 20 M weights once at 34 GB/s; batch 200 is too small to hide that (arXiv 1704.04760, table 3)."""
    (tmp_path / "m.hlo").write_text(int8_mlp(200, MLP0))
    record = on("tpu_v1", tmp_path / "m.hlo").record()
    chip = load_chip("tpu_v1")
    least = 20e6 / (chip.hbm.p / chip.hbm.q)
    assert least <= record["cycles"] <= 1.2 * least
