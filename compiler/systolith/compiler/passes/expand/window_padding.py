"""Windows that reach beyond their operand, from a neutral initial value: what is there adds nothing.

XLA's CPU backend combines the elements of a window that are inside, from the initial value on.  On the chip a window
reads its initial value where nothing is, which is the same if that changes nothing.  Else a single operation starts
from its neutral element, and the initial value comes in at the end; any other computation gets a flag with each
element, which says whether it is inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.hlo.values.evaluator import is_neutral
from systolith.compiler.hlo.values.reduction import IDEMPOTENT, neutral_element, plain_operation
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.long_computations import is_looped
from systolith.compiler.passes.on_arrays import called
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32, PRED


@dataclass(frozen=True)
class NeutraliseWindowPadding:
    """Let windows that reach beyond their operand start from a value that changes nothing."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _neutral(callees, r, i) if _reaches_beyond(i) else None)
        callees.place()
        return changed


def _reaches_beyond(i: Instruction) -> bool:
    if i.opcode != "reduce-window" or any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
        return False
    return any(max(w.low, w.high) > 0 or w.base_dilation > 1 for w in i.window.dims) and bool(i.operands[0].shape.size)


def _neutral(callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
    count = len(i.operands) // 2
    if is_looped(i):
        return None
    inits = i.operands[count:]
    operation = plain_operation(i.computation()) if i.shape.is_array else None
    if operation in IDEMPOTENT:
        return None
    values = [init.literal for init in inits if init.opcode == "constant" and init.literal is not None]
    if len(values) == count and is_neutral(i.computation(), [np.asarray(v) for v in values]):
        return None
    dtype = i.operands[0].shape.dtype
    neutral = neutral_element(operation, dtype) if operation is not None else None
    if operation is None or neutral is None:
        return _flagged(callees, r, i)
    # Narrow floats are rounded once, at the end.
    wide = F32 if dtype.is_float and dtype.bits < 32 else dtype
    x, init = (r.converted(o, wide) for o in i.operands)
    made = r.like(i, [x, r.constant(neutral, wide)], array(wide, i.dims))
    made.attributes["to_apply"] = callees.reducer(operation, wide)
    return r.converted(r.emit(operation, r.spread(init, made.shape), made), i.shape.dtype)


def _flagged(callees: Callees, r: Rewriter, i: Instruction) -> Instruction:
    """With a flag for each element, which padding does not have."""
    count = len(i.operands) // 2
    xs, inits = i.operands[:count], i.operands[count:]
    shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
    made = r.like(
        i,
        [*xs, r.full(True, array(PRED, xs[0].dims)), *inits, r.constant(False, PRED)],
        tuple_of([*shapes, array(PRED, shapes[0].dims)]),
    )
    made.attributes["to_apply"] = callees.add(
        _if_inside(callees.name(f"{i.computation().name}.inside"), i.computation())
    )
    parts = [r.emit("get-tuple-element", made, index=k) for k in range(count)]
    return r.emit("tuple", *parts, shape=i.shape) if i.shape.is_tuple else parts[0]


def _if_inside(name: str, computation: Computation) -> Computation:
    """A computation of what was combined so far, with an element and its flag."""
    count = len(computation.parameters) // 2
    shapes = [*(p.shape for p in computation.parameters[:count]), array(PRED)] * 2
    given = [Instruction(f"p{k}", "parameter", shape, number=k) for k, shape in enumerate(shapes)]
    made = Computation(name, [*given])
    r = Rewriter(made)
    (*a, here), (*b, there) = given[: count + 1], given[count + 1 :]
    both = called(r, computation, [*a, *b])
    chosen = [Real(r, x).where(there, Real(r, old)).i for x, old in zip(both, a, strict=True)]
    root = r.emit("tuple", *chosen, r.emit("or", here, there))
    made.instructions, made.root = [*given, *r.made], root
    return made
