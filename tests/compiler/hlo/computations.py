"""Computations of scalars, which reductions, windows and scatters apply, as HLO text."""

from __future__ import annotations


def scalar_computation(opcode: str, t: str = "f32", name: str = "") -> str:
    """A computation of two scalars, called as its operation if it has no name of its own."""
    return (
        f"{name or opcode} {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] {opcode}(a, b)\n}}\n"
    )
