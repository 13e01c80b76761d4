"""Layouts: every array is dense and row-major, so that `bitcast` and layout-changing `copy` become plain data movement.

XLA's optimised modules say with `bitcast` "the same bytes with another shape and layout".  Read with the layouts that
the module states, that is a transpose to memory order, a reshape, and a transpose back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Layout, Shape, array
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class NormaliseLayouts:
    """Replace `bitcast`, and make every array's layout row-major."""

    def run(self, module: Module) -> bool:
        changed = rewrite(module, lambda r, i: _expand(r, i) if i.opcode == "bitcast" else None)
        for instruction in module.instructions():
            shape = _row_major(instruction.shape)
            if shape != instruction.shape:
                instruction.shape = shape
                changed = True
        if changed:
            module.attributes.pop("entry_computation_layout", None)
            module.attributes.pop("is_scheduled", None)
        return changed


def _row_major(shape: Shape) -> Shape:
    if shape.is_tuple:
        return replace(shape, elements=tuple(map(_row_major, shape.elements)))
    if not shape.is_array:
        return shape
    return replace(shape, layout=Layout(tuple(reversed(range(shape.rank)))) if shape.rank else None)


def _expand(r: Rewriter, bitcast: Instruction) -> Instruction:
    (x,) = bitcast.operands
    if x.shape.dtype != bitcast.shape.dtype:
        x = r.emit("bitcast-convert", x, shape=replace(x.shape, element=bitcast.shape.dtype))
    memory_order = tuple(reversed(x.shape.minor_to_major))
    if memory_order != tuple(range(x.shape.rank)):
        x = r.emit("transpose", x, dimensions=memory_order)
    wanted_order = tuple(reversed(bitcast.shape.minor_to_major))
    in_memory = tuple(bitcast.dims[d] for d in wanted_order)
    if x.dims != in_memory:
        x = r.emit("reshape", x, shape=array(x.shape.dtype, in_memory))
    back = tuple(wanted_order.index(d) for d in range(bitcast.shape.rank))
    if back != tuple(range(len(back))):
        return r.emit("transpose", x, shape=bitcast.shape, dimensions=back)
    return r.emit("copy", x, shape=bitcast.shape)
