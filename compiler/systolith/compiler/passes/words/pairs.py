"""Values of element types that the chip does not have become pairs of values that it has.

A value of such a type is two arrays, its parts: in a tuple, as the state of a loop and as the result of a branch it is
the tuple of the two.  What the module takes and gives keeps its type and its bytes, in which the parts of an element
are neighbours: a `bitcast` shows them along a new last dimension.  `PairedTypes` says which types are split, into what,
and has a rule for each opcode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.on_arrays import applied, is_simple
from systolith.compiler.passes.part_views import depth_of_view
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DType

Pair = tuple[Instruction, Instruction]
Value = Instruction | Pair
"""An array of a type that the chip has, or the two parts of another one."""

STRUCTURE = frozenset({"parameter", "tuple", "get-tuple-element", "while", "conditional", "call", "opt-barrier"})
"""Opcodes that hand values on, and take and give tuples."""

FEEDS = frozenset({"infeed", "outfeed"})
"""Opcodes whose arrays keep their types, as those of the module do: the host's have these."""

COMBINING = frozenset({"reduce", "reduce-window", "scatter"})
"""Opcodes that combine elements by a computation of scalars: with parts they are variadic."""


@dataclass(frozen=True)
class PairRule:
    """How an opcode is rewritten.

    Attributes:
        rule: makes what stands for an instruction, of what stands for its operands.
        takes: whether the rule is for this instruction; None: for every one of the opcode.
    """

    rule: Callable[[PairRewriter, Instruction, Sequence[Value]], Value]
    takes: Callable[[Instruction], bool] | None = None


@dataclass(frozen=True, eq=False)
class PairedTypes:
    """Types that are split.

    Attributes:
        parts: what each part of an element is, by the type; in memory the first one comes first.
        rules: by opcode.
        names: of the parts.
    """

    parts: Mapping[DType, DType]
    rules: Mapping[str, PairRule]
    names: tuple[str, str]

    def splits(self, shape: Shape) -> bool:
        """Whether it is an array of such a type."""
        return shape.is_array and shape.dtype in self.parts

    def within(self, shape: Shape) -> bool:
        """Whether it has such an array."""
        return any(map(self.splits, shape.leaves()))

    def touches(self, i: Instruction) -> bool:
        """Whether an instruction takes or gives such an array."""
        return self.within(i.shape) or any(self.within(o.shape) for o in i.operands)

    def part(self, shape: Shape) -> Shape:
        """The shape of a part."""
        return array(self.parts[shape.dtype], shape.dims)

    def split(self, shape: Shape) -> Shape:
        """The shape that stands for another one."""
        if shape.is_tuple:
            return tuple_of([self.split(e) for e in shape.elements])
        return tuple_of([self.part(shape)] * 2) if self.splits(shape) else shape

    def run(self, module: Module) -> bool:
        """Split all such values, if every operation on them can be; those that the module takes and gives, as said."""
        order = module.post_order()
        touched = [c for c in order if any(map(self.touches, c.instructions))]
        if not touched or self.obstacle(module) is not None:
            return False
        if touched == [module.entry] and not any(self._is_inside(i) for i in module.entry.instructions):
            return False
        callees = Callees(module)
        rewrite(module, self._unmapped)
        order = module.post_order()
        touched = [c for c in order if any(map(self.touches, c.instructions))]
        applied = {c for i in module.instructions() if i.opcode in COMBINING and self.touches(i) for c in i.called}
        for computation in touched:
            if computation not in applied:
                PairRewriter(self, computation, callees, computation is module.entry).split()
        callees.place()
        return True

    def obstacle(self, module: Module) -> Instruction | None:
        """The first instruction on such values that cannot be on parts."""
        return next((i for c in module.post_order() for i in self._obstacles(c)), None)

    def _obstacles(self, computation: Computation) -> Iterator[Instruction]:
        before = control_predecessors(computation)
        pinned = set(before).union(*before.values())
        for i in computation.instructions:
            if self.touches(i) and ((i in pinned and i.opcode not in FEEDS) or not self._possible(i)):
                yield i

    def _possible(self, i: Instruction) -> bool:
        if any(s.is_dynamic for s in (i.shape, *(o.shape for o in i.operands))):
            return False
        if i.opcode == "map":
            return is_simple(i.computation())
        if i.opcode in STRUCTURE or i.opcode in COMBINING or i.opcode in FEEDS:
            return True
        found = self.rules.get(i.opcode) if i.shape.is_array else None
        return found is not None and (found.takes is None or found.takes(i))

    def _unmapped(self, r: Rewriter, i: Instruction) -> Instruction | None:
        """A `map` of such values as operations on arrays."""
        return applied(r, i.computation(), *i.operands) if i.opcode == "map" and self.touches(i) else None

    def _is_inside(self, i: Instruction) -> bool:
        """Whether an instruction of the entry does more with such values than to take, show or give them."""
        if not self.touches(i) or i.opcode in ("parameter", "tuple", "get-tuple-element"):
            return False
        return not depth_of_view(i)


MOVED = {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}
"""How many operands are moved, of opcodes whose others are indices."""


def by_part(
    r: PairRewriter, i: Instruction, operands: Sequence[Value], index: Callable[[Instruction, Value], Instruction]
) -> Value:
    """The same operation on each part; `index`: an operand that is an index, and what stands for it, as one array."""
    moved = MOVED.get(i.opcode, len(operands))
    rest = [index(i.operands[k], operands[k]) for k in range(moved, len(operands))]

    def part(k: int) -> Instruction:
        taken = [v if isinstance(v, Instruction) else v[k] for v in operands[:moved]]
        return r.like(i, [*taken, *rest], r.types.part(i.shape) if r.types.splits(i.shape) else i.shape)

    return (part(0), part(1)) if r.types.splits(i.shape) else part(0)


def one(value: Value) -> Instruction:
    """The instruction that stands for an array of a type that is not split."""
    assert isinstance(value, Instruction), f"{value} is a pair"
    return value


def pair(value: Value) -> Pair:
    """The pair that stands for an array of a type that is split."""
    assert not isinstance(value, Instruction), f"{value} is no pair"
    return value


class PairRewriter(Rewriter):
    """Rewrites one computation.

    Attributes:
        types: that are split.
        callees: makes computations.
        of: what stands for an instruction: another (or itself), or the parts of an array.
    """

    def __init__(self, types: PairedTypes, computation: Computation, callees: Callees, entry: bool) -> None:
        super().__init__(computation)
        self.types, self.callees, self.entry = types, callees, entry
        self.of: dict[Instruction, Value] = {}
        self._given: set[Instruction] = set()
        self._full: dict[tuple[bytes, DType, tuple[int, ...]], Instruction] = {}

    def full(self, value: object, shape: Shape) -> Instruction:
        """One value, repeated to a shape; made once."""
        key = (np.asarray(value, shape.dtype.stored).tobytes(), shape.dtype, shape.dims)
        if key not in self._full:
            self._full[key] = super().full(value, shape)
        return self._full[key]

    def split(self) -> None:
        """Rewrite the computation in place: what stands for tuples are tuples of parts."""
        self._instructions()
        root = self.computation.result
        self._at = root
        self.computation.root = self._as_given(root) if self.entry else self._whole(root)
        self.computation.instructions = self._out

    def split_scalars(self) -> None:
        """Rewrite a computation of scalars in place: parts are parameters and results of their own."""
        numbers = 0
        for p in self.computation.parameters:
            if self.types.splits(p.shape):
                part = self.types.part(p.shape)
                found = [Instruction(self._names.fresh(p.name), "parameter", part, number=numbers + k) for k in (0, 1)]
                self._out += found
                self.of[p] = (found[0], found[1])
            else:
                p.number = numbers
                self._out.append(p)
                self.of[p] = p
            numbers += 1 + self.types.splits(p.shape)
        self._instructions()
        root = self.computation.result
        self._at = root
        made = root.operands if root.opcode == "tuple" else [root]
        flat = [part for i in made for part in self._parts(i)]
        self.computation.root = flat[0] if len(flat) == 1 and not root.shape.is_tuple else self.emit("tuple", *flat)
        self.computation.instructions = self._out

    def _instructions(self) -> None:
        for i in self.computation.instructions:
            if i not in self.of:
                self._at = i
                self.of[i] = self._value(i)

    def _value(self, i: Instruction) -> Value:
        """The value that stands for an instruction, made of those that stand for its operands."""
        if not self.types.touches(i):
            i.operands = [self._whole(o) for o in i.operands]
            self._out.append(i)
            return i
        if i.opcode in FEEDS:
            return self._fed(i)
        if i.opcode in STRUCTURE:
            return self._structure(i)
        if i.opcode in COMBINING:
            return self._combining(i)
        return self.types.rules[i.opcode].rule(self, i, [self.of[o] for o in i.operands])

    def _structure(self, i: Instruction) -> Value:
        types = self.types
        if (self.entry and i.opcode == "parameter") or (
            i.opcode == "get-tuple-element" and i.operands[0] in self._given
        ):
            self._out.append(i)
            self._given.add(i)
            return self.parts_of(i) if types.splits(i.shape) else i
        attributes = {k: v for k, v in i.attributes.items() if k != "sharding"}
        made = i.copy([self._split(o) for o in i.operands], attributes, types.split(i.shape))
        self._out.append(made)
        return self._opened(made, i.name) if types.splits(i.shape) else made

    def _fed(self, i: Instruction) -> Value:
        """An infeed or outfeed, of arrays as the host has them."""
        i.operands = [self._as_given(o) if self.types.within(o.shape) else self._whole(o) for o in i.operands]
        self._out.append(i)
        if i.opcode == "infeed":
            self._given.add(i)
        return i

    def _opened(self, made: Instruction, name: str) -> Pair:
        """The parts that a tuple holds."""
        first, second = (
            self.emit("get-tuple-element", made, name=f"{name}.{part}", index=k)
            for k, part in enumerate(self.types.names)
        )
        return first, second

    def _combining(self, i: Instruction) -> Value:
        """An operation by a computation of scalars, of parts: its arrays, indices (of scatter) and updates in order."""
        flat = [part for o in i.operands for part in self._parts(o)]
        if i.opcode == "scatter":
            indices = i.operands[len(i.operands) // 2]
            if self.types.splits(indices.shape):
                raise AssertionError("indices of a scatter are of 32 bits once it has one for each window")
        given = list(i.shape.elements) if i.shape.is_tuple else [i.shape]
        shapes = [s for shape in given for s in ([self.types.part(shape)] * 2 if self.types.splits(shape) else [shape])]
        copy = _copied(i.computation(), self.callees.name(f"{i.computation().name}.parts"))
        PairRewriter(self.types, copy, self.callees, entry=False).split_scalars()
        self.callees.add(copy)
        single = len(shapes) == 1
        made = self.like(i, flat, shapes[0] if single else tuple_of(shapes))
        made.attributes["to_apply"] = copy
        if single:
            return made
        found = [self.emit("get-tuple-element", made, index=k) for k in range(len(shapes))]
        values: list[Value] = []
        for shape in given:
            values.append((found.pop(0), found.pop(0)) if self.types.splits(shape) else found.pop(0))
        if not i.shape.is_tuple:
            return values[0]
        return self.emit("tuple", *(v if isinstance(v, Instruction) else self.emit("tuple", *v) for v in values))

    # Values and what stands for them.

    def _parts(self, i: Instruction) -> list[Instruction]:
        value = self.of[i]
        return [value] if isinstance(value, Instruction) else list(value)

    def _whole(self, i: Instruction) -> Instruction:
        """Its replacement as one instruction: of parts their tuple."""
        value = self.of[i]
        return value if isinstance(value, Instruction) else self.emit("tuple", *value, name=f"{i.name}.parts")

    def _split(self, i: Instruction) -> Instruction:
        """Its replacement as one instruction, for what takes parts: of a tuple that is given, that of its parts."""
        return (
            self._tuple_of_parts(self._whole(i), i.shape) if i in self._given and i.shape.is_tuple else self._whole(i)
        )

    def _tuple_of_parts(self, x: Instruction, shape: Shape) -> Instruction:
        if not self.types.within(shape):
            return x
        if shape.is_array:
            return self.emit("tuple", *self.parts_of(x))
        elements = [self.emit("get-tuple-element", x, index=k) for k in range(len(shape.elements))]
        return self.emit("tuple", *(self._tuple_of_parts(e, e.shape) for e in elements))

    def _as_given(self, i: Instruction) -> Instruction:
        """The value of an instruction with its own type."""
        if i in self._given or self.of[i] is i:
            return i
        if i.opcode == "tuple":
            return self.emit("tuple", *map(self._as_given, i.operands), shape=i.shape, name=i.name)
        return self._joined(self.of[i], i.shape)

    def _joined(self, value: Value, shape: Shape) -> Instruction:
        if not isinstance(value, Instruction):
            return self.whole_of(value, shape)
        if value.shape == shape or not self.types.within(shape):
            return value
        elements = [self.emit("get-tuple-element", value, index=k) for k in range(len(value.shape.elements))]
        if shape.is_array:
            return self.whole_of((elements[0], elements[1]), shape)
        return self.emit("tuple", *(self._joined(e, s) for e, s in zip(elements, shape.elements, strict=True)))

    def parts_of(self, x: Instruction) -> Pair:
        """The parts of an array as the module takes it."""
        shown = self.emit("bitcast", x, shape=array(self.types.parts[x.shape.dtype], (*x.dims, 2)))
        return self.parts_along_last(shown)

    def parts_along_last(self, shown: Instruction) -> Pair:
        """The parts that are neighbours along the last dimension."""
        *dims, _ = shown.dims
        first, second = (self.reshaped(self.sliced(shown, [*((0, n) for n in dims), (k, k + 1)]), dims) for k in (0, 1))
        return first, second

    def together(self, pair: Pair) -> Instruction:
        """The parts as neighbours along a new last dimension."""
        part = pair[0].shape
        longer = [self.reshaped(p, (*part.dims, 1)) for p in pair]
        shape = array(part.dtype, (*part.dims, 2))
        return self.emit("concatenate", *longer, shape=shape, dimensions=(part.rank,))

    def whole_of(self, pair: Pair, shape: Shape) -> Instruction:
        """Parts as an array that the module gives."""
        return self.emit("bitcast", self.together(pair), shape=shape)

    def _append(self, made: Instruction) -> Instruction:
        if self._at is not None and "metadata" in self._at.attributes:
            made.attributes.setdefault("metadata", self._at.attributes["metadata"])
        return super()._append(made)


def _copied(computation: Computation, name: str) -> Computation:
    """A computation again, its instructions new."""
    again: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        again[i] = i.copy([again[o] for o in i.operands], dict(i.attributes))
    return Computation(name, list(again.values()), again[computation.result])
