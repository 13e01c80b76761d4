"""Layers that are written out become a loop, where their parameters take HBM long.

The parameters of all layers are a stack (`Stack`, a custom call that nothing computes): each iteration slices its own,
and groups read these where they lie.  Parameters that a layer updates in place, caches, are updated in the stack, and
parts of it are the results (`Unstack`).  An iteration begins when the one before has ended: what that costs is little
beside the time of such parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.layers import FEWEST, Before, Fixed, Layers, Same, Source, Stacked, layers_of
from systolith.compiler.groups.loop_state import leaves_of
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.trip_count import stated
from systolith.compiler.memory.aliasing import read_aliases, read_donors
from systolith.compiler.memory.residency import ALLOCATE, STACK, UNSTACK
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip
from systolith.isa.dtypes import PRED, S32

LEAST = 400_000
"""Cycles in which HBM moves the parameters of a layer: a loop costs 1 % of them at most."""


@dataclass(frozen=True)
class LoopOverLayers:
    """Let layers that are written out be a loop.

    Attributes:
        chip: whose HBM it is.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        parameters = module.entry.parameters
        most = transfer_cycles(sum(p.shape.bytes for p in parameters), self.chip)
        if most < FEWEST * LEAST or not all(p.shape.is_array for p in parameters):
            return Outcome(False)
        for layers in layers_of(module.entry):
            size = sum(stack[0].shape.bytes for stack in layers.stacks)
            if transfer_cycles(size, self.chip) < LEAST:
                continue
            rewrite = _Loop.of(module, layers)
            if rewrite is None:
                continue
            rewrite.insert()
            count, length = len(layers.rows), len(layers.rows[0])
            what = f"a loop of {count} layers of {length} operations"
            return Outcome(True, (Decision("loop", rewrite.name, what, "", {"bytes of a layer": size}),))
        return Outcome(False)


def _updates(module: Module, layers: Layers) -> dict[tuple[Instruction, ...], int] | None:
    """Stacks that layers update in place, each with the number of the operation; None: others use a parameter."""
    entry, users = module.entry, module.entry.users()
    aliases = {(a.result, a.parameter) for a in read_aliases(module)}
    given = {a.parameter for a in read_aliases(module)} | {*read_donors(module)}
    results = entry.result.operands if entry.result.opcode == "tuple" else [entry.result]
    found: dict[tuple[Instruction, ...], int] = {}
    for stack in layers.stacks:
        readers = [users[p] for p in stack]
        if not any(p.number in given for p in stack):
            rows = [set(row) for row in layers.rows]
            if all(set(those) <= row for those, row in zip(readers, rows, strict=True)):
                continue
            return None
        slots = {layers.rows[n].index(those[0]) for n, those in enumerate(readers) if those[0] in layers.rows[n]}
        if len(slots) != 1 or any(len(those) != 1 for those in readers):
            return None
        (slot,) = slots
        made = [row[slot] for row in layers.rows]
        if not all(i.opcode == "dynamic-update-slice" and i.operands[0] is p for i, p in zip(made, stack, strict=True)):
            return None
        places = [[n for n, r in enumerate(results) if r is i] for i in made]
        if not all(at and {(n, p.number) for n in at} <= aliases for at, p in zip(places, stack, strict=True)):
            return None
        found[stack] = slot
    return found


@dataclass
class _Loop:
    """The loop in the place of layers.

    Attributes:
        module: it, of whose entry they are a part.
        layers: they.
        updated: stacks that are updated in place, with the number of the operation that does so in a layer.
        last: numbers of operations whose results of the last layer are used after it.
    """

    module: Module
    layers: Layers
    updated: Mapping[tuple[Instruction, ...], int]
    last: Sequence[int]
    name: str = ""
    _out: list[Instruction] = field(default_factory=list)
    _names: Names = field(default_factory=lambda: Names(()))

    @classmethod
    def of(cls, module: Module, layers: Layers) -> _Loop | None:
        """None: others use what these layers make, or have."""
        updated = _updates(module, layers)
        if updated is None:
            return None
        places = set(updated.values())
        used = [(n, slot) for n, slot in layers.used_outside(module.entry) if slot not in places]
        if any(n < len(layers.rows) - 1 for n, _ in used):
            return None
        return cls(module, layers, updated, [slot for _, slot in used])

    # The loop's state: index, carried values, what stays the same, stacks.

    def insert(self) -> None:
        """Change the entry."""
        entry = self.module.entry
        inside = {i for row in self.layers.rows for i in row}
        self._names = Names([i.name for i in self.module.instructions()])
        callees = Names(c.name for c in self.module.computations)
        sources = [s for row in self.layers.sources for s in row]
        first = {s.slot: s.first for s in sources if isinstance(s, Before)}
        shared = dict.fromkeys(s.value for s in sources if isinstance(s, Fixed))
        fixed = list(dict.fromkeys(leaf for value in shared for leaf in leaves_of(value)))
        slots = [*first, *(slot for slot in self.last if slot not in first)]
        row = self.layers.rows[1]
        carried = [first[slot] if slot in first else self._space(row[slot]) for slot in slots]
        stacks = {stack: self._stack(stack) for stack in self.layers.stacks}
        start = [_scalar(self._names.fresh("layer"), 0), *carried, *fixed, *stacks.values()]
        state = tuple_of([i.shape for i in start])
        self.name = self._names.fresh("layers")
        body = self._body(callees.fresh(f"{self.name}.body"), state, slots, fixed, [*stacks])
        condition = self._condition(callees.fresh(f"{self.name}.condition"), state)
        initial = self._add("layers.initial", "tuple", state, start)
        self._out.insert(len(self._out) - 1, start[0])
        attributes: dict[str, Attribute] = {"condition": condition, "body": body}
        attributes["backend_config"] = stated(len(self.layers.rows))
        loop = Instruction(self.name, "while", state, [initial], attributes, line=row[0].line)
        self._out.append(loop)
        value: dict[Instruction, Instruction] = {}
        for k, slot in enumerate(slots, 1):
            shape = row[slot].shape
            value[self.layers.rows[-1][slot]] = self._add("layers.last", "get-tuple-element", shape, [loop], index=k)
        for k, stack in enumerate(stacks, 1 + len(slots) + len(fixed)):
            if stack in self.updated:
                value |= self._unstacked(loop, k, stack)
        given = {i: None for i in entry.instructions if i.opcode in ("parameter", "constant")}
        entry.root = entry.result
        before, after = list[Instruction](), dict.fromkeys(inside)
        for i in entry.instructions:
            if i in inside or i in given:
                continue
            if any(o in after for o in i.operands):
                i.operands = [value.get(o, o) for o in i.operands]
                after[i] = None
            else:
                before.append(i)
        entry.root = value.get(entry.root, entry.root)
        entry.instructions = [*given, *before, *self._out, *(i for i in after if i not in inside)]
        self.module.computations[0:0] = [condition, body]

    def _space(self, like: Instruction) -> Instruction:
        return self._add("layers.space", "custom-call", like.shape, [], custom_call_target=ALLOCATE)

    def _stack(self, stack: Sequence[Instruction]) -> Instruction:
        shape = _stacked(stack[0].shape, len(stack))
        return self._add("stack", "custom-call", shape, stack, custom_call_target=STACK)

    def _unstacked(self, loop: Instruction, k: int, stack: tuple[Instruction, ...]) -> dict[Instruction, Instruction]:
        """The updated parameters, after the loop."""
        whole = self._add("stack.last", "get-tuple-element", loop.shape.elements[k], [loop], index=k)
        return {
            row[self.updated[stack]]: self._add(
                "layers.last", "custom-call", p.shape, [whole, p], custom_call_target=UNSTACK, opaque=str(n)
            )
            for n, (row, p) in enumerate(zip(self.layers.rows, stack, strict=True))
        }

    def _condition(self, name: str, state: Shape) -> Computation:
        given = Instruction("state", "parameter", state, number=0)
        layer = Instruction("layer", "get-tuple-element", array(S32, ()), [given], {"index": 0})
        end = _scalar("end", len(self.layers.rows))
        less = Instruction("less", "compare", array(PRED, ()), [layer, end], {"direction": "LT"})
        return Computation(name, [given, layer, end, less], less)

    def _body(
        self,
        name: str,
        state: Shape,
        slots: Sequence[int],
        fixed: Sequence[Instruction],
        stacks: Sequence[tuple[Instruction, ...]],
    ) -> Computation:
        outer, self._out = self._out, []
        given = Instruction(self._names.fresh("layers.state"), "parameter", state, number=0)
        self._out.append(given)
        shapes = enumerate(state.elements)
        parts = [self._add("layers.part", "get-tuple-element", shape, [given], index=k) for k, shape in shapes]
        layer, zero, one = parts[0], _scalar(self._names.fresh("zero"), 0), _scalar(self._names.fresh("one"), 1)
        self._out += [zero, one]
        before = dict(zip(slots, parts[1:], strict=False))
        kept = dict(zip(fixed, parts[1 + len(slots) :], strict=False))
        stacked = dict(zip(stacks, parts[1 + len(slots) + len(fixed) :], strict=True))
        made: dict[int, Instruction] = {}
        own: dict[tuple[Instruction, ...], Instruction] = {}

        def slice_of(whole: Instruction, like: Shape) -> Instruction:
            sizes = (1, *like.dims)
            start = [layer, *(zero for _ in like.dims)]
            shape = array(like.dtype, sizes)
            part = self._add("layers.slice", "dynamic-slice", shape, [whole, *start], dynamic_slice_sizes=sizes)
            return self._add("layers.own", "reshape", like, [part])

        def of_type(starts: Sequence[Instruction]) -> Instruction:
            if not starts or starts[0].shape.dtype is S32:
                return layer
            return self._add("layers.start", "convert", array(starts[0].shape.dtype, ()), [layer])

        def again(value: Instruction) -> Instruction:
            if value not in kept:
                operands = [again(o) for o in value.operands]
                kept[value] = value.copy(operands, dict(value.attributes))
                kept[value].name = self._names.fresh(value.name)
                self._out.append(kept[value])
            return kept[value]

        def operand(source: Source) -> Instruction:
            if isinstance(source, Same):
                return made[source.slot]
            if isinstance(source, Before):
                return before[source.slot]
            if isinstance(source, Stacked):
                if source.values not in own:
                    own[source.values] = slice_of(stacked[source.values], source.values[0].shape)
                return own[source.values]
            return again(source.value)

        updates = {slot: stack for stack, slot in self.updated.items()}
        for slot, (i, sources) in enumerate(zip(self.layers.rows[1], self.layers.sources, strict=True)):
            if slot in updates:
                stack = updates[slot]
                update, *starts = map(operand, sources[1:])
                rows = array(update.shape.dtype, (1, *update.dims))
                wide = self._add("layers.update", "reshape", rows, [update])
                whole = stacked[stack]
                operands = [whole, wide, of_type(starts), *starts]
                stacked[stack] = self._add("stack.next", "dynamic-update-slice", whole.shape, operands)
                made[slot] = slice_of(stacked[stack], i.shape)
                continue
            made[slot] = i.copy([operand(s) for s in sources], dict(i.attributes))
            self._out.append(made[slot])
        after = self._add("layer.next", "add", array(S32, ()), [layer, one])
        values = [after, *(made[slot] for slot in slots), *(kept[f] for f in fixed), *stacked.values()]
        root = self._add("layers.after", "tuple", state, values)
        out, self._out = self._out, outer
        return Computation(name, out, root)

    def _add(
        self, stem: str, opcode: str, shape: Shape, operands: Sequence[Instruction], **attributes: Attribute
    ) -> Instruction:
        made = Instruction(self._names.fresh(stem), opcode, shape, list(operands), attributes)
        self._out.append(made)
        return made


def _stacked(shape: Shape, count: int) -> Shape:
    return array(shape.dtype, (count, *shape.dims))


def _scalar(name: str, value: int) -> Instruction:
    return Instruction(name, "constant", array(S32, ()), literal=np.array(value, np.int32))
