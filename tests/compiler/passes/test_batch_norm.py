from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.passes.expand.batch_norm import ExpandBatchNorm
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import transformed
from tests.compiler.passes.texts import module_of

TRAINING = (
    " x = {t}[{dims}] parameter(0)\n s = {v} parameter(1)\n o = {v} parameter(2)\n"
    " ROOT r = ({t}[{dims}], {v}, {v}) batch-norm-training(x, s, o), epsilon=0.001, feature_index={f}"
)
INFERENCE = (
    " x = {t}[{dims}] parameter(0)\n s = {v} parameter(1)\n o = {v} parameter(2)\n m = {v} parameter(3)\n"
    " w = {v} parameter(4)\n"
    " ROOT r = {t}[{dims}] batch-norm-inference(x, s, o, m, w), epsilon=0.001, feature_index={f}"
)
GRAD = (
    " x = {t}[{dims}] parameter(0)\n s = {v} parameter(1)\n m = {v} parameter(2)\n w = {v} parameter(3)\n"
    " g = {t}[{dims}] parameter(4)\n"
    " ROOT r = ({t}[{dims}], {v}, {v}) batch-norm-grad(x, s, m, w, g), epsilon=0.001, feature_index={f}"
)


@pytest.mark.parametrize("feature", [0, 1, 2])
@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("body", [TRAINING, INFERENCE, GRAD], ids=["training", "inference", "grad"])
def test_as_xla_computes_it(body: str, t: str, feature: int) -> None:
    dims = (3, 4, 5)
    text = body.format(t=t, dims="3,4,5", v=f"{t}[{dims[feature]}]", f=feature)
    module = module_of(text)
    rng = np.random.default_rng(feature)
    arguments = [np.abs(rng.standard_normal(p.dims)).astype(p.shape.dtype.stored) for p in module.entry.parameters]
    made = transformed(module, ExpandBatchNorm())
    assert not any(i.opcode.startswith("batch-norm") for i in made.instructions())
    given, expanded = (run_xla(print_hlo(m), *arguments) for m in (module, made))
    for want, got in zip(given, expanded, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5 if t == "f32" else 1e-12, atol=1e-5 if t == "f32" else 1e-12)


def test_twice_in_one_module() -> None:
    text = TRAINING.format(t="bf16", dims="8,2", v="bf16[2]", f=1)
    module = module_of(text)
    assert ExpandBatchNorm().run(module)
    assert module.entry.result.opcode == "tuple"
    assert [s.dtype.name for s in module.entry.result.shape.elements] == ["bf16"] * 3
    assert not ExpandBatchNorm().run(module)
