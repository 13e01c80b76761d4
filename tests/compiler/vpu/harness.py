"""Compiles the vector groups of a module one by one, runs them on `machine.Machine` and compares with the evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.hlo.ir import Instruction, Literal, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate, evaluate_computation, flatten
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, TileOp
from systolith.compiler.vpu.elementwise import lower_loop
from systolith.compiler.vpu.reduce import lower_reduce
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DType, Kind
from systolith.isa.program import Role
from tests.compiler.vpu.machine import Machine

Values = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Outcome:
    """A group's results on the machine and by the evaluator, and its operations."""

    group: Group
    got: list[Values]
    want: list[Values]
    ops: list[TileOp]

    def assert_same_bits(self) -> None:
        for got, want in zip(self.got, self.want, strict=True):
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=self.group.name)

    def assert_close(self, tolerance: float = 1e-6, rounding: float = 0.0) -> None:
        """Equal for all but floats; those relative to the largest, or within `rounding`."""
        for got, want in zip(self.got, self.want, strict=True):
            if got.dtype.kind in "biu":
                np.testing.assert_array_equal(got, want, err_msg=self.group.name)
                continue
            a, b = got.astype(np.float64), want.astype(np.float64)
            finite = np.isfinite(b)
            np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=self.group.name)
            scale = np.abs(b[finite]).max(initial=1e-30)
            np.testing.assert_allclose(
                a[finite], b[finite], rtol=0, atol=max(tolerance * scale, rounding), err_msg=self.group.name
            )


def bits(x: Values) -> Values:
    """Its bytes, with every NaN as one: arithmetic's NaNs have one pattern on the chip and others on the host."""
    if x.dtype.kind in "biu":
        return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    wide = x.astype(np.float32)
    return np.where(np.isnan(wide), np.float32(np.nan), wide).reshape(-1).view(np.uint32)


def grouped(text: str) -> Module:
    """A module in canonical form, grouped."""
    module = canonicalise(parse_hlo(text))
    return run_passes(module, [Fuse()])


def place(ctx: TileBuilder, name: str, shape: Shape, in_hbm: bool) -> Array:
    if not in_hbm:
        return ctx.array(name, shape.dtype, shape.dims)
    buf = ctx.hbm(name, Role.TEMP, shape.dtype, shape.dims)
    return Array(buf, shape.dtype, shape.dims, dense(shape.dims, shape.dtype.size), (0,) * shape.rank)


def run_group(group: Group, values: Sequence[Literal], chip: str, budget: int, in_hbm: bool) -> Outcome:
    """Lower one group, run it."""
    ctx = TileBuilder(load_chip(chip), budget=budget)
    ctx.group = group
    machine = Machine()
    operands = []
    for o, value in zip(group.operands, values, strict=True):
        array = place(ctx, o.name, o.shape, in_hbm)
        machine.write(array, np.asarray(value))
        operands.append(array)
    results = [place(ctx, f"result{k}", s, in_hbm) for k, s in enumerate(group.shape.leaves())]
    (lower_reduce if group.reduces else lower_loop)(ctx, group, operands, results)
    machine.run(ctx.block)
    want = flatten(evaluate_computation(group.body, list(values)))
    return Outcome(group, [machine.read(a) for a in results], want, list(ctx.block.ops()))


def run_groups(
    text: str, *arguments: Values, chip: str = "tiny", budget: int = 1 << 14, in_hbm: bool = True
) -> Iterator[Outcome]:
    """Every vector group of a module's entry, each on the values that it has there by the evaluator."""
    module = grouped(text)
    values: dict[Instruction, Literal] = {}
    evaluate(module, *arguments, observe=lambda i, v: values.update({i: v}))
    for i in module.entry.instructions:
        if isinstance(i, Group) and i.unit is Unit.VPU:
            yield run_group(i, [values[o] for o in i.operands], chip, budget, in_hbm)


def sample(dtype: DType, dims: tuple[int, ...], seed: int) -> Values:
    """Values of a type: zeros of both signs, infinities and NaN among the floats, limits among the integers."""
    rng = np.random.default_rng(seed)
    if dtype.kind is Kind.PRED:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_float:
        x = (rng.standard_normal(dims) * np.exp2(rng.integers(-3, 4, dims))).astype(np.float32)
        special = np.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5], np.float32)
        x = np.where(rng.random(dims) < 0.15, special[rng.integers(0, len(special), dims)], x)
        return np.asarray(x.astype(dtype.stored))
    least, most = limits(dtype)
    small = rng.integers(max(least, -20), min(most, 20), dims, dtype=np.int64)
    extreme = np.asarray([least, most, 0, 1], np.int64)
    chosen = np.where(rng.random(dims) < 0.2, extreme[rng.integers(0, 4, dims)], small)
    return np.asarray(chosen.astype(dtype.stored))


def limits(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    signed = dtype.kind is Kind.SIGNED
    return (-(1 << (dtype.bits - 1)) if signed else 0), (1 << (dtype.bits - signed)) - 1
