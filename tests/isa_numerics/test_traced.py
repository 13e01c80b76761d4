"""Micro-operations as machine code against numpy: every one that can be traced, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.microops import MICROOPS
from systolith.isa.native.library import I32, I64, Library, loop, pointer
from systolith.isa.native.traced import Symbol, UntraceableError
from systolith.isa.numerics.alu import RULES
from systolith.isa.numerics.images import U32, canonical
from tests.isa_numerics.traceable import TRACED, UNTRACEABLE

_VECTOR = ir.VectorType(I32, 16)
_COUNT = 1 << 14
_SPECIAL = np.array(
    [
        *(0, 1, 2, 31, 32, 33, 0x007FFFFF, 0x00800000, 0x3EFFFFFF, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40200000),
        *(0x42B17218, 0x4F000000, 0x4F800000, 0x5F000000, 0x7F7FFFFF, 0x7F800000, 0x7FA12345, 0x7FC00000, 0x7FFFFFFF),
        *(0x80000000, 0x80000001, 0xBF800000, 0xC2AEAC50, 0xCF000000, 0xFF800000, 0xFFC00001, 0xFFFFFFFF),
    ],
    np.uint32,
)


def _each(op: str, b: ir.IRBuilder, source: Any, target: Any) -> None:
    """Apply `op` to its operands, one array after the other at `source`."""

    def place(base: Any, i: Any, array: int = 0) -> Any:
        return b.bitcast(b.gep(pointer(b, base, I32), [b.add(i, I64(array * _COUNT))]), _VECTOR.as_pointer())

    with loop(b, I64(_COUNT), 16) as i:
        args: Any = [Symbol(b, b.load(place(source, i, k), align=4), U32) for k in range(MICROOPS[op].sources)]
        out: Any = RULES[op].function(*args)
        b.store(out.value, place(target, i), align=4)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        bodies: dict[str, tuple[int, Callable[..., None]]] = {op: (2, partial(_each, op)) for op in TRACED}
        return Library(bodies, __file__)


@pytest.mark.parametrize("op", TRACED)
def test_traced_is_what_numpy_computes(op: str, library: Library) -> None:
    rule, arity, rng = RULES[op], MICROOPS[op].sources, np.random.default_rng(len(op))
    pool = np.concatenate(
        [
            _SPECIAL,
            rng.integers(0, 2**32, 4000, np.uint32),
            *((rng.standard_normal(4000) * s).astype(np.float32).view(np.uint32) for s in (1, 50, 1e-38)),
            rng.integers(0, 40, 1000, np.uint32),
        ]
    )
    args = rng.choice(pool, (arity, _COUNT))
    grid = np.array(list(product(_SPECIAL, repeat=min(arity, 2))), np.uint32).T  # every pair
    args[: len(grid), : grid.shape[1]] = grid
    out = np.empty(_COUNT, np.uint32)
    library[op](args.ctypes.data, out.ctypes.data)
    with np.errstate(all="ignore"):
        want = rule.function(*args)
    if rule.gives_raw:
        out, want = canonical(out), canonical(want)
    different = np.flatnonzero(out != want)
    assert not len(different), [hex(v) for v in (*args[:, different[0]], out[different[0]], want[different[0]])]


@pytest.mark.parametrize("op", sorted(UNTRACEABLE))
def test_what_cannot_be_traced_says_so(op: str) -> None:
    with pytest.raises(UntraceableError):
        Library({op: (2, partial(_each, op))}, __file__)
