"""Operations of several devices in a module for one: what the evaluator, and XLA, give on one device."""

from __future__ import annotations

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.one_device import RunOnOneDevice
from systolith.isa.dtypes import F32
from systolith.runtime.arrays import random_array
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import check, compiled
from tests.compiler.passes.differential import assert_unchanged, opcodes, transformed
from tests.host.modules import check as fed

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
P = " p = f32[4,2] parameter(0)\n"
ALONE = {
    "numbers": " r = u32[] replica-id()\n q = u32[] partition-id()\n ROOT s = u32[] add(r, q)",
    "all-reduce": " ROOT r = f32[4,2] all-reduce(p), replica_groups={}, to_apply=add",
    "all-reduce of a group": " ROOT r = f32[4,2] all-reduce(p), channel_id=1, replica_groups={{0}},"
    " use_global_device_ids=true, to_apply=add",
    "all-reduce of two": " ROOT r = (f32[4,2], f32[4,2]) all-reduce(p, p), replica_groups={}, to_apply=add",
    "all-reduce-start": " s = f32[4,2] all-reduce-start(p), replica_groups={{0}}, to_apply=add\n"
    " ROOT r = f32[4,2] all-reduce-done(s)",
    "all-gather": " ROOT r = f32[4,2] all-gather(p), replica_groups={{0}}, dimensions={1}",
    "all-gather-start": " s = (f32[4,2], f32[4,2]) all-gather-start(p), replica_groups={{0}}, dimensions={0}\n"
    " ROOT r = f32[4,2] all-gather-done(s)",
    "all-to-all": " ROOT r = f32[4,2] all-to-all(p), replica_groups={{0}}, dimensions={0}",
    "all-to-all of parts": " t = (f32[4,2]) all-to-all(p), replica_groups={{0}}\n"
    " ROOT r = f32[4,2] get-tuple-element(t), index=0",
    "reduce-scatter": " ROOT r = f32[4,2] reduce-scatter(p), replica_groups={{0}}, dimensions={0}, to_apply=add",
    "collective-broadcast": " ROOT r = f32[4,2] collective-broadcast(p), replica_groups={{0}}",
    "collective-permute": " ROOT r = f32[4,2] collective-permute(p), source_target_pairs={{0,0}}",
    "collective-permute of nothing": " ROOT r = f32[4,2] collective-permute(p), source_target_pairs={}",
    "collective-permute-start": " s = (f32[4,2], f32[4,2], u32[], u32[]) collective-permute-start(p),"
    " source_target_pairs={{0,0}}\n ROOT r = f32[4,2] collective-permute-done(s)",
}

WITH_XLA = ("numbers", "all-reduce", "all-reduce of two", "all-gather", "reduce-scatter", "collective-permute")


@pytest.mark.parametrize("name", ALONE)
def test_they_move_what_they_take(name: str) -> None:
    body = ALONE[name]
    text = f"HloModule m\n{ADD if 'to_apply' in body else ''}ENTRY e {{\n{P}{body}\n}}"
    x = random_array(np.random.default_rng(0), F32, (4, 2))
    made = assert_unchanged(parse_hlo(text), RunOnOneDevice(), arguments=[x])
    assert not any(o.startswith(("all", "collective", "red", "rep", "part")) for o in opcodes(made))
    check(text, [x], most=0.0)
    if name in WITH_XLA:
        np.testing.assert_array_equal(run_xla(text, x)[0], evaluate(made, x)[0])


RAGGED = """HloModule m
ENTRY e {{
 data = f32[{rows},3] parameter(0)
 out = f32[{places},3] parameter(1)
 starts = {t}[{n}] parameter(2)
 sizes = {t}[{n}] parameter(3)
 targets = {t}[{n}] parameter(4)
 received = {t}[{n}] parameter(5)
 ROOT r = f32[{places},3] ragged-all-to-all(data, out, starts, sizes, targets, received), replica_groups={{{{0}}}}
}}"""


@pytest.mark.parametrize(
    ("t", "rows", "places", "slices"),
    [
        ("s32", 6, 5, [(1, 2, 3)]),
        ("s64", 6, 5, [(0, 0, 0)]),
        ("s32", 6, 9, [(0, 3, 1), (4, 2, 2), (5, 1, 8)]),  # the second one overwrites the first
        ("s32", 0, 4, [(0, 0, 2)]),
        ("s32", 4, 0, [(0, 0, 0)]),
    ],
)
def test_ragged_all_to_all(t: str, rows: int, places: int, slices: list[tuple[int, int, int]]) -> None:
    rng = np.random.default_rng(0)
    lists = [np.array(x, np.int32 if t == "s32" else np.int64) for x in zip(*slices, strict=True)]
    arguments = [random_array(rng, F32, (n, 3)) for n in (rows, places)] + [*lists, lists[1]]
    text = RAGGED.format(t=t, rows=rows, places=places, n=len(slices))
    assert_unchanged(parse_hlo(text), RunOnOneDevice(), arguments=arguments)
    check(text, arguments, most=0.0)


TOKENS = {
    "a result": " ROOT r = (f32[4,2], token[]) tuple(p, t)",
    "results": " u = token[] after-all()\n v = token[] after-all(t, u)\n n = (token[], f32[4,2]) tuple(t, p)\n"
    " ROOT r = (token[], (token[], f32[4,2])) tuple(v, n)",
    "a loop": " z = s32[] constant(0)\n s = (token[], s32[], f32[4,2]) tuple(t, z, p)\n"
    " w = (token[], s32[], f32[4,2]) while(s), condition=less, body=step\n"
    " ROOT r = f32[4,2] get-tuple-element(w), index=2",
    "a branch": " c = pred[] parameter(1)\n s = (token[], f32[4,2]) tuple(t, p)\n"
    " w = (token[], f32[4,2]) conditional(c, s, s), true_computation=one, false_computation=other\n"
    " ROOT r = f32[4,2] get-tuple-element(w), index=1",
}
STEP = """less {
 s = (token[], s32[], f32[4,2]) parameter(0)
 k = s32[] get-tuple-element(s), index=1
 n = s32[] constant(3)
 ROOT r = pred[] compare(k, n), direction=LT
}
step {
 s = (token[], s32[], f32[4,2]) parameter(0)
 t = token[] get-tuple-element(s), index=0
 u = token[] after-all(t)
 k = s32[] get-tuple-element(s), index=1
 one = s32[] constant(1)
 x = f32[4,2] get-tuple-element(s), index=2
 y = f32[4,2] add(x, x)
 k1 = s32[] add(k, one)
 ROOT r = (token[], s32[], f32[4,2]) tuple(u, k1, y)
}
"""
BRANCHES = """one {
 s = (token[], f32[4,2]) parameter(0)
 x = f32[4,2] get-tuple-element(s), index=1
 y = f32[4,2] negate(x)
 t = token[] get-tuple-element(s), index=0
 u = token[] after-all(t)
 ROOT r = (token[], f32[4,2]) tuple(u, y)
}
other {
 ROOT s = (token[], f32[4,2]) parameter(0)
}
"""


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_are_names(name: str) -> None:
    head = {"a loop": STEP, "a branch": BRANCHES}.get(name, "")
    arguments = [random_array(np.random.default_rng(0), F32, (4, 2)), np.asarray(True)][: 1 + (name == "a branch")]
    check(f"HloModule m\n{head}ENTRY e {{\n{P} t = token[] after-all()\n{TOKENS[name]}\n}}", arguments, most=0.0)


REFUSED = {
    " ROOT r = f32[4,2] all-reduce(p), replica_groups={{0,1}}, to_apply=add": "all-reduce takes several devices",
    " ROOT r = f32[8,2] all-gather(p), replica_groups={}, dimensions={0}": "all-gather takes several devices",
    " ROOT r = f32[4,2] collective-permute(p), source_target_pairs={{0,1}}": "collective-permute takes several devices",
}


@pytest.mark.parametrize("body", REFUSED)
def test_more_devices_are_refused(body: str) -> None:
    text = f"HloModule m\n{ADD if 'to_apply' in body else ''}ENTRY e {{\n{P}{body}\n}}"
    with pytest.raises(CompileError, match=REFUSED[body]) as refused:
        compiled(text)
    assert len(refused.value.refusals) == 1


def test_items_of_the_host_come_and_go_in_order_beside_them() -> None:
    text = f"""HloModule m
{ADD}ENTRY e {{
{P} t = token[] after-all()
 i = (f32[4,2], token[]) infeed(t)
 x = f32[4,2] get-tuple-element(i), index=0
 s = f32[4,2] all-reduce(x), replica_groups={{{{0}}}}, to_apply=add
 u = token[] get-tuple-element(i), index=1
 o = token[] outfeed(s, u), outfeed_shape=f32[4,2]
 j = (f32[4,2], token[]) infeed(o)
 y = f32[4,2] get-tuple-element(j), index=0
 v = token[] get-tuple-element(j), index=1
 d = f32[4,2] subtract(y, p)
 g = f32[4,2] all-gather(d), replica_groups={{{{0}}}}, dimensions={{0}}
 w = token[] outfeed(g, v), outfeed_shape=f32[4,2]
 ROOT r = f32[4,2] subtract(s, y)
}}"""
    rng = np.random.default_rng(0)
    first, second, p = (random_array(rng, F32, (4, 2)) for _ in range(3))
    made = transformed(parse_hlo(text), RunOnOneDevice())
    assert not {"all-reduce", "all-gather"} & set(opcodes(made))
    fed(sl.Client("tiny"), text, [first, second], p)
