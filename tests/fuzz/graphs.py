"""HLO graphs that the chip can run: chip, reference evaluator and XLA's CPU backend agree within the error bounds.

Beyond `random_modules` and `random_limits`: dimensions of size 0, every element type, layouts, chains of
hundreds of operations, scans, reducers of other forms.  Floats hold small integers, so that nearly every result is
exact.  Where XLA's CPU backend is known to differ, it is not asked: `xla_faults.py` lists where and why.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.compiler.options import Options
from systolith.isa.chip import Chip, load_chip
from systolith.isa.errors import SystolithError
from tests.compiler.driver.random_limits import KINDS as LIMITS
from tests.compiler.driver.random_limits import WideBody
from tests.compiler.driver.random_modules import KINDS, filled
from tests.compiler.driver.random_values import TYPES as COMMON
from tests.compiler.driver.random_values import Text, kind
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, assert_within, run
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.xla_faults import known_fault

TYPES = (*COMMON, *COMMON, "f16", "f8e4m3fn", "f8e5m2", "s4", "u4", "u8", "s16", "u16", "u32")

TINY = load_chip("tiny")
CHIPS = (
    *(replace(TINY, vmem=replace(TINY.vmem, bytes=kib << 10)) for kib in (16, 32, 256, 256)),
    load_chip("small"),
    load_chip("tpu_v3"),
)
CHAINS = (10, 10, 30, 30, 60, 300)


class GraphBody(WideBody):
    """A computation of all that the compiler lowers."""

    types = TYPES

    def makers(self) -> Sequence[str]:
        return (*KINDS, *LIMITS, *KINDS_HERE)

    def make_chain(self) -> None:
        """One elementwise operation after another."""
        v = self.pick(lambda v: prod(v.dims) < 300 and v.t != "pred")
        if v:
            other = self.like(v.t, v.dims)
            ops = ("maximum", "minimum", "subtract") if kind(v.t) == "float" else ("maximum", "xor", "add")
            for n in range(self.one(CHAINS) if self.depth == 0 else 10):
                op = self.one(ops)
                v = self.add(v.t, v.dims, f"{op}({v.name}, {other.name})", max(v.most, other.most) + 4)
                if n % 8 == 7 and kind(v.t) == "float":
                    v = self.clamped(v, 8)

    def make_bitcast(self) -> None:
        """The bytes of a value in another shape and layout."""
        v = self.pick(lambda v: len(v.dims) > 0 and prod(v.dims) > 0)
        if v:
            dims = [v.dims[k] for k in self.rng.permutation(len(v.dims))]
            order = ",".join(map(str, self.rng.permutation(len(dims)).tolist()))
            name, shown = self.text.fresh("v"), ",".join(map(str, dims))
            self.lines.append(f"{name} = {v.t}[{shown}]{{{order}}} bitcast({v.name})")
            self.add(v.t, dims, f"copy({name})", v.most)

    def make_scan(self) -> None:
        """A window as long as a dimension, over the elements before or after."""
        v = self.pick(lambda v: 0 < len(v.dims) < 4 and 0 < prod(v.dims) < 500)
        if v:
            d = self.roll(0, len(v.dims) - 1)
            n, (name, op, start) = v.dims[d], self.fold(v.t, windowed=True)
            sizes = "x".join(str(n if k == d else 1) for k in range(len(v.dims)))
            edges = self.one((f"{n - 1}_0", f"0_{n - 1}"))
            pads = "x".join(edges if k == d else "0_0" for k in range(len(v.dims)))
            code = f"reduce-window({v.name}, {start.name}), window={{size={sizes} pad={pads}}}, to_apply={name}"
            self.add(v.t, v.dims, code, max(v.most, start.most) * (n + 1 if op == "add" else 1))

    def make_reducer(self) -> None:
        """A reduction whose reducer is no single operation of its parameters."""
        v = self.pick(lambda v: len(v.dims) > 0 and v.t != "pred")
        if v:
            name, t, k = self.text.fresh("fold"), v.t, self.roll(0, 3)
            result = self.one(
                (
                    f"ROOT r = {t}[] maximum(a, k)",
                    f"ROOT r = {t}[] maximum(b, a)",
                    f"m = {t}[] minimum(b, b)\n ROOT r = {t}[] minimum(m, a)",
                    f"m = {t}[] maximum(a, b)\n ROOT r = {t}[] maximum(m, k)",
                    f"ROOT r = {t}[] copy(k)",
                )
            )
            given = f" a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n k = {t}[] constant({k})\n"
            self.text.computations.append(f"{name} {{\n{given} {result}\n}}\n")
            over = [d for d in range(len(v.dims)) if self.roll(0, 1)] or [0]
            kept = [n for d, n in enumerate(v.dims) if d not in over]
            start = self.like(t, ())
            code = f"reduce({v.name}, {start.name}), dimensions={{{','.join(map(str, over))}}}, to_apply={name}"
            self.add(t, kept, code, max(v.most, start.most, k))

    def make_bits(self) -> None:
        """The bits of a value as another type of the same width, and back."""
        for widths in (("f32", "s32", "u32"), ("bf16", "f16", "s16", "u16"), ("s8", "u8")):
            v = self.pick(lambda v, widths=widths: v.t in widths)  # type: ignore[misc]
            if v:
                other = self.one(widths)
                there = self.text.fresh("v")
                dims = ",".join(map(str, v.dims))
                self.lines.append(f"{there} = {other}[{dims}] bitcast-convert({v.name})")
                self.add(v.t, v.dims, f"bitcast-convert({there})", v.most)


KINDS_HERE = ("make_chain", "make_bitcast", "make_scan", "make_reducer", "make_bits")


def random_graph(seed: int) -> str:
    """A module's text; the same for the same seed."""
    rng = np.random.default_rng(seed)
    return filled(GraphBody(Text(rng, empty=seed % 4 == 0)), 10)[0]


class Graphs(Fuzzer):
    name, suffix, seconds, gigabytes, refuses = "graphs", ".hlo", 60, 6, False

    def case(self, seed: int) -> bytes:
        return random_graph(seed).encode()

    def check(self, case: bytes) -> None:
        number, module = zlib.crc32(case), parse_hlo(case.decode())
        args = arguments(module, number)
        chip, fault = CHIPS[number % len(CHIPS)], known_fault(module)  # compiling changes the module
        try:
            wanted = bounded(module.entry, args, "highest")
            found = on_chip(module, chip, args)
        except SystolithError as error:
            raise AssertionError(f"refused: {error}") from error
        if fault is None:
            assert_within(run_xla(case.decode(), *args), wanted, "XLA: ")
        assert_within(found, wanted, f"{chip.name}: ")

    def describe(self, case: bytes) -> str:
        return f"{case.count(b' = ')} instructions"


def on_chip(module: Module, chip: Chip, args: list[Array]) -> list[Array]:
    """Results of the module on a chip, in hostile mode."""
    return run(compile_module(module, chip, Options(precision="highest")).program, chip, args)


def arguments(module: Module, seed: int) -> list[Array]:
    """Small integers."""
    rng = np.random.default_rng(seed)
    found = []
    for p in module.entry.parameters:
        low, high = (0, 2) if p.shape.dtype.name == "pred" else (-4, 5)
        found.append(np.asarray(rng.integers(low, high, p.dims)).astype(p.shape.dtype.stored))
    return found
