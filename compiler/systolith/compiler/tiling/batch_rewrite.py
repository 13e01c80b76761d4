"""A segment of a computation as a `while` loop over one of its dimensions.

Each iteration slices what has the dimension, computes the segment on that part, and updates its results in place; what
does not have it is the same for all iterations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.hlo.trip_count import stated
from systolith.compiler.memory.residency import allocation
from systolith.compiler.ops.dim_propagation import blocked_dims, resized
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tiling.blocking import Region, RegionOutline
from systolith.isa.dtypes import PRED, S32


def to_loop(
    computation: Computation, region: Region, roots: Collection[Instruction], iterations: int, taken: Names
) -> list[Computation]:
    """Run a region in a loop, in place.  Dead code is left behind.

    Args:
        computation: changed.
        region: instructions, none of which needs another index of its dimension than its own.
        roots: of these, those that are computed once; the others are computed again outside where they are needed.
        iterations: a divisor of the dimension's size.
        taken: names of computations.

    Returns:
        The computations of the loop.

    Raises:
        NotBlockableError: an instruction does need other indices.
    """
    _release(computation, region, roots)
    users = computation.users()
    outputs = [
        i
        for i in computation.instructions
        if i in region and (i is computation.result or any(u not in region for u in users[i]))
    ]
    segment = _outlined(computation, region, outputs, iterations)
    name = f"batch.{outputs[-1].name}"
    body, condition = segment.body(taken.fresh(f"{name}.body")), segment.condition(taken.fresh(f"{name}.condition"))
    names = Names(i.name for i in computation.instructions)
    made, value = segment.loop(names, body, condition, name, outputs[-1].line)
    _insert(computation, region, made, value)
    return [condition, body]


def _release(computation: Computation, region: Region, roots: Collection[Instruction]) -> None:
    """Give what is outside its own copies of the region's instructions that it needs and that are no roots."""
    copies: dict[Instruction, Instruction] = {}
    names = Names(i.name for i in computation.instructions)

    def outside(i: Instruction) -> Steps[Instruction]:
        if i not in region or i in roots:
            return i
        if i not in copies:
            operands: list[Instruction] = []
            for o in i.operands:
                operands.append((yield outside(o)))
            copies[i] = replace(i, name=names.fresh(i.name), operands=operands, attributes=dict(i.attributes))
        return copies[i]

    out: list[Instruction] = []
    for i in computation.instructions:
        if i not in region:
            before = len(copies)
            i.operands = [trampoline(outside(o)) for o in i.operands]
            out += list(copies.values())[before:]
        out.append(i)
    computation.root = computation.result  # which may have been the last instruction without being named
    computation.instructions = out


@dataclass
class _Segment:
    """A region on its own.

    Attributes:
        inner: computes one part: parameters in the order of `given`, and a tuple of results.
        given: what it reads of the computation around it.
        sliced: for each of these the dimension that is sliced; None: it is read whole.
        outputs: instructions of the computation around it whose values it makes.
        updated: the dimension of each that is updated.
        size, whole: indices of a part, and of all.
    """

    inner: Computation
    given: list[Instruction]
    sliced: list[int | None]
    outputs: list[Instruction]
    updated: list[int]
    size: int
    whole: int

    @property
    def state(self) -> Shape:
        """The index, the results, and what is read."""
        return tuple_of([array(S32, ()), *(o.shape for o in self.outputs), *(i.shape for i in self.given)])

    def condition(self, name: str) -> Computation:
        """Whether there are parts left."""
        state = Instruction("state", "parameter", self.state, number=0)
        index = Instruction("index", "get-tuple-element", array(S32, ()), [state], {"index": 0})
        end = _scalar("end", self.whole)
        less = Instruction("less", "compare", array(PRED, ()), [index, end], {"direction": "LT"})
        return Computation(name, [state, index, end, less], less)

    def body(self, name: str) -> Computation:
        """One part."""
        names = Names(i.name for i in self.inner.instructions)
        out: list[Instruction] = []

        def add(
            stem: str, opcode: str, shape: Shape, operands: Sequence[Instruction], **given: Attribute
        ) -> Instruction:
            out.append(Instruction(names.fresh(stem), opcode, shape, list(operands), given))
            return out[-1]

        state = Instruction(names.fresh("state"), "parameter", self.state, number=0)
        zero, step = _scalar(names.fresh("zero"), 0), _scalar(names.fresh("step"), self.size)
        out += [state, zero, step]
        index, *elements = (
            add("element", "get-tuple-element", shape, [state], index=k) for k, shape in enumerate(self.state.elements)
        )
        count = len(self.outputs)
        sliced = dict(zip(self.inner.parameters, zip(self.sliced, elements[count:], strict=True), strict=True))
        places = {o: k for k, o in enumerate(self.inner.result.operands)}
        value: dict[Instruction, Instruction] = {}
        updates: dict[int, Instruction] = {}

        def starts(i: Instruction, d: int) -> list[Instruction]:
            return [index if k == d else zero for k in range(i.shape.rank)]

        def operand(o: Instruction) -> Instruction:
            if o in sliced and o not in value:
                d, whole = sliced[o]
                value[o] = whole
                if d is not None:
                    sizes = {"dynamic_slice_sizes": o.dims}
                    value[o] = add(f"{o.name}.part", "dynamic-slice", o.shape, [whole, *starts(o, d)], **sizes)
            return value.get(o, o)

        for i in self.inner.instructions[:-1]:
            if i.opcode == "parameter":
                continue
            i.operands = [operand(o) for o in i.operands]
            out.append(i)
            if i in places:
                k = places[i]
                whole = elements[k]
                operands = [whole, i, *starts(i, self.updated[k])]
                updates[k] = add(f"{i.name}.update", "dynamic-update-slice", whole.shape, operands)
        after = add("next", "add", array(S32, ()), [index, step])
        root = add("after", "tuple", self.state, [after, *(updates[k] for k in range(count)), *elements[count:]])
        return Computation(name, out, root)

    def loop(
        self, names: Names, body: Computation, condition: Computation, name: str, line: int
    ) -> tuple[list[Instruction], dict[Instruction, Instruction]]:
        """The instructions around it, and what stands for each output."""
        start = _scalar(names.fresh(f"{name}.start"), 0)
        spaces = [allocation(names.fresh(f"{name}.space"), o.shape) for o in self.outputs]
        initial = Instruction(names.fresh(f"{name}.initial"), "tuple", self.state, [start, *spaces, *self.given])
        iterations = stated(self.whole // self.size)
        attributes: dict[str, Attribute] = {"condition": condition, "body": body, "backend_config": iterations}
        loop = Instruction(names.fresh(name), "while", self.state, [initial], attributes, line=line)
        made, value = [start, *spaces, initial, loop], {}
        for k, o in enumerate(self.outputs):
            stem = names.fresh(f"{o.name}.whole")
            value[o] = Instruction(stem, "get-tuple-element", o.shape, [loop], {"index": k + 1}, line=o.line)
        return [*made, *value.values()], value


def _scalar(name: str, value: int) -> Instruction:
    return Instruction(name, "constant", array(S32, ()), literal=np.array(value, np.int32))


def _outlined(computation: Computation, region: Region, outputs: Sequence[Instruction], iterations: int) -> _Segment:
    copy = RegionOutline(region)
    for i in computation.instructions:
        if i in region:
            copy.take(i)
    results = [copy.copies[o] for o in outputs]
    root = Instruction("results", "tuple", tuple_of([o.shape for o in results]))
    whole = copy.computation("segment", [copy.add(root, results)])
    updated = [region[o] for o in outputs]
    dims = blocked_dims(whole, list(zip(results, updated, strict=True)))
    extent = outputs[0].dims[updated[0]]
    return _Segment(
        resized(whole, dims, extent // iterations),
        copy.values,
        [dims.get(p) for p in copy.parameters],
        list(outputs),
        updated,
        extent // iterations,
        extent,
    )


def _insert(
    computation: Computation, region: Region, made: Sequence[Instruction], value: dict[Instruction, Instruction]
) -> None:
    """Put the loop in the place of the region: operands stay before their users, else the order is kept."""
    rest = [i for i in computation.instructions if i not in region]
    for i in rest:
        i.operands = [value.get(o, o) for o in i.operands]
    computation.root = value.get(computation.result, computation.result)
    place = min(n for n, i in enumerate(computation.instructions) if i in region)
    before = [i for i in computation.instructions[:place] if i not in region]
    out: dict[Instruction, None] = {}
    for i in (*before, *made, *rest):
        stack = [i]
        while stack:
            missing = [o for o in stack[-1].operands if o not in out]
            if missing:
                stack += missing
            else:
                out[stack.pop()] = None
    computation.instructions = list(out)
