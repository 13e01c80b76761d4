"""Layouts: every array is dense and row-major, so that `bitcast` and layout-changing `copy` become plain data movement.

XLA's optimised modules say with `bitcast` "the same bytes with another shape and layout".  Read with the layouts that
the module states, that is a transpose to memory order, a reshape, and a transpose back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from systolith.compiler.hlo.builder import emit
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Layout, Shape, array


@dataclass(frozen=True)
class NormaliseLayouts:
    """Replace `bitcast`, and make every array's layout row-major."""

    def run(self, module: Module) -> bool:
        changed = False
        for computation in module.computations:
            for instruction in list(computation.instructions):
                if instruction.opcode == "bitcast":
                    _expand(computation, instruction)
                    changed = True
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


def _expand(computation: Computation, bitcast: Instruction) -> None:
    (x,) = bitcast.operands
    before = bitcast
    if x.shape.dtype != bitcast.shape.dtype:
        flat = emit(
            computation, "bitcast-convert", x, shape=replace(x.shape, element=bitcast.shape.dtype), before=before
        )
        x = flat
    memory_order = tuple(reversed(x.shape.minor_to_major))
    if memory_order != tuple(range(x.shape.rank)):
        x = emit(computation, "transpose", x, before=before, dimensions=memory_order)
    wanted_order = tuple(reversed(bitcast.shape.minor_to_major))
    in_memory = tuple(bitcast.dims[d] for d in wanted_order)
    if x.dims != in_memory:
        x = emit(computation, "reshape", x, shape=array(x.shape.dtype, in_memory), before=before)
    if wanted_order != tuple(range(bitcast.shape.rank)):
        back = tuple(wanted_order.index(d) for d in range(bitcast.shape.rank))
        x = emit(computation, "transpose", x, before=before, dimensions=back)
    if x is bitcast.operands[0]:
        x = emit(computation, "copy", x, before=before)
    x.attributes.update({k: v for k, v in bitcast.attributes.items() if k == "metadata"})
    computation.replace(bitcast, x)
    computation.root = computation.result if computation.root is not None else None
    computation.instructions.remove(bitcast)
