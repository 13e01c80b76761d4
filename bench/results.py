"""Measurements as lines and as a page of Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from itertools import groupby
from math import exp, log

from bench.cases import CASES
from bench.losses import loss_section
from bench.measure import Measured
from bench.prediction import section
from bench.scaling import Scaled

COLUMNS = (
    "case", "cycles", "over bound", "bound by", "HBM used", "useful MACs", "instructions",
    "executed", "compile s", "time only s", "peak MB", "values and time s", "XLA CPU s", "ratio",
)  # fmt: skip


def cells(m: Measured) -> list[str]:
    """A row of the table."""
    b = m.bound
    return [
        m.name,
        f"{m.cycles:,}",
        f"{m.cycles / b.cycles:.2f}",
        b.unit,
        f"{m.hbm_share:.1%}",
        f"{m.useful_macs:.1%}",
        f"{m.program:,}",
        f"{m.executed:,}",
        f"{m.compile_seconds:.2f}",
        f"{m.simulate_seconds:.2f}",
        f"{m.peak_bytes / 1e6:.0f}",
        "" if m.values_seconds is None else f"{m.values_seconds:.2f}",
        "" if m.native_seconds is None else f"{m.native_seconds:.3f}",
        "" if not (m.values_seconds and m.native_seconds) else f"{m.values_seconds / m.native_seconds:.1f}",
    ]


def line(m: Measured) -> str:
    """A case on one line."""
    return ", ".join(f"{c} {v}" if c != "case" else v for c, v in zip(COLUMNS, cells(m), strict=True) if v)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def report(chip: str, rows: Sequence[Measured], scaled: Sequence[Scaled]) -> str:
    """The page."""
    parts = [
        f"# Measured on {chip}",
        "",
        f"Written by `make bench` in one run on {platform.machine()}, {platform.python_implementation()}"
        f" {platform.python_version()}. Cycles are the simulated chip's. What the columns mean: `bench/measure.py`; the"
        " bound that cycles are divided by: `compiler/bounds/bound.py`, from the canonical HLO and the chip alone."
        " Seconds are this machine's; the last column is values and time over XLA's CPU backend.",
    ]
    for family, of_family in groupby(rows, lambda m: CASES[m.name].family):
        found = list(of_family)
        parts += ["", f"## {family}", "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        parts += ["| " + " | ".join(cells(m)) + " |" for m in found]
        if family == "convolution":
            layers = [m for m in found if m.name[5].isdigit()]
            mean = geometric_mean([m.cycles / m.bound.cycles for m in layers])
            parts += ["", f"Geometric mean of ResNet-50's {len(layers)} layers: {mean:.2f} of the bound."]
    parts += loss_section(loss for m in rows for loss in m.losses)
    parts += section(g for m in rows for g in m.groups)
    parts += ["", "## Half of one resource", "", "Cycles, and in brackets the bound, as multiples.", ""]
    if scaled:
        names = list(scaled[0].ratios)
        parts += ["| case | cycles | " + " | ".join(f"half the {n}" for n in names) + " |"]
        parts += ["|---" * (2 + len(names)) + "|"]
        for s in scaled:
            shown = [f"{c:.2f} ({b:.2f})" for c, b in s.ratios.values()]
            parts.append(f"| {s.name} | {s.cycles:,} | " + " | ".join(shown) + " |")
    return "\n".join(parts) + "\n"
