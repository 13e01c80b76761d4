"""Computations that call computations, as deep as a module has them: no limit in the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo import parse_hlo
from systolith.compiler.hlo.rules.verifier import verify

DEPTH = 1200
# Bodies of a computation `c{n}` with parameter p that call another.
CALLS = {
    "call": "ROOT r = {t} call(p), to_apply={c}",
    "fusion": "ROOT r = {t} fusion(p), kind=kLoop, calls={c}",
    "async": "s = (({t}), {t}) call-start(p), to_apply={c}\n ROOT r = {t} call-done(s)",
    "conditional": "t = pred[] constant(true)\n ROOT r = {t} conditional(t, p, p), true_computation={c},"
    " false_computation=same",
    "conditional by index": "k = s32[] constant(1)\n ROOT r = {t} conditional(k, p, p),"
    " branch_computations={{same, {c}}}",
    "while": "f = pred[] constant(true)\n t = (pred[], {t}) tuple(f, p)\n"
    " w = (pred[], {t}) while(t), condition=first, body={c}\n ROOT r = {t} get-tuple-element(w), index=1",
    "map": "ROOT r = {t} map(p), dimensions={{}}, to_apply={c}",
}
HELPERS = """HloModule deep
same {{ p = {t} parameter(0)
 ROOT q = {t} negate(p) }}
first {{ p = (pred[], {t}) parameter(0)
 ROOT q = pred[] get-tuple-element(p), index=0 }}
"""


def nested(kind: str, depth: int, shape: str) -> str:
    """Computations c0, c1, ..., each of which calls the one before; the last one is `c{depth}`."""
    texts = [HELPERS.format(t=shape), f"c0 {{ p = {shape} parameter(0)\n ROOT r = {shape} add(p, p) }}"]
    for n in range(1, depth + 1):
        body = CALLS[kind].format(t=shape, c=f"c{n - 1}" if kind != "while" else f"b{n - 1}")
        if kind == "while":
            texts.append(
                f"b{n - 1} {{ s = (pred[], {shape}) parameter(0)\n x = {shape} get-tuple-element(s), index=1\n"
                f" y = {shape} call(x), to_apply=c{n - 1}\n f = pred[] constant(false)\n"
                f" ROOT r = (pred[], {shape}) tuple(f, y) }}"
            )
        texts.append(f"c{n} {{ p = {shape} parameter(0)\n {body} }}")
    return "\n".join(texts)


def evaluated(text: str, *arrays: np.ndarray) -> np.ndarray:
    module = parse_hlo(text)
    verify(module)
    (result,) = sl.evaluate(module, *arrays)
    return result


@pytest.mark.parametrize("kind", sorted(CALLS.keys() - {"map"}))
def test_calls_nest_as_deep_as_they_like(kind: str) -> None:
    x = np.arange(4, dtype=np.float32)
    entry = f"ENTRY e {{ p = f32[4] parameter(0)\n ROOT r = f32[4] call(p), to_apply=c{DEPTH} }}"
    np.testing.assert_array_equal(evaluated(f"{nested(kind, DEPTH, 'f32[4]')}\n{entry}", x), x + x)


@pytest.mark.parametrize("kind", ["call", "fusion", "map", "conditional"])
def test_computations_on_scalars_nest_too(kind: str) -> None:
    x = np.arange(4, dtype=np.float32)
    entry = f"ENTRY e {{ p = f32[4] parameter(0)\n ROOT r = f32[4] map(p), dimensions={{0}}, to_apply=c{DEPTH} }}"
    np.testing.assert_array_equal(evaluated(f"{nested(kind, DEPTH, 'f32[]')}\n{entry}", x), x + x)


@pytest.mark.parametrize("kind", ["call", "while"])
def test_what_cannot_be_evaluated_is_named_from_any_depth(kind: str) -> None:
    text = nested(kind, DEPTH, "f32[4]").replace("add(p, p)", 'custom-call(p), custom_call_target="nobody"')
    entry = f"ENTRY e {{ p = f32[4] parameter(0)\n ROOT r = f32[4] call(p), to_apply=c{DEPTH} }}"
    with pytest.raises(sl.SystolithError, match=r"^\S+: custom-call 'r' \(f32\[4\]\): .*nobody"):
        evaluated(f"{text}\n{entry}", np.zeros(4, np.float32))
