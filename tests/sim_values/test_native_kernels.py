"""Kernels as machine code against numpy, to the bit; and which kernels are left to numpy."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.pattern import Coord
from systolith.sim import kernels, native_kernels
from tests.examples import examples
from tests.sim_values.build import Builder
from tests.sim_values.plain_kernels import CHIP, machine_for, plain_kernel

COPY = [("ld", 1, (), 0), ("st", -1, (1,), 1)]
ROWS = ((3, 1, 64), (256, 0, 4))
"""Counts and strides of three vectors side by side."""


@pytest.fixture(autouse=True, scope="module")
def _native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every kernel is worth it, and none is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_kernels, "WORTH", 0)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def agree(b: Builder, seed: int = 0) -> bool:
    """Whether there is a native call; if so it leaves numpy's values."""
    ours, theirs, instr = machine_for(b, seed), machine_for(b, seed), b.program.code[0]
    with np.errstate(all="ignore"):
        if not native_kernels.call(kernels.prepare(ours, instr)):
            return False
        kernels.run(kernels.prepare(theirs, instr))
    assert np.array_equal(ours.vmem, theirs.vmem)
    return True


def copies(
    *streams: tuple[str, Sequence[int], Sequence[int], int], body: Any = COPY, coords: Sequence[Coord] = ()
) -> Builder:
    """A kernel over streams: type, counts, strides, base."""
    b = Builder(CHIP)
    made = [b.vmem(b.pattern(dtype, counts, strides, coords), base) for dtype, counts, strides, base in streams]
    b.run_kernel(b.kernel(body), streams[0][1][:-2], made)
    return b


@examples(10, 60)
@given(st.integers(0, 2**32))
def test_plain_kernels(seed: int) -> None:
    assert agree(plain_kernel(seed), seed)


def test_elements_in_place() -> None:
    assert agree(copies(("f32", *ROWS, 512), ("f32", *ROWS, 512), body=[COPY[0], ("neg.f32", 1, (1,)), COPY[1]]))


def test_a_shift_in_place_is_left_to_numpy() -> None:
    assert not agree(copies(("f32", *ROWS, 512), ("f32", *ROWS, 516)))


@pytest.mark.parametrize(("gap", "native"), [(256, True), (512, True), (128, False), (1024, False), (-256, True)])
def test_streams_in_the_gaps_of_a_store(gap: int, native: bool) -> None:
    """Vectors 1,024 bytes apart of 256 bytes each: another stream's may lie between them."""
    rows = ((3, 1, 64), (1024, 0, 4))
    body = [COPY[0], ("neg.f32", 1, (1,)), COPY[1], ("ld", 2, (), 2), ("abs.f32", 2, (2,)), ("st", -1, (2,), 3)]
    streams = [("f32", *rows, base) for base in (9216, 1024, 9472, 1024 + gap)]
    assert agree(copies(*streams, body=body)) is native


def test_stores_to_one_address_are_left_to_numpy() -> None:
    assert not agree(copies(("f32", *ROWS, 512), ("f32", (3, 1, 64), (0, 0, 4), 9000)))
    assert not agree(copies(("f32", *ROWS, 512), ("f32", (3, 1, 64), (256, 0, 0), 9000)))
    assert not agree(copies(("f32", *ROWS, 512), ("f32", (3, 1, 64), (64, 0, 4), 9000)))


@pytest.mark.parametrize("dtype", ["s8", "pred", "f16", "f8e4m3fn"])
def test_other_types_are_left_to_numpy(dtype: str) -> None:
    assert not agree(copies((dtype, (3, 1, 64), (64, 0, 1), 512), ("f32", *ROWS, 9000)))


def test_bounds_along_lanes_are_left_to_numpy() -> None:
    lanes = (Coord((0, 0, 1), 0, 0, 40, 1, 0, -1),)
    assert not agree(copies(("f32", *ROWS, 512), ("f32", *ROWS, 9000), coords=lanes))
    rows = (Coord((1, 0, 0), 0, 1, 3, 1, 0, -1),)
    assert agree(copies(("f32", *ROWS, 512), ("f32", *ROWS, 9000), coords=rows))


def test_a_kernel_is_compiled_once_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    b = copies(("f32", *ROWS, 512), ("f32", *ROWS, 9000), body=[COPY[0], ("abs.f32", 1, (1,)), COPY[1]])
    monkeypatch.setattr(native_kernels, "WORTH", 2 * 3 * (3 * 64 + native_kernels._STEP))
    machine = machine_for(b, 0)
    assert [native_kernels.call(kernels.prepare(machine, b.program.code[0])) for _ in range(3)] == [False, True, True]


def _abs() -> Builder:
    return copies(("f32", *ROWS, 512), ("f32", *ROWS, 9000), body=[COPY[0], ("abs.f32", 1, (1,)), COPY[1]])


def test_what_a_cache_knows_by_identity_lives_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cache is emptied, another kernel must not come to be where the one of an entry left was."""
    b = _abs()
    machine = machine_for(b, 0)
    run = kernels.prepare(machine, b.program.code[0])
    code = weakref.ref(run.code)
    remember = machine.remember

    def emptied(key: Any, value: Any) -> None:
        machine.cache.clear()
        remember(key, value)

    monkeypatch.setattr(machine, "remember", emptied)
    assert native_kernels.call(run)
    del run
    assert [key[0] for key in machine.cache] == ["form"]
    assert code() is not None


def test_a_call_holds_its_code_while_kernels_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_kernels, "_MAX_KERNELS", 1)
    b = _abs()
    machine = machine_for(b, 0)
    held: list[object] = []
    machine.calls = cast(Any, lambda function, arguments, keep: held.append((weakref.ref(function), keep)))
    assert native_kernels.call(kernels.prepare(machine, b.program.code[0]))
    other = copies(("f32", *ROWS, 512), ("f32", *ROWS, 9000), body=[COPY[0], ("neg.f32", 1, (1,)), COPY[1]])
    assert agree(other)
    assert len(native_kernels._KERNELS) == 1
    machine.cache.clear()
    ((function, _),) = cast(Any, held)
    assert function() is not None
    held.clear()
    del _
    assert function() is None
