"""Dots in canonical form, against XLA on the module before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups.dot_canonical import canonical_dot
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.passes.rewrite import rewrite
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of
from tests.examples import examples

SIZES = (2, 3, 4, 5, 6)


@dataclass(frozen=True)
class DecomposeDots:
    """The rule as a pass."""

    def run(self, module: Module) -> bool:
        return rewrite(module, canonical_dot)


@st.composite
def dots(draw: st.DrawFn) -> str:
    """A dot of s32 with its dimensions in any order."""
    kinds = draw(st.lists(st.sampled_from("bc"), max_size=3))
    lhs = [*enumerate(kinds), *((k + 10, "m") for k in range(draw(st.integers(0, 2))))]
    rhs = [*enumerate(kinds), *((k + 20, "n") for k in range(draw(st.integers(0, 2))))]
    sides = [draw(st.permutations(lhs)), draw(st.permutations(rhs))]
    size = {key: SIZES[key[0] % len(SIZES)] for side in sides for key in side}
    numbers, shapes = [], []
    for name, side in zip(("lhs", "rhs"), sides, strict=True):
        shapes.append([size[key] for key in side])
        for what, kind in (("batch", "b"), ("contracting", "c")):
            dims = [side.index(key) for key in enumerate(kinds) if key[1] == kind]
            if dims:
                numbers.append(f"{name}_{what}_dims={{{','.join(map(str, dims))}}}")
    free = [size[key] for side, kind in zip(sides, "mn", strict=True) for key in side if key[1] == kind]
    out = [size[key] for key in enumerate(kinds) if key[1] == "b"] + free
    a, b, c = (f"s32[{','.join(map(str, dims))}]" for dims in (*shapes, out))
    return f" a = {a} parameter(0)\n b = {b} parameter(1)\n ROOT r = {c} {', '.join(['dot(a, b)', *numbers])}"


@examples(40, 80)
@given(dots())
def test_every_dot_has_the_form(body: str) -> None:
    module = module_of(body)
    made = assert_unchanged(module, DecomposeDots())
    (dot,) = [i for i in made.entry.instructions if i.opcode == "dot"]
    n = len(dot.ints("lhs_batch_dims", ()))
    assert dot.ints("lhs_batch_dims", ()) == dot.ints("rhs_batch_dims", ()) == tuple(range(n))
    assert len(dot.ints("lhs_contracting_dims")) == len(dot.ints("rhs_contracting_dims")) == 1
    assert all(o.shape.rank <= n + 2 for o in dot.operands)
    assert not DecomposeDots().run(made)


def test_dot_as_xla_computes_it() -> None:
    body = (
        " a = f32[3,4,5,2] parameter(0)\n b = f32[5,2,3,7] parameter(1)\n"
        " ROOT r = f32[2,4,7] dot(a, b), lhs_batch_dims={3}, rhs_batch_dims={1}, lhs_contracting_dims={0,2},"
        " rhs_contracting_dims={2,0}, operand_precision={highest,highest}"
    )
    module = module_of(body)
    rng = np.random.default_rng(0)
    arguments = [rng.integers(-4, 5, p.dims).astype(np.float32) for p in module.entry.parameters]
    made = assert_unchanged(module, DecomposeDots(), arguments=arguments)
    for want, got in zip(run_xla(print_hlo(module), *arguments), run_xla(print_hlo(made), *arguments), strict=True):
        np.testing.assert_array_equal(got, want)


def test_canonical_ones_stay() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[2,3] parameter(0)\n  b = f32[3,4] parameter(1)\n"
        "  ROOT r = f32[2,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    module = parse_hlo(text)
    assert not DecomposeDots().run(module)
    assert opcodes(module) == ["dot"]
