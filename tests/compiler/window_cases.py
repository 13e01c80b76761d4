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


REDUCERS = {
    "add": "ROOT r = {t}[] add(a, b)",
    "multiply": "ROOT r = {t}[] multiply(b, a)",
    "maximum": "ROOT r = {t}[] maximum(a, b)",
    "minimum": "ROOT r = {t}[] minimum(a, b)",
    "last": "ROOT r = {t}[] copy(b)",
    "ordered": "c = {t}[] constant(2)\n m = {t}[] multiply(a, c)\n ROOT r = {t}[] subtract(m, b)",
    "nearest": "c = {t}[] constant(1)\n d = {t}[] subtract(a, c)\n e = {t}[] subtract(b, c)\n"
    " f = {t}[] multiply(d, d)\n g = {t}[] multiply(e, e)\n l = pred[] compare(f, g), direction=LE\n"
    " ROOT r = {t}[] select(l, a, b)",
}
LOGICAL = {name: f"ROOT r = {{t}}[] {name}(a, b)" for name in ("and", "or", "xor")}
PRED_REDUCERS = LOGICAL | {"last": REDUCERS["last"], "less": "n = pred[] not(a)\n ROOT r = pred[] and(n, b)"}
FIRST_GREATEST = (
    " a = {t}[] parameter(0)\n m = s32[] parameter(1)\n b = {t}[] parameter(2)\n n = s32[] parameter(3)\n"
    " k = pred[] compare(a, b), direction=GE\n v = {t}[] select(k, a, b)\n i = s32[] select(k, m, n)\n"
    " ROOT r = ({t}[], s32[]) tuple(v, i)"
)
PLACES = (
    " a = {t}[] parameter(0)\n m = s32[] parameter(1)\n b = {t}[] parameter(2)\n n = s32[] parameter(3)\n"
    " v = {t}[] maximum(a, b)\n i = s32[] add(m, n)\n ROOT r = ({t}[], s32[]) tuple(v, i)"
)
"""Of two arrays: a computation across both, and one operation on each."""


PRODUCERS = {
    "plain": ("{dims}", "copy(x)"),
    "reverse": ("{dims}", "reverse(x), dimensions={{0}}"),
    "negate": ("{dims}", "negate(x)"),
    "dilate": ("{fewer}", "pad(x, i), padding={dilation}"),
    "widen": ("{first}", "broadcast(x), dimensions={{0}}"),
}
"""Of an operand: the sizes of what it is made of, and the operation."""


def reduce_window_module(draw: Draw, dtypes: Sequence[str], most: int = 4) -> Module:
    """A random module of one reduce-window, of one array, which is perhaps computed, or two, with an epilogue."""
    dims, window = windows(draw, most)
    t = dtypes[draw(0, len(dtypes) - 1)]
    made, given = _producer(draw, t, dims)
    count = _text([w.positions(n) for w, n in zip(window, dims, strict=True)])
    two = not draw(0, 3)
    init = ("false", "true")[draw(0, 1)] if t == "pred" else ("0", "1", "3")[draw(0, 2)]
    lines = [f"x = {t}[{given}] parameter(0)", f"y = s32[{_text(dims)}] parameter(1)"]
    lines += [f"i = {t}[] parameter(2)" if draw(0, 1) else f"i = {t}[] constant({init})"]
    lines += [f"j = s32[] constant({draw(-1, 2)})", f"z = {t}[{_text(dims)}] {made}"]
    if two:
        body = (FIRST_GREATEST, PLACES)[draw(0, 1)].format(t=t)
        result, operands = f"({t}[{count}], s32[{count}])", "z, y, i, j"
    else:
        table = PRED_REDUCERS if t == "pred" else REDUCERS if t[0] in "bf" else REDUCERS | LOGICAL
        body = (PARAMETERS + table[[*table][draw(0, len(table) - 1)]]).format(t=t)
        result, operands = f"{t}[{count}]", "z, i"
    lines += [f"r = {result} reduce-window({operands}), {window_text(window)}, to_apply=c"]
    if not two and draw(0, 1):
        lines += [f"ROOT e = {t}[{count}] {'not' if t == 'pred' else 'negate'}(r)"]
    else:
        lines[-1] = f"ROOT {lines[-1]}"
    return parse_hlo(f"HloModule m\nc {{\n{body}\n}}\nENTRY e {{\n" + "\n".join(lines) + "\n}\n")


def _producer(draw: Draw, t: str, dims: Sequence[int]) -> tuple[str, str]:
    """The operation that makes an operand, and the sizes of what it is made of."""
    kinds = [k for k in PRODUCERS if t != "pred" or k != "negate"]
    given, made = PRODUCERS[kinds[draw(0, len(kinds) - 1)]]
    sizes = {
        "dims": _text(dims),
        "fewer": _text([(n + 1) // 2 for n in dims]),
        "first": _text(dims[:1]),
        "dilation": "x".join(f"0_{(n + 1) % 2}_1" for n in dims),
    }
    return made.format(**sizes), given.format(**sizes)


def windows(draw: Draw, most: int, plain: bool = False) -> tuple[list[int], list[WindowDim]]:
    """Sizes of an array of up to six dimensions, and a window over it with at least one position."""
    dims, window = [], []
    for d in range(draw(1, 6)):
        n, size = draw(1, most + 3 if d < 3 else 3), draw(1, min(3, most))
        if not draw(0, 2):
            size = 1
        dilation = 1 if plain else 1 + (not draw(0, 3))
        base = 1 if plain else 1 + (not draw(0, 3))
        low, high = (draw(0 if plain else -2, size - 1) for _ in range(2))
        low, high = (low, high) if draw(0, 1) else (0, 0)
        w = WindowDim(size, draw(1, 3), low, high, base, dilation, not draw(0, 3))
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
        "rhs_reversal": [str(int(w.reversal)) for w in window],
    }
    return "window={" + " ".join(f"{name}={'x'.join(values)}" for name, values in fields.items()) + "}"


def window_arguments(module: Module, seed: int) -> list[Array]:
    """Arguments with many equal elements, most of them below the zeros of padding; in floats also NaNs and the like.

    Products of floats are exact, in any order.
    """
    rng = np.random.default_rng(seed)
    found = []
    for p in module.entry.parameters:
        t = p.shape.dtype
        low, high = (-2, 2) if t.is_float else (0, 2) if t is PRED else (0, 5) if t.kind is Kind.UNSIGNED else (-4, 1)
        array = rng.integers(low, high, p.dims).astype(t.stored)
        if t.is_float:
            special = np.array([-0.0, np.inf, -np.inf, np.nan, 0.5], np.float32).astype(t.stored)
            array = np.where(rng.random(p.dims) < 0.2, rng.choice(special, p.dims), array)
        found.append(np.asarray(array, t.stored))
    return found


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
