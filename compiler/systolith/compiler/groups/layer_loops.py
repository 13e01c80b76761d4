"""Layers that are written out become a loop, where a layer takes long.

The parameters of all layers are a stack (`Stack`, a custom call that nothing computes): each iteration slices its own,
and groups read these where they lie.  Parameters that a layer updates in place (caches), or that its results are to
have the memory of (weights, by a step of training), are updated in the stack, and parts of it are the results
(`Unstack`).  What else is used outside, such as what the forward pass leaves to the backward pass, is a row of an array
that the loop gives; what is elementwise in the rest of that is computed again.  What the end of an iteration costs is
little beside the time of such layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.cones import elementwise_cone, moves_no_more
from systolith.compiler.groups.layer_body import LayerBody, Made, Parts, scalar, stacked
from systolith.compiler.groups.layer_order import by_products
from systolith.compiler.groups.layers import FEWEST, Before, Fixed, Layers, Rows, layers_of
from systolith.compiler.groups.loop_state import leaves_of
from systolith.compiler.groups.recomputation import LARGE
from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.trip_count import stated
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.memory.aliasing import read_aliases, read_donors
from systolith.compiler.memory.residency import STACK, UNSTACK, allocation
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Names
from systolith.isa.chip import Chip
from systolith.isa.dtypes import PRED, S32

LEAST = 400_000
"""Cycles that a layer takes by its parameters in HBM, or, in training, by its products: a loop costs 1 % at most.

Written out, 12 layers of BERT-base at 8 x 512 take 13.8 M cycles on `tpu_v3`, as a loop 17.0 M; but programs of
training have ten times the operations, and would take half an hour to compile.
"""

LEAST_SMALL = 120_000
"""Cycles that the products of a layer take that fit in VMEM one by one, but not in training: 11 layers of BERT-base at
1 x 512 take 0.7 % longer as a loop, 12 of GPT-2 small 0.9 %; at 1 x 128, half as long, 1.3 %, and 5 pairs of layers of
a decoding step, by their parameters, 4.9 %.
"""

FITS = 0.5
"""Part of VMEM that each product of a small layer takes at most (scores of attention come in blocks): at 8 x 128 a loop
takes 3.9 % longer.
"""

COPIED = 0.05
"""Part of the time of a layer that copies of its results may take at most: they are rows first."""


@dataclass(frozen=True)
class LoopOverLayers:
    """Let layers that are written out be a loop.

    Attributes:
        chip: whose HBM it is.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        parameters, decisions, effects = module.entry.parameters, list[Decision](), Effects()
        if not all(p.shape.is_array for p in parameters):
            return Outcome(False)
        if effects.within(module.entry) or control_predecessors(module.entry):
            return Outcome(False)  # what others do stays in its order
        while self._cycles(parameters, module.entry.instructions) >= FEWEST * min(LEAST, LEAST_SMALL):
            if (found := self._looped(module)) is None:
                break
            decisions.append(found)
        return Outcome(bool(decisions), tuple(decisions))

    def _looped(self, module: Module) -> Decision | None:
        """Let some layers be a loop: as many operations as can be, of as few as can be in a layer.

        The order is the one in which they are written, or that of their products.
        """
        entry, orders = module.entry, (module.entry.instructions, by_products(module.entry))
        found = [
            (-len(layers.rows) * len(layers.rows[0]), len(layers.rows[0]), n, layers)
            for n, order in enumerate(orders)
            for layers in layers_of(entry, order)
            if self._cycles([stack[0] for stack in layers.stacks], layers.rows[0]) >= self._least(layers.rows[0])
        ]
        for *_, n, layers in sorted(found, key=lambda each: each[:3]):
            own = [stack[0] for stack in layers.stacks]
            rewrite = _Loop.of(module, layers, self.chip.vmem.bytes // LARGE)
            if rewrite is None or not self._is_long(own, layers.rows[0], rewrite.trains):
                continue
            most = COPIED * self._cycles(own, layers.rows[0])
            if 2 * transfer_cycles(rewrite.copied, self.chip) > most:
                continue
            entry.root, entry.instructions = entry.result, list(orders[n])
            rewrite.insert()
            count, length = len(layers.rows), len(layers.rows[0])
            numbers = {"bytes of a layer": sum(p.shape.bytes for p in own)}
            return Decision("loop", rewrite.name, f"a loop of {count} layers of {length} operations", "", numbers)
        return None

    def _least(self, layer: Sequence[Instruction]) -> float:
        """Cycles from which on a layer may be worth it."""
        products = [i for i in layer if i.opcode == "dot" and not i.ints("lhs_batch_dims", ())]
        largest = max((i.shape.bytes for i in products), default=0)
        return min(LEAST, LEAST_SMALL) if largest <= FITS * self.chip.vmem.bytes else LEAST

    def _is_long(self, parameters: Sequence[Instruction], layer: Sequence[Instruction], trains: bool) -> bool:
        """Whether a layer takes so long that a loop costs little."""
        if self._cycles(parameters, layer if trains else ()) >= LEAST:
            return True
        return not trains and self._cycles((), layer) >= self._least(layer) < LEAST

    def _cycles(self, parameters: Sequence[Instruction], instructions: Sequence[Instruction]) -> float:
        """What parameters take in HBM, or instructions on the matrix units, whichever is longer."""
        mxu = self.chip.mxu
        macs = sum(
            prod(i.dims) * prod(i.operands[0].dims[d] for d in i.ints("lhs_contracting_dims"))
            for i in instructions
            if i.opcode == "dot"
        )
        moved = transfer_cycles(sum(p.shape.bytes for p in parameters), self.chip)
        return max(moved, macs / (mxu.count * mxu.rows * mxu.cols))


def _updates(module: Module, layers: Layers) -> dict[tuple[Instruction, ...], int] | None:
    """Stacks that layers update, each with the number of the operation; None: others need a parameter afterwards."""
    entry, users = module.entry, module.entry.users()
    after = _after(entry, {i for row in layers.rows for i in row})
    aliases = {a.parameter: a.result for a in read_aliases(module)}
    donors = {*read_donors(module)}
    results = entry.result.operands if entry.result.opcode == "tuple" else [entry.result]
    rows = [set(row) for row in layers.rows]
    found: dict[tuple[Instruction, ...], int] = {}
    for stack in layers.stacks:
        numbers = [p.number for p in stack]
        readers = [users[p] for p in stack]
        if not donors.isdisjoint(numbers):
            return None
        makers = [results[aliases[n]] if n in aliases else None for n in numbers]
        slots = {row.index(i) if i in inside else -1 for i, row, inside in zip(makers, layers.rows, rows, strict=True)}
        if slots == {-1}:
            continue
        if len(slots) != 1 or any(results.count(i) > 1 for i in makers if i is not None):
            return None
        if any(after.intersection(those) - row for those, row in zip(readers, rows, strict=True)):
            return None
        (found[stack],) = slots
    return found


def _after(computation: Computation, inside: set[Instruction]) -> set[Instruction]:
    """The instructions that need some others, and these."""
    found = set(inside)
    for i in computation.instructions:
        if not found.isdisjoint(i.operands):
            found.add(i)
    return found


@dataclass
class _Loop:
    """The loop in the place of layers.

    Attributes:
        module: it, of whose entry they are a part.
        layers: they.
        updated: stacks that are updated in place, with the number of the operation that does so in a layer.
        last: numbers of operations whose results of the last layer alone are used after it.
        rows: of those whose results of other layers are, too: rows of an array.
        again: of those that are computed again of these, with the operations of the second layer that do so.
    """

    module: Module
    layers: Layers
    updated: Mapping[tuple[Instruction, ...], int]
    last: Sequence[int]
    rows: Sequence[int]
    again: Mapping[int, Sequence[Instruction]]
    name: str = ""
    _made: Made = field(default_factory=lambda: Made(Names(())))

    @classmethod
    def of(cls, module: Module, layers: Layers, least: int) -> _Loop | None:
        """None: others use what these layers have; `least`: bytes of what is computed again."""
        updated = _updates(module, layers)
        if updated is None:
            return None
        places, end = set(updated.values()), len(layers.rows) - 1
        used = [(n, slot) for n, slot in layers.used_outside(module.entry) if slot not in places]
        early = sorted({slot for n, slot in used if n < end})
        inside = {i for row in layers.rows for i in row}
        changed = {p for stack in updated for p in stack}
        own = set(layers.rows[1])
        rows: dict[Instruction, int] = {}
        again: dict[int, Sequence[Instruction]] = {}

        def is_given(i: Instruction) -> bool:
            return i in rows or (i not in inside and i not in changed)

        for slot in early:
            value = layers.rows[1][slot]
            cone = elementwise_cone(value, is_given) if value.shape.bytes >= least else None
            if not value.shape.is_array:
                return None
            if cone is not None and moves_no_more(value, rows.keys() & cone):
                cone = None
            if cone is None or value is module.entry.result or not own.issuperset(inside.intersection(cone)):
                rows[value] = slot
            else:
                again[slot] = cone
        last = [slot for n, slot in used if slot not in early]
        return cls(module, layers, updated, last, [*rows.values()], again)

    @property
    def trains(self) -> bool:
        """Whether layers leave something to others, beside caches."""
        first = self.layers.rows[0]
        return bool(self.rows or any(first[slot].opcode != "dynamic-update-slice" for slot in self.updated.values()))

    @property
    def copied(self) -> int:
        """Bytes of rows that are results of the entry."""
        result = self.module.entry.result
        results = {result, *result.operands} if result.opcode == "tuple" else {result}
        return sum(
            self.layers.rows[1][s].shape.bytes for s in self.rows if any(r[s] in results for r in self.layers.rows)
        )

    def _compute_again(self) -> None:
        """Let what others use of elementwise operations of layers be made of rows again, where they use it."""
        entry, names = self.module.entry, self._made.names
        inside, number = {i for row in self.layers.rows for i in row}, _numbers(self.layers.rows[1])
        for cone in self.again.values():
            value = cone[-1]
            for row in self.layers.rows:
                readers = [i for i in entry.instructions if row[number[value]] in i.operands and i not in inside]
                if not readers:
                    continue
                made: dict[Instruction, Instruction] = {}
                for i in cone:
                    if i not in number or number[i] in self.rows:
                        continue
                    like = row[number[i]]
                    operands = [made.get(o, own) for o, own in zip(i.operands, like.operands, strict=True)]
                    made[i] = like.copy(operands, dict(like.attributes))
                    made[i].name = names.fresh(f"{like.name}.again")
                at = entry.instructions.index(readers[0])
                entry.instructions[at:at] = made.values()
                for reader in readers:
                    reader.operands = [made[value] if o is row[number[value]] else o for o in reader.operands]

    # The loop's state: index, carried values, what stays the same, stacks.

    def insert(self) -> None:
        """Change the entry."""
        entry = self.module.entry
        inside = {i for row in self.layers.rows for i in row}
        made = self._made = Made(Names([i.name for i in self.module.instructions()]))
        self._compute_again()
        callees = Names(c.name for c in self.module.computations)
        sources = [s for row in self.layers.sources for s in row]
        first = {s.slot: s.first for s in sources if isinstance(s, Before)}
        shared = dict.fromkeys(
            s.value if isinstance(s, Fixed) else s.array for s in sources if isinstance(s, (Fixed, Rows))
        )
        fixed = list(dict.fromkeys(leaf for value in shared for leaf in leaves_of(value)))
        slots = [*first, *(slot for slot in self.last if slot not in first)]
        row = self.layers.rows[1]
        carried = [first[slot] if slot in first else self._space(row[slot]) for slot in slots]
        stacks = {stack: self._stack(stack) for stack in self.layers.stacks}
        rows = [self._space(row[slot], len(self.layers.rows)) for slot in self.rows]
        start = [made.scalar("layer", 0), *carried, *fixed, *rows, *stacks.values()]
        state = tuple_of([i.shape for i in start])
        self.name = made.names.fresh("layers")
        parts = Parts(tuple(slots), tuple(fixed), tuple(self.rows), tuple(stacks))
        body = LayerBody(self.layers, self.updated, parts, made.names).made(callees.fresh(f"{self.name}.body"), state)
        condition = self._condition(callees.fresh(f"{self.name}.condition"), state)
        initial = made.add("layers.initial", "tuple", state, start)
        attributes: dict[str, Attribute] = {"condition": condition, "body": body}
        attributes["backend_config"] = stated(len(self.layers.rows))
        loop = Instruction(self.name, "while", state, [initial], attributes, line=row[0].line)
        made.out.append(loop)
        value: dict[Instruction, Instruction] = {}
        for k, slot in parts.slots_at:
            shape = row[slot].shape
            value[self.layers.rows[-1][slot]] = made.add("layers.last", "get-tuple-element", shape, [loop], index=k)
        for k, slot in parts.rows_at:
            value |= self._rows_of(loop, k, slot)
        for k, stack in parts.stacks_at:
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
        entry.instructions = [*given, *before, *made.out, *(i for i in after if i not in inside)]
        self.module.computations[0:0] = [condition, body]

    def _space(self, like: Instruction, count: int = 0) -> Instruction:
        """Memory for a value without contents; `count`: for so many rows of it."""
        shape = stacked(like.shape, count) if count else like.shape
        self._made.out.append(allocation(self._made.names.fresh("layers.space"), shape))
        return self._made.out[-1]

    def _rows_of(self, loop: Instruction, k: int, slot: int) -> dict[Instruction, Instruction]:
        """What others use of the results of an operation, after the loop."""
        whole = self._made.add("layers.rows", "get-tuple-element", loop.shape.elements[k], [loop], index=k)
        found: dict[Instruction, Instruction] = {}
        for n, row in enumerate(self.layers.rows):
            like = row[slot].shape
            cut = (SliceDim(n, n + 1), *(SliceDim(0, size) for size in like.dims))
            part = self._made.add("layers.row", "slice", array(like.dtype, (1, *like.dims)), [whole], slice=cut)
            found[row[slot]] = self._made.add("layers.row", "reshape", like, [part])
        return found

    def _stack(self, stack: Sequence[Instruction]) -> Instruction:
        shape = stacked(stack[0].shape, len(stack))
        return self._made.add("stack", "custom-call", shape, stack, custom_call_target=STACK)

    def _unstacked(self, loop: Instruction, k: int, stack: tuple[Instruction, ...]) -> dict[Instruction, Instruction]:
        """The updated parameters, after the loop."""
        whole = self._made.add("stack.last", "get-tuple-element", loop.shape.elements[k], [loop], index=k)
        return {
            row[self.updated[stack]]: self._made.add(
                "layers.last", "custom-call", p.shape, [whole, p], custom_call_target=UNSTACK, opaque=str(n)
            )
            for n, (row, p) in enumerate(zip(self.layers.rows, stack, strict=True))
        }

    def _condition(self, name: str, state: Shape) -> Computation:
        given = Instruction("state", "parameter", state, number=0)
        layer = Instruction("layer", "get-tuple-element", array(S32, ()), [given], {"index": 0})
        end = scalar("end", len(self.layers.rows))
        less = Instruction("less", "compare", array(PRED, ()), [layer, end], {"direction": "LT"})
        return Computation(name, [given, layer, end, less], less)


def _numbers(row: Sequence[Instruction]) -> dict[Instruction, int]:
    return {i: n for n, i in enumerate(row)}
