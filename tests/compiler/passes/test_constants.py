from __future__ import annotations

from systolith.compiler.passes.simplify.constants import FoldConstants
from tests.compiler.passes.texts import after, module_of


def test_scalars_fold() -> None:
    body = " a = f32[] constant(3)\n b = f32[] constant(4)\n c = f32[] multiply(a, b)\n ROOT d = f32[] sqrt(c)"
    assert after(FoldConstants(), body)[-1] == "ROOT d = f32[] constant(3.46410155)"


def test_broadcasts_and_large_results_stay() -> None:
    body = " a = f32[] constant(3)\n ROOT b = f32[64] broadcast(a), dimensions={}"
    assert not FoldConstants().run(module_of(body))
    body = " a = s32[4] constant({1, 2, 3, 4})\n ROOT b = s32[4] negate(a)"
    assert not FoldConstants(limit=3).run(module_of(body))
    assert after(FoldConstants(), body)[-1] == "ROOT b = s32[4] constant({-1, -2, -3, -4})"


def test_64_bit_values_fold_away() -> None:
    body = (
        " i = u64[3] iota(), iota_dimension=0\n c = u64[] constant(32)\n b = u64[3] broadcast(c), dimensions={}\n"
        " s = u64[3] shift-right-logical(i, b)\n ROOT r = u32[3] convert(s)"
    )
    assert after(FoldConstants(), body)[-1] == "ROOT r = u32[3] constant({0, 0, 0})"
