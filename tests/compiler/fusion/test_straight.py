"""Long straight code in pieces: a chain of any length compiles in time that grows with it, to the same bits."""

from __future__ import annotations

import numpy as np

from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.straight import LONG, MOST
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group, read_groups
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.kernel import MAX_STREAMS
from tests.compiler.machine import check

# The middle leaves the code (a reverse) and comes back to it; an odd shape; a value that the result needs, too.
TEXT = """HloModule m
ENTRY e {
 x = f64[3,1,7] parameter(0)
 y = f64[3,1,7] parameter(1)
 s = f64[7] parameter(2)
 t = f64[3,1,7] broadcast(s), dimensions={2}
 a = f64[3,1,7] multiply(x, y)
 b = f64[3,1,7] add(a, t)
 c = f64[3,1,7] reverse(b), dimensions={0}
 d = f64[3,1,7] subtract(c, a)
 e = f64[3,1,7] multiply(d, d)
 f = f64[3,1,7] add(e, b)
 ROOT r = (f64[3,1,7], f64[3,1,7]) tuple(f, b)
}
"""


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(dims) for dims in ((3, 1, 7), (3, 1, 7), (7,))]


def test_pieces_are_groups_that_kernels_have_room_for() -> None:
    module = canonicalise(parse_hlo(TEXT))
    before = evaluate(module, *arguments())
    Fuse().run(module)
    verify(module)
    pieces = [i for i in module.entry.instructions if isinstance(i, Group) and i.name.endswith(".piece")]
    assert len(pieces) > 3
    assert sum(len(p.body.instructions) for p in pieces) > 2 * LONG
    for p in pieces:
        assert len(p.operands) + len(list(p.shape.leaves())) <= MAX_STREAMS
        assert sum(i.opcode not in ("reshape", "broadcast", "constant") for i in p.body.instructions) <= 2 * MOST
    for a, b in zip(before, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(a, b)
    again = read_groups(parse_hlo(print_hlo(module)))
    assert print_hlo(again) == print_hlo(module)


def test_on_the_chip() -> None:
    check(TEXT, arguments(), "tiny", most=0.0)


def test_results_stand_behind_their_group() -> None:
    module = canonicalise(parse_hlo(TEXT))
    Fuse().run(module)
    order = {i: n for n, i in enumerate(module.entry.instructions)}
    for i in module.entry.instructions:
        if isinstance(i, Group) and i.shape.is_tuple:
            count = len(i.shape.elements)
            assert sorted(order[u] - order[i] for u in module.entry.users()[i]) == list(range(1, count + 1))
