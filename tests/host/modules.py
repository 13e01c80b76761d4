"""Modules with infeeds and outfeeds, and what the evaluator says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from systolith import api as sl
from systolith.compiler.hlo.ir import Literal
from systolith.compiler.hlo.values.devices import Host
from systolith.compiler.hlo.values.evaluator import DeviceResult, evaluate_devices
from systolith.runtime.arrays import Array

ECHO = """HloModule echo
ENTRY main {
 k = token[] after-all()
 i = ((f32[4,6], s32[3]), token[]) infeed(k), infeed_config="first"
 d = (f32[4,6], s32[3]) get-tuple-element(i), index=0
 x = f32[4,6] get-tuple-element(d), index=0
 y = s32[3] get-tuple-element(d), index=1
 t = token[] get-tuple-element(i), index=1
 n = f32[4,6] negate(x)
 o = (s32[3], f32[4,6]) tuple(y, n)
 ROOT u = token[] outfeed(o, t), outfeed_shape=(s32[3], f32[4,6]), outfeed_config="second"
}
"""


def fed_loop(name: str, turns: int, body: str, token: str) -> str:
    """A loop of so many turns, whose `body` makes `z` of `x`, both f32[64], and its last `token` of `k`."""
    return f"""HloModule {name}
body {{
 p = (s32[], f32[64], token[]) parameter(0)
 c = s32[] get-tuple-element(p), index=0
 x = f32[64] get-tuple-element(p), index=1
 k = token[] get-tuple-element(p), index=2
 {body.strip()}
 one = s32[] constant(1)
 n = s32[] add(c, one)
 ROOT r = (s32[], f32[64], token[]) tuple(n, z, {token})
}}
goes {{
 p = (s32[], f32[64], token[]) parameter(0)
 c = s32[] get-tuple-element(p), index=0
 n = s32[] constant({turns})
 ROOT l = pred[] compare(c, n), direction=LT
}}
ENTRY main {{
 x = f32[64] parameter(0)
 zero = s32[] constant(0)
 k = token[] after-all()
 s = (s32[], f32[64], token[]) tuple(zero, x, k)
 w = (s32[], f32[64], token[]) while(s), condition=goes, body=body
 ROOT y = f32[64] get-tuple-element(w), index=1
}}
"""


def flat(value: Literal) -> list[Array]:
    """The arrays of a literal, depth first."""
    return [a for part in value for a in flat(part)] if isinstance(value, tuple) else [np.asarray(value)]


def evaluated(text: str, items: Sequence[Literal] | Mapping[str, Sequence[Literal]], *arguments: Array) -> DeviceResult:
    """The evaluator's run of a module."""
    (found,) = evaluate_devices(sl.parse_hlo(text), [arguments], hosts=[Host(infeed=items)], precision="highest")
    return found


def ran(client: sl.Client, text: str, items: Sequence[Literal], *arguments: Array) -> tuple[list[Array], list[Array]]:
    """Results and outfeed of the compiled module, in hostile mode; nothing is left of the infeed."""
    exe = client.compile(sl.parse_hlo(text), sl.Options(precision="highest"))
    for item in items:
        client.infeed().push(*flat(item))
    results = [r.numpy() for r in exe(*arguments, hostile=True)]
    assert exe.last_run is not None
    assert not exe.last_run.result.hazards
    assert client.infeed().clear() == 0
    out = client.outfeed()
    return results, [out.pop() for _ in range(len(out))]


def check(client: sl.Client, text: str, items: Sequence[Literal], *arguments: Array, tolerance: float = 0.0) -> None:
    """The compiled module gives and puts out what the evaluator says."""
    want = evaluated(text, items, *arguments)
    results, out = ran(client, text, items[: len(items) - len(want.infeed_left)], *arguments)
    expected = [a for value in want.outfeed for a in flat(value) if a.size]
    assert [(a.shape, a.dtype) for a in out] == [(a.shape, a.dtype) for a in expected]
    for got, should in zip([*results, *out], [*want.values, *expected], strict=True):
        exact = np.complex128 if np.iscomplexobj(should) else np.float64
        np.testing.assert_allclose(got.astype(exact), should.astype(exact), rtol=tolerance, atol=tolerance)
