"""`PartialReduce`, of which JAX's approximate largest elements consist on TPUs: the first of each group of elements."""

from __future__ import annotations

import json
from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.on_arrays import applied
from systolith.compiler.passes.rewrite import Rewriter, rewrite

TARGET = "PartialReduce"


@dataclass(frozen=True)
class ExpandPartialReduce:
    """Expand custom calls of `PartialReduce` into selects by its comparator.

    Which elements are together is left open: here those at the same place in each of 2^log2_reduction parts.
    """

    def run(self, module: Module) -> bool:
        return rewrite(module, _expanded)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.attributes.get("custom_call_target") != TARGET or any(o.shape.is_dynamic for o in i.operands):
        return None
    try:
        options = json.loads(str(i.attributes.get("backend_config", "")))
        d, log2 = int(options["reduction_dim"]), int(options["log2_reduction"])
        known = options["to_apply_type"] == "comparator"
    except (ValueError, KeyError, TypeError):
        return None
    if not known or not i.shape.is_tuple or len(i.called) != 1:
        return None
    count = len(i.operands) // 2
    size, parts = i.shape.elements[0].dims[d], 1 << log2
    wide = [
        _padded(r, x, start, d, size * parts) for x, start in zip(i.operands[:count], i.operands[count:], strict=True)
    ]
    (comparator,) = i.called
    while parts > 1:
        parts //= 2
        first, second = ([r.narrowed(x, d, at, at + size * parts) for x in wide] for at in (0, size * parts))
        pairs = [x for pair in zip(first, second, strict=True) for x in pair]
        before = applied(r, comparator, *pairs)
        wide = [r.emit("select", before, a, b, shape=a.shape) for a, b in zip(first, second, strict=True)]
    return r.emit("tuple", *wide, shape=i.shape)


def _padded(r: Rewriter, x: Instruction, start: Instruction, d: int, size: int) -> Instruction:
    edges = tuple(PadDim(0, size - n if k == d else 0, 0) for k, n in enumerate(x.dims))
    return x if x.dims[d] == size else r.emit("pad", x, start, padding=edges)
