"""Custom calls of functions of the host, as an outfeed of their operands and an infeed of their results.

The frontend attribute `host_call` of both says that they are one: the target, and of the outfeed the types of operands
and results (`isa/host_functions.py`).  They run in the order of the text, as all infeeds and outfeeds do.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.attributes import Fields
from systolith.compiler.hlo.feed_configs import HOST_CALL
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, ShapeKind, array, tuple_of
from systolith.compiler.hlo.values.host_calls import is_host_call, signature
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandHostCalls:
    """Write custom calls of functions of the host as transfers."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _expanded)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    if not is_host_call(i):
        return None
    called = signature(i)
    token = next((o for o in i.operands if _is_token(o.shape)), None) or r.emit("after-all", shape=_TOKEN)
    values = [o for o in i.operands if not _is_token(o.shape)]
    if not any(leaf.size for o in values for leaf in o.shape.leaves()):
        values = [r.constant(0, S32)]  # there is a call all the same
    sent = r.emit("tuple", *values, shape=tuple_of([v.shape for v in values]))
    mark: Fields = {HOST_CALL: called.to_bytes().decode()}
    token = r.emit(
        "outfeed", sent, token, shape=_TOKEN, name=i.name, outfeed_shape=sent.shape, frontend_attributes=mark
    )
    leaves = [leaf for leaf in i.shape.leaves() if not _is_token(leaf)]
    given = r.emit(
        "infeed",
        token,
        shape=tuple_of([tuple_of([array(leaf.dtype, leaf.dims) for leaf in leaves]), _TOKEN]),
        name=i.name,
        frontend_attributes=mark,
    )
    token = r.emit("get-tuple-element", given, shape=_TOKEN, index=1)
    results = r.emit("get-tuple-element", given, shape=given.shape.elements[0], index=0)
    parts = iter([r.emit("get-tuple-element", results, index=n) for n in range(len(leaves))])

    def value(shape: Shape) -> Instruction:
        if shape.is_tuple:
            return r.emit("tuple", *[value(s) for s in shape.elements], shape=shape)
        return token if _is_token(shape) else next(parts)

    return value(i.shape)


_TOKEN = Shape(ShapeKind.TOKEN)


def _is_token(shape: Shape) -> bool:
    return shape.kind is ShapeKind.TOKEN
