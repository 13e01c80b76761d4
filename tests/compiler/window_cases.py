"""Modules of one `select-and-scatter` or `reduce-window`: random ones, with every field of a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.dtypes import PRED, Kind

Array = npt.NDArray[Any]
Draw = Callable[[int, int], int]
"""A number from the first to the second, both included."""

SELECTS = {
    "ge": "ROOT r = pred[] compare(a, b), direction=GE",
    "le": "ROOT r = pred[] compare(a, b), direction=LE",
    "gt": "ROOT r = pred[] compare(a, b), direction=GT",
    "ne": "ROOT r = pred[] compare(b, a), direction=NE",
    "first": "ROOT r = pred[] constant(true)",
    "last": "ROOT r = pred[] constant(false)",
    "near": "d = {t}[] subtract(b, a)\n c = {t}[] constant(1)\n ROOT r = pred[] compare(d, c), direction=LT",
}
SCATTERS = {
    "add": "ROOT r = {t}[] add(a, b)",
    "update": "ROOT r = {t}[] copy(b)",
    "less": "c = {t}[] constant(3)\n m = {t}[] multiply(b, c)\n ROOT r = {t}[] subtract(m, a)",
    "maximum": "ROOT r = {t}[] maximum(b, a)",
}
PRED_SCATTERS = {"or": "ROOT r = pred[] or(a, b)", "update": SCATTERS["update"]}
PARAMETERS = " a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n "


def select_and_scatter_text(
    dims: Sequence[int],
    window: Sequence[WindowDim],
    t: str = "f32",
    select: str = "ge",
    scatter: str = "add",
    init: str = "0",
) -> str:
    """The text of a module that scatters an array of windows to one of `dims`."""
    count = [w.positions(n) for w, n in zip(window, dims, strict=True)]
    chosen = (SELECTS[select], (PRED_SCATTERS if t == "pred" else SCATTERS)[scatter])
    select_body, scatter_body = ((PARAMETERS + body).format(t=t) for body in chosen)
    return (
        f"HloModule m\nselect {{\n{select_body}\n}}\nscatter {{\n{scatter_body}\n}}\n"
        f"ENTRY e {{\n x = {t}[{_text(dims)}] parameter(0)\n s = {t}[{_text(count)}] parameter(1)\n"
        f" i = {t}[] constant({init})\n"
        f" ROOT r = {t}[{_text(dims)}] select-and-scatter(x, s, i), {window_text(window)}, select=select,"
        " scatter=scatter\n}\n"
    )


def select_and_scatter_module(draw: Draw, dtypes: Sequence[str], most: int = 4, plain: bool = False) -> Module:
    """A random module of one select-and-scatter, or of a slice of it; `plain`: of windows as XLA's CPU backend takes
    them.
    """
    dims, window = windows(draw, most, plain)
    t = dtypes[draw(0, len(dtypes) - 1)]
    scatters = PRED_SCATTERS if t == "pred" else SCATTERS
    selects = [s for s in SELECTS if t != "pred" or s != "near"]
    select, scatter = selects[draw(0, len(selects) - 1)], [*scatters][draw(0, len(scatters) - 1)]
    init = ("false", "true") if t == "pred" else ("0", "7")
    text = select_and_scatter_text(dims, window, t, select, scatter, init[draw(0, 1)])
    if draw(0, 2):
        return parse_hlo(text)
    starts = [draw(0, n - 1) for n in dims]
    ends = [draw(s, n) for s, n in zip(starts, dims, strict=True)]
    part = _text([e - s for s, e in zip(starts, ends, strict=True)])
    cut = ",".join(f"[{s}:{e}]" for s, e in zip(starts, ends, strict=True))
    whole = text.replace(f" ROOT r = {t}[{_text(dims)}]", f" r = {t}[{_text(dims)}]").removesuffix("}\n")
    return parse_hlo(f"{whole} ROOT p = {t}[{part}] slice(r), slice={{{cut}}}\n}}\n")


def windows(draw: Draw, most: int, plain: bool = False) -> tuple[list[int], list[WindowDim]]:
    """Sizes of an array of up to four dimensions, and a window over it with at least one position."""
    dims, window = [], []
    for _ in range(draw(1, 4)):
        n, size = draw(1, most + 3), draw(1, min(3, most))
        if not draw(0, 2):
            size = 1
        dilation = 1 if plain else 1 + (not draw(0, 3))
        base = 1 if plain else 1 + (not draw(0, 3))
        low, high = (draw(0 if plain else -1, size - 1) for _ in range(2))
        low, high = (low, high) if draw(0, 1) else (0, 0)
        w = WindowDim(size, draw(1, 3), low, high, base, dilation)
        if not w.positions(n):
            w = WindowDim(1)
        dims.append(n)
        window.append(w)
    return dims, window


def window_text(window: Sequence[WindowDim]) -> str:
    """The attribute of a window."""
    fields = {
        "size": [str(w.size) for w in window],
        "stride": [str(w.stride) for w in window],
        "pad": [f"{w.low}_{w.high}" for w in window],
        "lhs_dilate": [str(w.base_dilation) for w in window],
        "rhs_dilate": [str(w.window_dilation) for w in window],
    }
    return "window={" + " ".join(f"{name}={'x'.join(values)}" for name, values in fields.items()) + "}"


def window_arguments(module: Module, seed: int) -> list[Array]:
    """Arguments with many equal elements, most of them below the zeros of padding; in floats also NaNs and the like."""
    rng = np.random.default_rng(seed)
    found = []
    for p in module.entry.parameters:
        t = p.shape.dtype
        least = 0 if t.kind in (Kind.UNSIGNED, Kind.PRED) else -4
        array = rng.integers(least, least + (2 if t is PRED else 5), p.dims).astype(t.stored)
        if t.is_float:
            special = np.array([-0.0, np.inf, -np.inf, np.nan, 0.5], np.float32).astype(t.stored)
            array = np.where(rng.random(p.dims) < 0.2, rng.choice(special, p.dims), array)
        found.append(np.asarray(array, t.stored))
    return found


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
