"""Batch norm on the chip: training, inference and gradient, along any dimension, against the formulas in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from tests.compiler.machine import compiled, run
from tests.examples import examples

TINY = load_chip("tiny")


def show(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


@given(st.lists(st.sampled_from([1, 2, 5, 9, 16]), min_size=1, max_size=4).map(tuple), st.data())
@examples(3, 100)
def test_batch_norm_is_what_its_formulas_say(dims: tuple[int, ...], data: st.DataObject) -> None:
    feature = data.draw(st.integers(0, len(dims) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x, grad = (rng.standard_normal(dims, np.float32) for _ in range(2))
    scale, offset, mean = (rng.standard_normal(dims[feature], np.float32) for _ in range(3))
    variance = rng.random(dims[feature], np.float32) + 0.5
    whole, row = f"f32[{show(dims)}]", f"f32[{dims[feature]}]"
    how = f"epsilon=0.25, feature_index={feature}"
    text = f"""HloModule m
ENTRY e {{
 x = {whole} parameter(0)
 g = {whole} parameter(1)
 s = {row} parameter(2)
 o = {row} parameter(3)
 m = {row} parameter(4)
 v = {row} parameter(5)
 t = ({whole}, {row}, {row}) batch-norm-training(x, s, o), {how}
 i = {whole} batch-norm-inference(x, s, o, m, v), {how}
 b = ({whole}, {row}, {row}) batch-norm-grad(x, s, m, v, g), {how}
 t0 = {whole} get-tuple-element(t), index=0
 t1 = {row} get-tuple-element(t), index=1
 t2 = {row} get-tuple-element(t), index=2
 b0 = {whole} get-tuple-element(b), index=0
 b1 = {row} get-tuple-element(b), index=1
 b2 = {row} get-tuple-element(b), index=2
 ROOT r = ({whole}, {row}, {row}, {whole}, {whole}, {row}, {row}) tuple(t0, t1, t2, i, b0, b1, b2)
}}
"""
    found = run(compiled(text, TINY, "highest").program, TINY, [x, grad, scale, offset, mean, variance])
    axes = tuple(d for d in range(len(dims)) if d != feature)
    shape = tuple(n if d == feature else 1 for d, n in enumerate(dims))
    z, dz = x.astype(np.float64), grad.astype(np.float64)
    s, o, m, v = (a.astype(np.float64).reshape(shape) for a in (scale, offset, mean, variance))
    own, spread = z.mean(axes, keepdims=True), z.var(axes, keepdims=True)
    centred, deviation = z - m, np.sqrt(v + 0.25)
    by_scale = (dz * centred).sum(axes, keepdims=True) / deviation
    each = dz - dz.mean(axes, keepdims=True) - centred * (dz * centred).mean(axes, keepdims=True) / (v + 0.25)
    wanted = (
        (z - own) / np.sqrt(spread + 0.25) * s + o,
        own,
        spread,
        centred / deviation * s + o,
        s / deviation * each,
        by_scale,
        dz.sum(axes),
    )
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.reshape(-1), want.reshape(-1), rtol=2e-4, atol=2e-5)
