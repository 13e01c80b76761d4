"""Modules of one `gather` or `scatter`: random ones, with every dimension number, and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.runtime.arrays import random_array

Array = npt.NDArray[Any]
Draw = Callable[[int, int], int]
"""A number from the first to the second, both included."""

COMBINERS = {
    "update": "ROOT r = {t}[] parameter(1)",
    "add": "b = {t}[] parameter(1)\n ROOT r = {t}[] add(a, b)",
    "minimum": "b = {t}[] parameter(1)\n ROOT r = {t}[] minimum(b, a)",
    "multiply": "b = {t}[] parameter(1)\n ROOT r = {t}[] multiply(a, b)",
    "less old": "b = {t}[] parameter(1)\n ROOT r = {t}[] subtract(b, a)",
}


class Numbers:
    """Dimension numbers of windows in an operand.

    Attributes:
        operand, windows: sizes of dimensions.
        mapped: the dimension of each component of an index vector.
        batching: of the operand; the like ones of the indices are `batched`.
        dropped: dimensions of size 1 that windows do not have in the result.
        count: sizes of the indices outside their vectors.
        vector_dim: place of the vectors' dimension; the indices' rank: there is none.
    """

    def __init__(self, draw: Draw, most: int) -> None:
        rank = draw(1, 4)
        self.operand = [draw(1, most) for _ in range(rank)]
        dims = _shuffled(draw, range(rank))
        free = dims[: draw(1, rank)]
        batching = sorted(free[: draw(0, min(1, len(free) - 1))])
        self.mapped = [d for d in free if d not in batching]
        self.batching = batching
        self.windows = [draw(1, n) if draw(0, 1) else 1 for n in self.operand]
        for d in range(rank):
            if d not in free and draw(0, 3):
                self.windows[d] = self.operand[d]
        for d in batching:
            self.windows[d] = 1
        ones = [d for d in range(rank) if self.windows[d] == 1 and d not in batching]
        self.dropped = sorted(d for d in ones if draw(0, 2))
        self.count = [draw(1, most) for _ in range(draw(0, 2))] or ([1] if batching else [])
        self.batched: list[int] = []
        for d in batching:
            place = draw(0, len(self.count) - 1)
            self.count[place] = self.operand[d]
            self.batched.append(place)
        self.vector_dim = draw(0, len(self.count))
        if len(self.mapped) == 1 and draw(0, 1):
            self.vector_dim = len(self.count)
            self.indices = list(self.count)
        else:
            self.indices = [*self.count]
            self.indices.insert(self.vector_dim, len(self.mapped))
            self.batched = [b + (b >= self.vector_dim) for b in self.batched]
        self.kept = [d for d in range(rank) if d not in self.dropped and d not in batching]
        places = sorted(_shuffled(draw, range(len(self.kept) + len(self.count)))[: len(self.kept)])
        self.offset = places
        window, batch = iter(self.kept), iter(self.count)
        self.blocks = [
            self.windows[next(window)] if p in places else next(batch) for p in range(len(self.kept) + len(self.count))
        ]


def gather_module(draw: Draw, dtypes: Sequence[str], index_types: Sequence[str], most: int = 5) -> Module:
    """A module of one gather."""
    n = Numbers(draw, most)
    t, u = dtypes[draw(0, len(dtypes) - 1)], index_types[draw(0, len(index_types) - 1)]
    return parse_hlo(
        f"HloModule g\nENTRY e {{\n x = {t}[{_text(n.operand)}] parameter(0)\n i = {u}[{_text(n.indices)}] parameter(1)"
        f"\n ROOT r = {t}[{_text(n.blocks)}] gather(x, i), offset_dims={{{_text(n.offset)}}},"
        f" collapsed_slice_dims={{{_text(n.dropped)}}}, start_index_map={{{_text(n.mapped)}}},"
        f" operand_batching_dims={{{_text(n.batching)}}}, start_indices_batching_dims={{{_text(n.batched)}}},"
        f" index_vector_dim={n.vector_dim}, slice_sizes={{{_text(n.windows)}}}\n}}\n"
    )


def scatter_module(
    draw: Draw, dtypes: Sequence[str], index_types: Sequence[str], most: int = 5, arrays: int = 1
) -> Module:
    """A module of one scatter, of one array or of several."""
    n = Numbers(draw, most)
    t, u = dtypes[draw(0, len(dtypes) - 1)], index_types[draw(0, len(index_types) - 1)]
    names = sorted(COMBINERS)
    if arrays == 1:
        body = f" a = {t}[] parameter(0)\n {COMBINERS[names[draw(0, len(names) - 1)]].format(t=t)}\n"
    else:
        body = "".join(f" p{k} = {t}[] parameter({k})\n" for k in range(2 * arrays))
        made = [f" c{k} = {t}[] subtract(p{arrays + k}, p{(k + 1) % arrays})\n" for k in range(arrays)]
        body += "".join(made) + f" ROOT r = ({', '.join([f'{t}[]'] * arrays)}) tuple({_names('c', arrays)})\n"
    x, update = f"{t}[{_text(n.operand)}]", f"{t}[{_text(n.blocks)}]"
    result = x if arrays == 1 else f"({', '.join([x] * arrays)})"
    given = "".join(
        f" x{k} = {x} parameter({k})\n u{k} = {update} parameter({arrays + 1 + k})\n" for k in range(arrays)
    )
    return parse_hlo(
        f"HloModule s\ncombine {{\n{body}}}\nENTRY e {{\n{given} i = {u}[{_text(n.indices)}] parameter({arrays})\n"
        f" ROOT r = {result} scatter({_names('x', arrays)}, i, {_names('u', arrays)}), to_apply=combine,"
        f" update_window_dims={{{_text(n.offset)}}}, inserted_window_dims={{{_text(n.dropped)}}},"
        f" scatter_dims_to_operand_dims={{{_text(n.mapped)}}}, input_batching_dims={{{_text(n.batching)}}},"
        f" scatter_indices_batching_dims={{{_text(n.batched)}}}, index_vector_dim={n.vector_dim}\n}}\n"
    )


def index_arguments(module: Module, seed: int) -> list[Array]:
    """Random arguments: indices inside and, one of four, outside of what they index."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for p in module.entry.parameters:
        if p.name != "i":
            found.append(random_array(rng, p.shape.dtype, p.dims))
            continue
        inside = rng.integers(0, 5, p.dims)
        dtype = p.shape.dtype
        wild = rng.choice(np.array([-1, -2, 7, dtype.least, dtype.greatest], object), p.dims)
        wild = np.clip(wild, dtype.least, dtype.greatest)
        found.append(np.where(rng.integers(0, 4, p.dims) == 0, wild, inside).astype(p.shape.dtype.stored))
    return found


ADD, TAKE = "add(a, b)", "parameter(1)"


def lookup(depth: int, row: int, count: int, t: str = "f32") -> str:
    """Rows of a table."""
    return (
        f"HloModule m\nENTRY e {{\n x = {t}[{depth},{row}] parameter(0)\n i = s32[{count},1] parameter(1)\n"
        f" ROOT r = {t}[{count},{row}] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}},"
        f" start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{row}}}\n}}\n"
    )


def update(
    depth: int,
    row: int,
    count: int,
    combine: str,
    t: str = "f32",
    width: int = 1,
    header: str = "",
    unique: bool = False,
) -> str:
    """Rows, or `width` of them side by side, combined with those of a table."""
    name = "b" if combine == TAKE else "r"
    second = "" if combine == TAKE else f" b = {t}[] parameter(1)\n"
    body = f" a = {t}[] parameter(0)\n{second} ROOT {name} = {t}[] {combine}\n"
    updates, dims = (f"{count},{row}", "{1}") if width == 1 else (f"{count},{width},{row}", "{1,2}")
    return (
        f"HloModule m{header}\nc {{\n{body}}}\nENTRY e {{\n x = {t}[{depth},{row}] parameter(0)\n"
        f" i = s32[{count},1] parameter(1)\n u = {t}[{updates}] parameter(2)\n"
        f" ROOT r = {t}[{depth},{row}] scatter(x, i, u), update_window_dims={dims}, to_apply=c,"
        f" inserted_window_dims={{{0 if width == 1 else ''}}}, scatter_dims_to_operand_dims={{0}},"
        f" index_vector_dim=1, unique_indices={str(unique).lower()}\n}}\n"
    )


def row_arguments(text: str, seed: int = 0) -> list[Array]:
    """Random tables and updates, and indices of which some are outside and some equal."""
    rng = np.random.default_rng(seed)
    parameters = parse_hlo(text).entry.parameters
    depth = parameters[0].dims[0]
    return [
        rng.integers(-2, depth + 2, p.dims).astype(np.int32)
        if p.name == "i"
        else (rng.standard_normal(p.dims) * 9).astype(p.shape.dtype.stored)
        for p in parameters
    ]


@st.composite
def numbers(draw: st.DrawFn) -> Draw:
    """Numbers that hypothesis draws."""
    return lambda low, high: draw(st.integers(low, high))


def _shuffled(draw: Draw, items: Sequence[int]) -> list[int]:
    left, out = list(items), []
    while left:
        out.append(left.pop(draw(0, len(left) - 1)))
    return out


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _names(stem: str, count: int) -> str:
    return ", ".join(f"{stem}{k}" for k in range(count))
