from __future__ import annotations

import pytest

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.passes.simplify.constants import FoldConstants
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.inline import Inline
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import AnnotateTripCounts
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

STATE = "(s32[], f32[4], f32[4], f32[4])"
CALLEES = """
body {{
 p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 j = s32[] add(i, one)
 x = f32[4] get-tuple-element(p), index=1
 k = f32[4] get-tuple-element(p), index=2
 d = f32[4] get-tuple-element(p), index=3
 y = f32[4] add(x, {used})
 e = f32[4] add(d, x)
 ROOT r = {state} tuple(j, y, k, e)
}}
cond {{
 p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant({turns})
 ROOT r = pred[] compare(i, n), direction=LT
}}
"""
BODY = """
 z = s32[] constant(0)
 a = f32[4] parameter(0)
 b = f32[4] parameter(1)
 t = {state} tuple(z, a, b, a)
 w = {state} while(t), condition=cond, body=body, backend_config={{"known_trip_count":{{"n":"{turns}"}},"x":"y"}}
 u = f32[4] get-tuple-element(w), index=1
"""


def loop(turns: int, used: str = "x", result: str = " ROOT v = f32[4] negate(u)") -> Module:
    text = BODY.format(state=STATE, turns=turns) + result
    return module_of(text, CALLEES.format(state=STATE, used=used, turns=turns))


def the_while(module: Module) -> Instruction:
    return next(i for i in module.entry.instructions if i.opcode == "while")


def test_no_turn_and_one() -> None:
    tidy = (SimplifyTuples(), DeadCode())
    assert opcodes(assert_unchanged(loop(0), SimplifyWhileLoops(), *tidy)) == ["negate"]
    made = assert_unchanged(loop(1), SimplifyWhileLoops(), Inline(), *tidy)
    assert opcodes(made) == ["add", "negate"]


def test_what_nothing_reads_is_not_carried() -> None:
    made = assert_unchanged(loop(3), SimplifyWhileLoops())
    assert [str(s) for s in the_while(made).shape.elements] == ["s32[]", "f32[4]"]
    assert trip_count(the_while(made)) == 3
    assert not SimplifyWhileLoops().run(made)


def test_what_the_body_needs_is_carried() -> None:
    made = assert_unchanged(loop(3, used="k"), SimplifyWhileLoops())
    assert len(the_while(made).shape.elements) == 3
    made = assert_unchanged(loop(3, used="d"), SimplifyWhileLoops())
    assert len(the_while(made).shape.elements) == 3


def test_what_no_turn_changes_is_read_before() -> None:
    result = " q = f32[4] get-tuple-element(w), index=2\n ROOT v = f32[4] subtract(u, q)"
    made = assert_unchanged(loop(3, result=result), SimplifyWhileLoops())
    assert len(the_while(made).shape.elements) == 2
    assert made.entry.result.operands[1].opcode == "parameter"


def test_constants_move_into_the_loop() -> None:
    state = "(s32[], s32[], s32[])"
    callees = (
        f"body {{\n p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
        " s = s32[] get-tuple-element(p), index=1\n x = s32[] get-tuple-element(p), index=2\n j = s32[] add(i, s)\n"
        f" y = s32[] add(x, i)\n ROOT r = {state} tuple(j, s, y)\n}}\n"
        f"cond {{\n p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n n = s32[] constant(9)\n"
        " ROOT r = pred[] compare(i, n), direction=LT\n}"
    )
    body = (
        f" z = s32[] constant(0)\n two = s32[] constant(2)\n a = s32[] parameter(0)\n t = {state} tuple(z, two, a)\n"
        f" w = {state} while(t), condition=cond, body=body\n ROOT r = s32[] get-tuple-element(w), index=2"
    )
    made = assert_unchanged(module_of(body, callees), SimplifyWhileLoops(), AnnotateTripCounts())
    assert len(the_while(made).shape.elements) == 2
    assert trip_count(the_while(made)) == 5


def test_effects_and_whole_results_stay() -> None:
    whole = " ROOT v = (f32[4], " + STATE + ") tuple(u, w)"
    assert not SimplifyWhileLoops().run(loop(3, result=whole))
    effect = loop(0)
    body = next(c for c in effect.computations if c.name == "cond")
    body.instructions[0].attributes["frontend_attributes"] = "{}"
    call = Instruction("noise", "custom-call", body.instructions[1].shape, [], {"custom_call_target": "f"})
    call.attributes["custom_call_has_side_effect"] = True
    body.instructions.insert(0, call)
    SimplifyWhileLoops().run(effect)
    assert any(i.opcode == "while" for i in effect.entry.instructions)


@pytest.mark.parametrize("count", range(3))
def test_a_loop_that_runs_for_its_effects_alone_carries_nothing(count: int) -> None:
    state = f"({', '.join(['f32[4]'] * count)})"
    elements = "".join(f" x{k} = f32[4] get-tuple-element(s), index={k}\n" for k in range(count))
    callees = (
        f"cond {{\n s = {state} parameter(0)\n t = token[] after-all()\n i = (pred[], token[]) infeed(t)\n"
        " ROOT more = pred[] get-tuple-element(i), index=0\n}\n"
        f"body {{\n s = {state} parameter(0)\n{elements}"
        f" ROOT r = {state} tuple({', '.join(f'x{k}' for k in range(count))})\n}}"
    )
    body = (
        f" a = f32[4] parameter(0)\n t = {state} tuple({', '.join('a' * count)})\n"
        f" w = {state} while(t), condition=cond, body=body\n ROOT r = f32[4] negate(a)"
    )
    module = module_of(body, callees)
    assert SimplifyWhileLoops().run(module) == (count > 0)
    verify(module)
    assert not the_while(module).shape.elements


@pytest.mark.parametrize(("start", "bound", "t"), [(0, 100, "s8"), (100, 127, "s8"), (250, 255, "u8")])
def test_counters_of_any_width(start: int, bound: int, t: str) -> None:
    state = f"({t}[])"
    callees = (
        f"body {{\n p = {state} parameter(0)\n i = {t}[] get-tuple-element(p), index=0\n s = {t}[] constant(3)\n"
        f" j = {t}[] add(i, s)\n ROOT r = {state} tuple(j)\n}}\n"
        f"cond {{\n p = {state} parameter(0)\n i = {t}[] get-tuple-element(p), index=0\n n = {t}[] constant({bound})\n"
        " ROOT r = pred[] compare(i, n), direction=LT\n}"
    )
    body = f" z = {t}[] constant({start})\n t = {state} tuple(z)\n ROOT w = {state} while(t), condition=cond, body=body"
    module = module_of(body, callees)
    AnnotateTripCounts().run(module)
    turns = -(-(bound - start) // 3)
    fits = start + 3 * turns <= {"s8": 127, "u8": 255}[t]
    assert trip_count(the_while(module)) == (turns if fits else None)


def test_folding_before_simplifying() -> None:
    made = assert_unchanged(loop(3), FoldConstants(), SimplifyWhileLoops(), DeadCode())
    assert len(the_while(made).shape.elements) == 2
