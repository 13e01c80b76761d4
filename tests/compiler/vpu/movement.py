"""Random chains of data movement, as HLO text."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hypothesis import strategies as st

MOVES = ("transpose", "slice", "reverse", "pad", "reshape", "broadcast", "concatenate", "interior")
MOST = 400


@dataclass(frozen=True)
class Chain:
    """Lines of HLO from parameter `x` of dims `first` to `v<n>` of dims `last`."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    lines: tuple[str, ...]
    result: str


def show(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


@st.composite
def chains(draw: st.DrawFn, element: str = "f32", most: int = 4, moves: tuple[str, ...] = MOVES) -> Chain:
    dims = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    first, name, lines = dims, "x", []
    for k in range(draw(st.integers(0, most))):
        move = draw(st.sampled_from(moves))
        made = _step(draw, move, dims, name)
        if made is None or prod(made[0]) > MOST or not prod(made[0]):
            continue
        dims, expression = made
        lines.append(f" v{k} = {element}[{show(dims)}] {expression}")
        name = f"v{k}"
    return Chain(first, dims, tuple(lines), name)


Step = tuple[tuple[int, ...], str] | None


def _step(draw: st.DrawFn, move: str, dims: tuple[int, ...], name: str) -> Step:
    axes = list(range(len(dims)))
    if move == "transpose":
        order = draw(st.permutations(axes))
        return tuple(dims[d] for d in order), f"transpose({name}), dimensions={{{show(tuple(order))}}}"
    if move == "reverse":
        turned = draw(st.lists(st.sampled_from(axes), min_size=1, max_size=len(axes), unique=True))
        return dims, f"reverse({name}), dimensions={{{show(tuple(turned))}}}"
    if move == "slice":
        parts = []
        for n in dims:
            start = draw(st.integers(0, n - 1))
            parts.append((start, draw(st.integers(start + 1, n)), draw(st.integers(1, 2))))
        text = ", ".join(f"[{a}:{b}:{s}]" for a, b, s in parts)
        return tuple(-(-(b - a) // s) for a, b, s in parts), f"slice({name}), slice={{{text}}}"
    if move in ("pad", "interior"):
        inner = [draw(st.integers(0, 1)) if move == "interior" else 0 for _ in dims]
        edges = [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in dims]
        sizes = tuple(n + (n - 1) * i + a + b for n, i, (a, b) in zip(dims, inner, edges, strict=True))
        text = "x".join(f"{a}_{b}_{i}" for (a, b), i in zip(edges, inner, strict=True))
        return (sizes, f"pad({name}, fill), padding={text}") if min(sizes) > 0 else None
    if move == "broadcast":
        at = draw(st.integers(0, len(dims)))
        sizes = (*dims[:at], draw(st.integers(1, 5)), *dims[at:])
        kept = tuple(d for d in range(len(sizes)) if d != at)
        return (sizes, f"broadcast({name}), dimensions={{{show(kept)}}}") if len(sizes) <= 5 else None
    if move == "concatenate":
        d = draw(st.sampled_from(axes))
        sizes = tuple(2 * n if k == d else n for k, n in enumerate(dims))
        return sizes, f"concatenate({name}, {name}), dimensions={{{d}}}"
    return _reshape(draw, dims, name)


def _reshape(draw: st.DrawFn, dims: tuple[int, ...], name: str) -> Step:
    sizes = list(dims)
    kind = draw(st.sampled_from(["one", "merge", "split"]))
    at = draw(st.integers(0, len(sizes) - 1))
    if kind == "one":
        sizes.insert(at, 1)
    elif kind == "merge" and at + 1 < len(sizes):
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif kind == "split":
        factor = next((f for f in (2, 3, 5) if sizes[at] % f == 0), None)
        if factor is None:
            return None
        sizes[at : at + 1] = [sizes[at] // factor, factor]
    return tuple(sizes), f"reshape({name})"
