from __future__ import annotations

import pytest

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.passes.registry import PASSES, find_pass
from systolith.compiler.passes.rewrite import Names, Rewriter
from systolith.compiler.passes.simplify.control import RemoveControlDependencies
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.inline import Inline
from tests.compiler.passes.texts import module_of

ORDERED = """HloModule m

ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] copy(x)
  b = f32[4] copy(x), control-predecessors={a}
  ROOT r = f32[4] add(a, b)
}
"""


def test_names_are_unique_in_constant_time() -> None:
    names = Names(["a", "a.1"])
    assert [names.fresh("a") for _ in range(3)] == ["a.2", "a.3", "a.4"]
    assert names.fresh("b") == "b"
    many = Names([])
    assert len({many.fresh("q") for _ in range(50_000)}) == 50_000


def test_replacements_take_over_metadata_and_sharding() -> None:
    body = (
        ' x = s32[4] parameter(0)\n ROOT r = s32[4] negate(x), metadata={op_name="here"}, sharding={replicated},'
        ' frontend_attributes={a="b"}'
    )
    module = module_of(body)
    assert Rewriter(module.entry).sweep(lambda r, i: r.emit("not", i.operands[0]) if i.opcode == "negate" else None)
    assert set(module.entry.result.attributes) == {"metadata", "sharding", "frontend_attributes"}


def test_what_a_refused_rule_made_is_gone() -> None:
    module = module_of(" x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x)")
    other = " x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x)"
    assert not Rewriter(module.entry).sweep(lambda r, i: r.constant(0, i.shape.dtype) if i.opcode == "negate" else None)
    assert print_hlo(module) == print_hlo(module_of(other))


@pytest.mark.parametrize("name", sorted(PASSES.keys() - {"control-dep-remover"}))
def test_control_dependencies_stay(name: str) -> None:
    module = parse_hlo(ORDERED)
    find_pass(name).run(module)
    verify(module)
    b = next(i for i in module.entry.instructions if i.name == "b")
    assert b.attributes["control-predecessors"] == ("a",)
    assert "a" in {i.name for i in module.entry.instructions}


def test_dead_code_that_orders_stays() -> None:
    text = ORDERED.replace("add(a, b)", "negate(x)")
    module = parse_hlo(text)
    assert not DeadCode().run(module)
    assert RemoveControlDependencies().run(module)
    assert DeadCode().run(module)
    assert len(module.entry.instructions) == 2


def test_order_of_calls_is_the_order_of_what_they_do() -> None:
    before = "f {\n p = f32[4] parameter(0)\n q = f32[4] negate(p)\n ROOT s = f32[4] abs(q)\n}"
    body = (
        " x = f32[4] parameter(0)\n a = f32[4] call(x), to_apply=f\n"
        " b = f32[4] call(x), to_apply=f, control-predecessors={a}\n ROOT r = f32[4] add(a, b)"
    )
    module = module_of(body, before)
    Inline().run(module)
    verify(module)
    names = {i.name: i.attributes.get("control-predecessors") for i in module.entry.instructions}
    assert names["q"] is None
    assert names["q.1"] == names["s.1"] == ("q", "s")
