"""Placement: values that wait long for their next use leave VMEM to what runs meanwhile."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.memory.residency import CACHED_SHARE, LONG, ROOM_BITS, TILES, WAITING_SHARE, Placement, place
from systolith.compiler.ops.group import Group
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.chip import load_chip
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import check, with_vmem

Array = np.ndarray[Any, np.dtype[Any]]

CHIP = load_chip("tiny")
ROWS = 192
HELD = 7
"""Values that VMEM holds."""


def chain(products: int, root: str = "late") -> str:
    """`early`, which is used again after so many products, or only a result."""
    square, flat = "f32[16,16]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    wide = f"f32[{ROWS},16]"
    lines = [f" p{n} = {wide} dot({f'p{n - 1}' if n else 'near'}, w), {flat}" for n in range(products)]
    last = f"p{products - 1}" if products else "near"
    return f"""HloModule m
ENTRY e {{
 x = {wide} parameter(0)
 w = {square} parameter(1)
 early = {wide} dot(x, w), {flat}
 near = {wide} dot(early, w), {flat}
{chr(10).join(lines)}
 late = {wide} {"add(early, " + last + ")" if root == "late" else "negate(" + last + ")"}
 ROOT t = ({wide}, {wide}) tuple(late, {"late" if root == "late" else "early"})
}}
"""


def placed(text: str) -> tuple[Module, Placement]:
    grouped = parse_hlo(text)
    for make in GROUPING.values():
        run_pass(grouped, make(CHIP, Options()))
    return grouped, place(grouped, 4 * HELD * ROWS * 16, TILES, (), ())


def held(sizes: list[int]) -> str:
    """Products with weights of so many columns, of which all results are used in the end."""
    flat = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    given = [f" w{n} = f32[16,{size}] parameter({n + 1})" for n, size in enumerate(sizes)]
    made = [f" p{n} = f32[{ROWS},{size}] dot(x, w{n}), {flat}" for n, size in enumerate(sizes)]
    shapes = ", ".join(f"f32[{ROWS},{size}]" for size in sizes)
    names = ", ".join(f"n{n}" for n in range(len(sizes)))
    used = [f" n{n} = f32[{ROWS},{size}] sine(p{n})" for n, size in enumerate(sizes)]
    lines = "\n".join([*given, *made, *reversed(used)])
    return f"""HloModule m
ENTRY e {{
 x = f32[{ROWS},16] parameter(0)
{lines}
 ROOT t = ({shapes}) tuple({names})
}}
"""


@pytest.mark.parametrize("sizes", [[24, 28, 12], [12, 28, 4, 8], [20, 24, 40, 4, 32, 16], [16] * 9])
def test_what_lies_in_hbm_takes_room_from_none(sizes: list[int]) -> None:
    """Nor from groups that come before the one for which it has to leave."""
    module = parse_hlo(held(sizes))
    Fuse().run(module)
    bytes_ = 4 * 4 * ROWS * 16
    first = place(module, bytes_, TILES, (), ())
    again = place(module, bytes_, TILES, first.spilled, ())
    assert first.spilled == again.spilled
    assert first.live == again.live


def spilled(text: str) -> set[str]:
    return {leaf[0].name for leaf in placed(text)[1].spilled}


def test_the_values_are_larger_than_what_may_wait() -> None:
    assert 1 / HELD < WAITING_SHARE < 2 / HELD


@pytest.mark.parametrize(("products", "waits"), [(LONG - 2, False), (LONG + 2, True)])
def test_values_that_wait_long(products: int, waits: bool) -> None:
    """Two that wait are too many, one is not; a third of the room is free in any case."""
    text = chain(products)
    other = f" other = f32[{ROWS},16] dot(early, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n near ="
    both = f" both = f32[{ROWS},16] multiply(early, other)\n late ="
    twice = text.replace(" near =", other).replace("dot(early, w), lhs", "dot(other, w), lhs").replace(" late =", both)
    twice = twice.replace("other = f32[192,16] dot(other,", "other = f32[192,16] dot(early,").replace(
        "add(early,", "add(both,"
    )
    assert not spilled(text) & {"early", "other"}
    assert bool(spilled(twice) & {"early", "other"}) == waits


def test_a_result_does_not_wait() -> None:
    assert "early" not in spilled(chain(LONG + 2, root="result"))


def test_values_on_the_chip() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 16)).astype(np.float32)
    check(chain(LONG + 2), [x, np.eye(16, dtype=np.float32)[::-1].copy()], "tiny")


@pytest.mark.parametrize(("between", "loads"), [(1, 1), (6, 2)])
def test_whole_copies_are_let_go_between_far_uses(between: int, loads: int) -> None:
    """Weights that are used again while later ones take a sixteenth of VMEM are loaded again."""
    square, flat = "f32[32,32]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    names = ["w", *(f"v{n}" for n in range(between)), "w"]
    given = [f" {name} = {square} parameter({n + 1})" for n, name in enumerate(names[:-1])]
    lines = [f" y{n} = {square} dot(y{n - 1}, {name}), {flat}" for n, name in enumerate(names, 1)]
    lines[-1] = " ROOT" + lines[-1]
    text = "\n".join([f"HloModule m\nENTRY e {{\n y0 = {square} parameter(0)", *given, *lines, "}\n"])
    rng = np.random.default_rng(0)
    args: list[Array] = [rng.standard_normal((32, 32), np.float32) for _ in range(len(names))]
    assert CHIP.vmem.bytes == 32 * 32 * 4 * CACHED_SHARE
    made = check(text, args, CHIP)
    assert len(re.findall(r"dma\.load src=Ref\(%w,", made.stages["tile.txt"])) == loads


def room(columns: int) -> tuple[int, int]:
    """Bytes of VMEM and of tiles that a softmax in blocks counts on while a value of so many columns waits."""

    def function(x: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
        early = x @ v
        return jax.nn.softmax(early @ w).T @ early

    shapes = (256, 16), (16, columns), (columns, 64)
    grouped = parse_hlo(hlo(function, [np.zeros(s, np.float32) for s in shapes]))
    chip = with_vmem(CHIP, 1 << 18)
    for make in GROUPING.values():
        run_pass(grouped, make(chip, Options()))
    placement = place(grouped, chip.vmem.bytes, TILES, (), ())
    (blocks,) = [i for i in placement.live if isinstance(i, Group) and i.tiling]
    return chip.vmem.bytes - placement.live[blocks], placement.budget[blocks]


def test_a_little_room_makes_no_difference_to_blocks() -> None:
    """Beside a value that is a little larger they have the same room, and it is within 1/16 of what is free."""
    sizes = range(64, 97, 4)
    rooms = [room(columns) for columns in sizes]
    assert 1 < len(set(rooms)) < len(rooms)
    for (found, budget), columns in zip(rooms, sizes, strict=True):
        free = (1 << 18) - 256 * (4 * 64 + 2 * columns)  # the value is bf16: two products read it
        assert abs(found - free) * (1 << ROOM_BITS) <= free
        assert budget == int(found * TILES.usual)
