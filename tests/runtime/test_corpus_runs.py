"""Real modules, lowered by JAX, through the whole path, against XLA's own results."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.corpus.load import load, names
from tests.goldens import CORPUS, check, known
from tests.runtime.command import systolith

# `tiny` has little HBM; it runs the modules that fit.
TINY = (
    "mlp_infer", "mlp_infer_bf16", "lenet_infer", "int8_dot_i32", "bf16_dot_f32", "lstm_scan", "cond_switch",
    "gpt2_decode_kvcache", "lenet_train_maxpool_selscatter",
)  # fmt: skip
# A family of operations each: precisions and chips make little difference.
OPERATIONS = (
    "mlp_train_sgd", "gpt2_tiny_infer", "embedding_gather_scatteradd_grad", "fori_while_dynamic", "elementwise_zoo",
    "cumsum_reduce_window", "reduce_variants", "complex_ops", "fft_all", "cholesky_trisolve",
    "sort_topk_argmax", "rng_threefry",
)  # fmt: skip
# Ten times the instructions that `tpu_v3` needs.
LONG_ON_TINY = ("mlp_train_sgd", "gpt2_tiny_infer", "sort_topk_argmax")
# What they have is tested on small arrays: by tests/compiler/driver/test_sorts.py and test_every_operation.py, and by
# tests/runtime/test_jit.py.
LONG = ("sort_topk_argmax", "elementwise_zoo", "rng_threefry")
LARGE = ("resnet18_infer_224", "resnet50_infer_224", "gpt2_block", "gpt2_block_bf16", "bert_base_layer")
HEAVY = (
    ("mlp_infer", "tpu_v3", "default"),
    ("mlp_infer_bf16", "small", "highest"),
    ("lenet_infer", "small", "highest"),
    ("lenet_infer", "tpu_v3", "default"),
    ("gpt2_decode_kvcache", "small", "default"),
    ("gpt2_decode_kvcache", "tpu_v3", "highest"),
    ("lstm_scan", "small", "default"),
    ("lstm_scan", "tpu_v3", "highest"),
    ("mlp_infer", "tiny", "default"),
    ("mlp_infer", "tiny", "highest"),
    ("mlp_infer", "small", "highest"),
    ("mlp_infer_bf16", "tiny", "default"),
    ("mlp_infer_bf16", "tiny", "highest"),
    ("lenet_infer", "tiny", "default"),
    ("lenet_infer", "tiny", "highest"),
    ("gpt2_decode_kvcache", "tiny", "default"),
    ("gpt2_decode_kvcache", "tiny", "highest"),
    ("lstm_scan", "tiny", "default"),
    ("lstm_scan", "small", "highest"),
    ("resnet18_infer_32_small", "small", "default"),
    ("resnet18_infer_32_small", "small", "highest"),
    ("resnet18_infer_32_small", "tpu_v3", "default"),
    ("resnet18_infer_32_small", "tpu_v3", "highest"),
    ("lstm_scan", "tiny", "highest"),
    ("lenet_train_maxpool_selscatter", "tiny", "default"),
    ("lenet_train_maxpool_selscatter", "tiny", "highest"),
    ("lenet_train_maxpool_selscatter", "small", "default"),
    ("lenet_train_maxpool_selscatter", "small", "highest"),
    ("lenet_train_maxpool_selscatter", "tpu_v3", "highest"),
)
JUST_FITS = ("gpt2_block_bf16", "tiny", "default")
TOO_LARGE_FOR_TINY = tuple(n for n in names("path") if n not in (*TINY, *OPERATIONS, JUST_FITS[0]))


def cases() -> list[ParameterSet]:
    found = []
    for name, chip, precision in product(names("path"), ("tiny", "small", "tpu_v3"), ("default", "highest")):
        if chip == "tiny" and name not in TINY + OPERATIONS and (name, chip, precision) != JUST_FITS:
            continue
        once = "tpu_v3" if name in LONG_ON_TINY else "tiny"
        repeated = name in OPERATIONS and (chip, precision) != (once, "highest")
        marks = [pytest.mark.slow] if name in LARGE + LONG or repeated or (name, chip, precision) in HEAVY else []
        found.append(pytest.param(name, chip, precision, id=f"{name}-{chip}-{precision}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "chip", "precision"), cases())
def test_module(name: str, chip: str, precision: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    case = load(name)
    path = tmp_path / f"{name}.hlo"
    path.write_text(case.text)
    ran = systolith(
        capsys, "run", path, "--args", case.args_path, "--expect", case.expected_path, "--chip", chip, "--check",
        "--hostile", "--precision", precision, "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert record["ok"]
    assert record["cycles"] > 0
    if (key := f"{name} {chip} {precision}") in known(CORPUS):
        check(CORPUS, key, record["cycles"])
    for unit, causes in record["units"].items():
        assert sum(causes.values()) == record["cycles"], unit


@pytest.mark.parametrize("name", TOO_LARGE_FOR_TINY)
def test_tiny_refuses_what_it_cannot_hold(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / f"{name}.hlo"
    path.write_text(load(name).text)
    ran = systolith(capsys, "compile", path, "--chip", "tiny", "-o", tmp_path / "m.slb")
    assert ran.code == 2
    assert "HBM" in ran.err
    assert len(ran.err.splitlines()) == 1
