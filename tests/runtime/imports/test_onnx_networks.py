"""Whole ONNX networks, as exporters write them: from the file to cycles, and values against ONNX's evaluator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402

from systolith import api as sl  # noqa: E402
from systolith.runtime.imports.onnx.model import import_model  # noqa: E402
from tests.runtime.command import systolith  # noqa: E402
from tests.runtime.imports.onnx_networks import BERT_BASE_WEIGHTS, RESNET50_WEIGHTS, bert, resnet  # noqa: E402


def image(size: int) -> dict[str, Any]:
    return {"image": np.random.default_rng(1).standard_normal((1, 3, size, size), np.float32)}


def text(words: int, length: int) -> dict[str, Any]:
    """Two texts, the second of them shorter."""
    rng = np.random.default_rng(2)
    mask = (np.arange(length) < np.array([[length], [length // 2]])).astype(np.int64)
    ids, kinds = rng.integers(0, words, mask.shape), rng.integers(0, 2, mask.shape)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}


def check(proto: Any, inputs: dict[str, Any], chip: str, sizes: dict[str, int]) -> None:
    """The values on a chip are those of ONNX's evaluator, relative to the largest."""
    expected = np.asarray(next(iter(ReferenceEvaluator(proto).run(None, inputs))))
    made = import_model(proto, sizes=sizes)
    exe = sl.Client(chip).compile(made.module, sl.Options(precision="highest"))
    (got,) = (y.numpy() for y in exe(*inputs.values(), *made.weights))
    assert got.shape == expected.shape
    assert np.abs(expected).max() > 0.1
    assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_small_residual_network_has_the_values_of_onnx() -> None:
    proto, _ = resnet((1, 1), width=8, classes=10, size=16)
    check(proto, image(16), "small", {"batch": 1})


def test_a_small_encoder_has_the_values_of_onnx() -> None:
    proto, _ = bert(layers=1, width=16, heads=2, words=40, positions=12)
    check(proto, text(40, 6), "small", {"batch": 2, "sequence": 6})


@pytest.mark.slow
def test_resnet50_has_the_values_of_onnx() -> None:
    proto, count = resnet(size=32)
    assert count == RESNET50_WEIGHTS
    check(proto, image(32), "tpu_v3", {"batch": 1})


@pytest.mark.slow
def test_bert_base_has_the_values_of_onnx() -> None:
    proto, count = bert()
    assert count == BERT_BASE_WEIGHTS
    check(proto, text(30522, 16), "tpu_v3", {"batch": 2, "sequence": 16})


def padding(size: int, window: int, stride: int, channels: int, features: int) -> int:
    """Products of a convolution with padding of half the window that only multiply padding."""
    out, half = -(-size // stride), window // 2
    taps = sum(0 <= stride * o + k - half < size for o in range(out) for k in range(window))
    return channels * features * ((out * window) ** 2 - taps**2)


# 4.09 GMAC: torchvision's page of resnet50 (its GFLOPS are multiply-adds), which counts padding.
RESNET50_MACS = 4_089_184_256 - padding(224, 7, 2, 3, 64) - 3 * padding(56, 3, 1, 64, 64) - sum(
    padding(2 * size, 3, 2, n, n) + more * padding(size, 3, 1, n, n)
    for size, n, more in ((28, 128, 3), (14, 256, 5), (7, 512, 2))
)  # fmt: skip
MATMULS = 4 * 128 * 768 * 768 + 2 * 128 * 128 * 768 + 2 * 128 * 768 * 3072


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "dims", "macs"),
    [
        (resnet, ("batch=1",), RESNET50_MACS),
        (bert, ("batch=1", "sequence=128"), 12 * MATMULS + 768 * 768),
    ],
    ids=["resnet50", "bert_base"],
)
def test_networks_of_full_size_run_from_file_to_cycles(
    make: Any, dims: tuple[str, ...], macs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, hlo = tmp_path / "m.onnx", tmp_path / "m.hlo"
    onnx.save(make()[0], path)
    ran = systolith(capsys, "import", path, "-o", hlo, *(word for d in dims for word in ("--dim", d)))
    assert ran.code == 0, ran
    ran = systolith(capsys, "run", hlo, "--chip", "tpu_v3", "--mode", "time", "--json")
    assert ran.code == 0, ran
    record = json.loads(ran.out)
    assert record["macs"] == macs
    assert record["cycles"] > macs / (2 * 128 * 128)
