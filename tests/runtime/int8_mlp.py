"""An MLP of 8-bit integers, as TPU v1 runs them: products summed in 32 bits, scaled, clamped to 8 bits."""

from __future__ import annotations

from itertools import pairwise


def int8_mlp(batch: int, widths: tuple[int, ...]) -> str:
    """HLO of a layer for each pair of neighbours in `widths`."""
    lines = [f"  x0 = s8[{batch},{widths[0]}] parameter(0)"]
    for n, (k, m) in enumerate(pairwise(widths), 1):
        last = "ROOT " if n == len(widths) - 1 else ""
        wide, narrow = f"s32[{batch},{m}]", f"s8[{batch},{m}]"
        lines += [
            f"  w{n} = s8[{k},{m}] parameter({n})",
            f"  d{n} = {wide} dot(x{n - 1}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  h{n} = s32[] constant(9)",
            f"  b{n} = {wide} broadcast(h{n}), dimensions={{}}",
            f"  r{n} = {wide} shift-right-arithmetic(d{n}, b{n})",
            f"  l{n} = s32[] constant(0)",
            f"  u{n} = s32[] constant(127)",
            f"  c{n} = {wide} clamp(l{n}, r{n}, u{n})",
            f"  {last}x{n} = {narrow} convert(c{n})",
        ]
    return "\n".join(["HloModule int8_mlp", "", "ENTRY main {", *lines, "}", ""])
