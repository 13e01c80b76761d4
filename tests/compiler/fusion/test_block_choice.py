"""What blocks are chosen: by estimated cycles, of all forms that they can have."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.lower import block_choice
from systolith.compiler.lower.block_choice import AT_ONCE, MORE_AT_ONCE, order_of_some
from systolith.compiler.schedule.operation_times import NO_LIMIT, Stage
from systolith.compiler.tile.ir import Buf
from systolith.compiler.tiling.block_sizes import WHOLE, Form
from systolith.isa.chip import load_chip
from systolith.isa.instruction import Space
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import BATCH, attention
from tests.compiler.fusion.test_interleave import op
from tests.compiler.machine import compare, compiled, with_vmem

TINY = load_chip("tiny")


def test_one_head_whose_scores_fit_is_tried_as_it_is_and_in_blocks_of_queries() -> None:
    chip = with_vmem(TINY, 8 << 10)
    rng = np.random.default_rng(4)
    wide = [rng.normal(size=(6, 16, 8)).astype(np.float32) for _ in range(3)]
    result = compare(attention(6, 16, 8), [*wide, rng.normal(size=(16, 16)).astype(np.float32)], chip)
    outer = next(d for d in result.explain if d.kind == "blocks")
    tried = {outer.chosen: outer.numbers, **{a.what: a.numbers for a in outer.rejected}}
    assert all("cycles" in tried[name] for name in ("blocks of 1", f"blocks of 1{WHOLE}"))


def test_a_head_made_at_once_has_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_choice, "_forms", lambda lowering, group, size: [Form(size, whole=size == 1)])
    rng = np.random.default_rng(5)
    wide = [rng.normal(size=(6, 32, 8)).astype(np.float32) for _ in range(3)]
    chip = with_vmem(TINY, 32 << 10)
    result = compare(attention(6, 32, 8), [*wide, rng.normal(size=(32, 32)).astype(np.float32)], chip)
    assert [d.chosen for d in result.explain if d.kind == "blocks"] == [f"blocks of 1{WHOLE}"]


def test_units_have_as_many_products_where_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three products a block: the first is on the one unit, then on the other."""
    monkeypatch.setattr(block_choice, "_forms", lambda lowering, group, size: [Form(size, apart=True)])
    text = attention(12, 256, 64).replace("ROOT r =", "r =").removesuffix("}\n")
    text += (
        f"\n o2 = f32[12,256,64] dot(p, k), {BATCH}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}\n"
        " ROOT t = (f32[256,12,64], f32[12,256,64]) tuple(r, o2)\n}\n"
    )
    chip = load_chip("tpu_v3")
    made = compiled(text, chip)
    assert any(d.kind == "blocks" and d.chosen.endswith("a matrix unit for each product") for d in made.explain)
    units = simulate(made.program, chip, mode="time").to_json()["units"]
    assert units["s0"]["busy"] == units["s1"]["busy"]


def chains(stages: int, wait: int) -> list[list[Stage]]:
    """Blocks of operations in turn on two units, each of which waits for the one before."""
    made = []
    for n in range(24):
        held = Buf(f"b{n}", Space.VMEM, 100)
        queues = ("vpu", "xlu") * (stages // 2)
        made.append([Stage((op(queue, 10, (held,), (held,), wait),)) for queue in queues])
    return made


def test_more_blocks_are_in_the_making_where_no_unit_is_busy() -> None:
    order, most = order_of_some(chains(8, 60), (), 10_000, NO_LIMIT)
    assert most == MORE_AT_ONCE > AT_ONCE
    assert order.busiest == 24 * 4 * 10


def test_no_more_where_a_unit_is_busy_or_there_is_no_room() -> None:
    assert order_of_some(chains(8, 10), (), 10_000, NO_LIMIT)[1] == AT_ONCE
    assert order_of_some(chains(8, 60), (), 100 * AT_ONCE, NO_LIMIT)[1] == AT_ONCE
    assert order_of_some(chains(8, 60), (), 100 * AT_ONCE + 100, NO_LIMIT)[1] == AT_ONCE + 1
    assert order_of_some(chains(8, 60), (), 250, NO_LIMIT)[1] == 2
