"""`scan` as a loop over one dimension, which calls the computation on slices and the values carried.

Source: XLA's `scan_expander`; the values are those of `hlo/values/scanning.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandScans:
    """Write `scan` as a loop with a known number of iterations."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _expanded(r, i, callees) if i.opcode == "scan" else None)
        callees.place()
        return changed


def _expanded(r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
    shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
    if any(s.is_dynamic for s in (*shapes, *(o.shape for o in i.operands))):
        return None
    given = len(i.operands) - i.integer("num_carries")
    made = len(shapes) - i.integer("num_carries")
    scan = _Scan(i, i.ints("dimensions")[0], given, made)
    state = [*i.operands[:given], *(r.full(0, s) for s in shapes[:made]), *i.operands[given:]]
    final = counted_loop(r, callees, scan.steps, state, scan.step, Rewriter, "scan") if scan.steps else state
    return r.emit("tuple", *final[given:], shape=i.shape) if i.shape.is_tuple else final[given]


@dataclass(frozen=True)
class _Scan:
    """A scan.

    Attributes:
        i: the instruction.
        dim: along which.
        given, made: arrays that it takes, and that it gives, without what it carries.
    """

    i: Instruction
    dim: int
    given: int
    made: int

    @property
    def steps(self) -> int:
        shape = self.i.operands[0].shape if self.given else next(self.i.shape.leaves())
        return shape.dims[self.dim]

    def step(self, r: Rewriter, count: Instruction, state: State) -> State:
        """The arrays, the results and what is carried after a step."""
        called = self.i.computation()
        number = count
        if self.i.flag("is_reverse"):
            number = r.emit("subtract", r.constant(self.steps - 1, S32), count)
        arrays, results, carried = (
            state[: self.given],
            state[self.given : self.given + self.made],
            state[self.given + self.made :],
        )
        values = [*(self._slice(r, x, number) for x in arrays), *carried]
        given = [r.converted(v, p.shape.dtype) for v, p in zip(values, called.parameters, strict=True)]
        whole = r.emit("call", *given, shape=called.result.shape, to_apply=called)
        parts = [whole]
        if whole.shape.is_tuple:
            parts = [r.emit("get-tuple-element", whole, index=k) for k in range(len(whole.shape.elements))]
        parts = [r.converted(p, s.shape.dtype) for p, s in zip(parts, (*results, *carried), strict=True)]
        written = [self._written(r, x, p, number) for x, p in zip(results, parts, strict=False)]
        return [*arrays, *written, *parts[self.made :]]

    def _slice(self, r: Rewriter, x: Instruction, number: Instruction) -> Instruction:
        sizes = tuple(1 if d == self.dim else n for d, n in enumerate(x.dims))
        part = r.emit("dynamic-slice", x, *self._place(r, x, number), dynamic_slice_sizes=sizes)
        return r.reshaped(part, (*x.dims[: self.dim], *x.dims[self.dim + 1 :]))

    def _written(self, r: Rewriter, x: Instruction, part: Instruction, number: Instruction) -> Instruction:
        row = r.reshaped(part, (*x.dims[: self.dim], 1, *x.dims[self.dim + 1 :]))
        return r.emit("dynamic-update-slice", x, row, *self._place(r, x, number))

    def _place(self, r: Rewriter, x: Instruction, number: Instruction) -> list[Instruction]:
        zero = r.constant(0, S32)
        return [number if d == self.dim else zero for d in range(len(x.dims))]
