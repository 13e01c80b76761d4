"""Operations of several devices in a module for one device: what they give there, as data movement.

The numbers of the only device are 0.  It is the whole of its group, so that a collective gives back what it takes; a
reduction of one operand is that operand.  Source: XLA's operation semantics, as `hlo/values/collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.rules.shapes_collectives import in_place
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.hlo.values.devices import Topology
from systolith.compiler.hlo.values.group_modes import grid, pairs_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.asynchronous import started
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.sharding_remover import handed_on
from systolith.isa.dtypes import PRED, S32

ALONE = Topology()


@dataclass(frozen=True)
class RunOnOneDevice:
    """Write `partition-id`, `replica-id` and collectives of a module for one device as what they are there."""

    def run(self, module: Module) -> bool:
        try:
            if grid(module) != ALONE:
                return False
        except HloError:  # groups that make no sense: refused with the operation
            return False
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: _RULES[i.opcode](r, i, callees) if i.opcode in _RULES else None)
        callees.place()
        return changed


def _zero(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    return r.full(0, i.shape)


def _as_it_is(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    return handed_on(r, i)


def _gather_start(r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
    """The tuple of operands and results, which are the same."""
    return started(r, i, *[_together(r, i.operands)] * 2)


def _together(r: Rewriter, values: Sequence[Instruction]) -> Instruction:
    """One value alone, several as a tuple."""
    return values[0] if len(values) == 1 else r.emit("tuple", *values, shape=tuple_of([v.shape for v in values]))


def _permute(r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
    """The operands where the device sends to itself, else zeros."""
    if in_place(i):
        return None
    given = i.operands if tuple(map(tuple, pairs_of(i))) == ((0, 0),) else [r.full(0, o.shape) for o in i.operands]
    if i.opcode == "collective-permute":
        return _together(r, given) if given is not i.operands else handed_on(r, i)
    return started(r, i, _together(r, i.operands), _together(r, given))


def _done(r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
    """The results of a start that has been replaced."""
    (started,) = i.operands
    return None if started.opcode.endswith("-start") else r.emit("get-tuple-element", started, shape=i.shape, index=1)


def _ragged(r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
    """Slices of rows, each at its place in the output; where several meet, the last one stays.

    For each row of the output: the last slice that covers it, and the row of the input that it takes there.
    """
    data, output, *lists = i.operands
    rows, count = output.dims[0], lists[0].shape.size
    if not rows or not data.dims[0] or not count:
        return r.emit("copy", output, shape=i.shape)
    each = array(S32, (count, rows))

    def listed(o: Instruction) -> Real:
        flat = r.converted(r.reshaped(o, (count,)), S32)
        return Real(r, r.emit("broadcast", flat, shape=each, dimensions=(0,)))

    number, row = (Real(r, r.emit("iota", shape=each, iota_dimension=d)) for d in range(2))
    starts, sizes, targets = map(listed, lists[:3])
    covers = r.emit("and", row.test("GE", targets), row.test("LT", targets + sizes))
    last = Real(r, callees.reduced(r, "maximum", number.where(covers, -1).i, -1, (0,)))
    is_last = number.test("EQ", Real(r, r.emit("broadcast", last.i, shape=each, dimensions=(1,))))
    source = callees.reduced(r, "add", (starts + row - targets).where(is_last, 0).i, 0, (0,))
    taken = r.emit(
        "gather",
        data,
        source,
        shape=array(data.shape.dtype, output.dims),
        offset_dims=tuple(range(1, output.shape.rank)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *data.dims[1:]),
    )
    met = r.emit("broadcast", last.test("GE", 0), shape=array(PRED, output.dims), dimensions=(0,))
    return r.emit("select", met, taken, output, shape=i.shape)


_RULES: dict[str, Callable[[Rewriter, Instruction, Callees], Instruction | None]] = {
    "partition-id": _zero,
    "replica-id": _zero,
    **dict.fromkeys(
        "all-reduce all-reduce-start all-gather all-to-all collective-broadcast reduce-scatter".split(), _as_it_is
    ),
    "all-gather-start": _gather_start,
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "ragged-all-to-all": _ragged,
    "all-reduce-done": _as_it_is,
    "all-gather-done": _done,
    "collective-permute-done": _done,
}
