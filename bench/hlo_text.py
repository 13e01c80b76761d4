"""HLO of small workloads, as text: products, copies, an MLP of 8-bit integers."""

from __future__ import annotations

from itertools import pairwise


def product(m: int, k: int, n: int) -> str:
    """A bf16 product M x K x N with a bf16 result."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = [f"a = bf16[{m},{k}] parameter(0)", f"b = bf16[{k},{n}] parameter(1)"]
    return _module("product", [*lines, f"ROOT c = bf16[{m},{n}] dot(a, b), {dims}"])


def copy(elements: int) -> str:
    """A copy of f32 elements."""
    return _module("copy", [f"a = f32[{elements}] parameter(0)", f"ROOT c = f32[{elements}] copy(a)"])


def triad(elements: int) -> str:
    """A + 3 x b of f32 elements."""
    of = f"f32[{elements}]"
    lines = [f"a = {of} parameter(0)", f"b = {of} parameter(1)", "s = f32[] constant(3)"]
    lines += [f"v = {of} broadcast(s), dimensions={{}}", f"m = {of} multiply(b, v)", f"ROOT r = {of} add(a, m)"]
    return _module("triad", lines)


def int8_mlp(batch: int, widths: tuple[int, ...]) -> str:
    """A layer of 8-bit integers for each pair of neighbours: products summed in 32 bits, scaled, clamped to 8 bits."""
    lines = [f"x0 = s8[{batch},{widths[0]}] parameter(0)"]
    for n, (k, m) in enumerate(pairwise(widths), 1):
        last = "ROOT " if n == len(widths) - 1 else ""
        wide, narrow = f"s32[{batch},{m}]", f"s8[{batch},{m}]"
        lines += [
            f"w{n} = s8[{k},{m}] parameter({n})",
            f"d{n} = {wide} dot(x{n - 1}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"h{n} = s32[] constant(9)",
            f"b{n} = {wide} broadcast(h{n}), dimensions={{}}",
            f"r{n} = {wide} shift-right-arithmetic(d{n}, b{n})",
            f"l{n} = s32[] constant(0)",
            f"u{n} = s32[] constant(127)",
            f"c{n} = {wide} clamp(l{n}, r{n}, u{n})",
            f"{last}x{n} = {narrow} convert(c{n})",
        ]
    return _module("int8_mlp", lines)


def _module(name: str, lines: list[str]) -> str:
    return "\n".join([f"HloModule {name}", "", "ENTRY main {", *(f"  {line}" for line in lines), "}", ""])
