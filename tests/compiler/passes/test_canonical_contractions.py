"""Dots and convolutions in canonical form, against XLA on the module before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.passes.convolution_canonical import CanonicaliseConvolutions
from systolith.compiler.passes.dot_canonical import DecomposeDots
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of
from tests.examples import examples

SIZES = (2, 3, 4, 5, 6)


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


CONVOLUTIONS = {
    "as torch": ("f32[2,3,8,9]", "f32[4,3,3,2]", "f32[2,4,6,8]", "size=3x2", "bf01_oi01->bf01"),
    "no space": ("f32[3,4]", "f32[4,5]", "f32[5,3]", "", "bf_io->fb"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_have_the_form(name: str) -> None:
    a, b, c, window, labels = CONVOLUTIONS[name]
    space = f" window={{{window}}}," if window else ""
    module = module_of(
        f" a = {a} parameter(0)\n b = {b} parameter(1)\n ROOT r = {c} convolution(a, b),{space} dim_labels={labels}"
    )
    rng = np.random.default_rng(0)
    arguments = [rng.integers(-4, 5, p.dims).astype(np.float32) for p in module.entry.parameters]
    made = assert_unchanged(module, CanonicaliseConvolutions(), arguments=arguments)
    (convolution,) = [i for i in made.entry.instructions if i.opcode == "convolution"]
    rank = len(convolution.conv_dims.input_spatial)
    assert convolution.conv_dims.input_spatial == tuple(range(1, rank + 1))
    assert (convolution.conv_dims.kernel_input, convolution.conv_dims.kernel_output) == (rank, rank + 1)
    assert not CanonicaliseConvolutions().run(made)
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
