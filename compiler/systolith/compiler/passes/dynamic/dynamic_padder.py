"""Arrays of dynamic sizes as arrays of their bounds, with their sizes beside them.

Their actual sizes are scalars of their own: further parameters and results of the module, further state of loops,
further operands and results of branches.  The module says which are sizes of what (`ENTRY_SIZES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.hlo.clone import clone_computation
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import UNBOUNDED, Shape, array, tuple_of
from systolith.compiler.ops.table import is_elementwise
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.dynamic.dynamic_rules import CALLS, RULES, elementwise
from systolith.compiler.passes.dynamic.dynamic_values import Padded, Padder, Value, leaves, rebuilt, refused, static
from systolith.compiler.passes.dynamic.entry_sizes import EntrySizes, Place
from systolith.compiler.passes.real_expression import Real
from systolith.isa.dtypes import S32

GROWING = ("set-dimension-size", "dynamic-reshape")


@dataclass(frozen=True)
class PadDynamicSizes:
    """Make all sizes static: arrays of dynamic sizes have their bounds, and their actual sizes are scalars."""

    def run(self, module: Module) -> bool:
        dynamic = [i for i in module.instructions() if is_dynamic(i)]
        if not dynamic:
            return False
        for i in dynamic:
            if any(UNBOUNDED in leaf.dims for leaf in i.shape.leaves()):
                raise refused(i, "a size without a bound has no lowering")
        callees = Callees(module)
        sizes = EntrySizes()
        wrapped = _Computation(module.entry, callees).entry(sizes)
        callees.place()
        sizes.note(module, wrapped)
        return True


def is_dynamic(i: Instruction) -> bool:
    """Whether it makes or has an array whose size only the run knows."""
    return i.shape.is_dynamic or i.opcode in GROWING or i.attributes.get("custom_call_target") == "SliceToDynamic"


def _is_touched(computation: Computation) -> bool:
    found = any(is_dynamic(i) for i in computation.instructions)
    return found or any(_is_touched(c) for i in computation.instructions for c in i.called)


class _Computation:
    """Rewrites one computation that runs: the entry, or a body, a condition or a branch in it."""

    def __init__(self, computation: Computation, callees: Callees) -> None:
        self.computation, self.callees = computation, callees
        self.p = Padder(computation, callees)

    @staticmethod
    def inside(computation: Computation, callees: Callees, given: Shape, wanted: Shape | None) -> Computation:
        """A copy of a body, condition or branch, as `inner` makes it."""
        copy = clone_computation(computation, callees.name(f"{computation.name}.padded"))
        return _Computation(copy, callees).inner(given, wanted)

    def entry(self, sizes: EntrySizes) -> bool:
        """With sizes as further parameters and results; says if one result has become the first of a tuple."""
        p, parameters = self.p, self.computation.parameters
        number = len(parameters)
        flat = [sum(s.is_array for s in x.shape.leaves()) for x in parameters]
        for x in sorted(parameters, key=lambda x: x.number or 0):
            p.at(x)
            made = replace(x, shape=static(x.shape))
            p.keep(made)
            arrays = list(leaves(p.opened(made)))
            found: list[dict[int, Instruction]] = [{} for _ in arrays]
            for k, d in _dynamic_dims(x.shape):
                size = p.emit("parameter", shape=array(S32), name=f"{x.name}.size{d}")
                size.number = number
                sizes.parameters[Place(sum(flat[: x.number]) + k, d)] = sum(flat) + number - len(parameters)
                number += 1
                found[k][d] = size
            p.of[x] = rebuilt(x.shape, iter([Padded(a.i, s) for a, s in zip(arrays, found, strict=True)]))
        self._instructions()
        root = self.computation.result
        value = p.of[root]
        p.at(root)
        arrays = [x for x in leaves(value) if x.i.shape.is_array]
        more = [(Place(k, d), n) for k, x in enumerate(arrays) for d, n in sorted(x.sizes.items())]
        parts = [value] if isinstance(value, Padded) else list(value)
        for k, (place, _) in enumerate(more):
            sizes.results[place] = len(arrays) + k
        if more:
            self.computation.root = p.emit("tuple", *map(p.whole, parts), *(n for _, n in more))
        else:
            self.computation.root = p.whole(value)
        self.computation.instructions = p.made
        return bool(more) and isinstance(value, Padded)

    def inner(self, given: Shape, wanted: Shape | None) -> Computation:
        """With flat tuples: of what is given (arrays, then their sizes), and of what is wanted.

        Args:
            given: the shape of the parameter.
            wanted: that of the result; None: it stays as it is.
        """
        p = self.p
        (x,) = self.computation.parameters
        p.at(x)
        made = replace(x, shape=_flat_shape(given))
        p.keep(made)
        p.of[x] = _unflattened(p, made, given)
        self._instructions()
        value = p.of[self.computation.result]
        p.at(self.computation.result)
        root = p.whole(value) if wanted is None else _flattened(p, value, wanted, self.computation.result)
        self.computation.instructions, self.computation.root = p.made, root
        return self.callees.add(self.computation)

    def _instructions(self) -> None:
        for i in self.computation.instructions:
            if i not in self.p.of:
                self.p.at(i)
                self.p.of[i] = self._value(i)

    def _value(self, i: Instruction) -> Value:
        p = self.p
        values = [p.of[o] for o in i.operands]
        if i.opcode == "tuple":
            return tuple(values)
        if i.opcode == "get-tuple-element":
            (whole,) = values
            assert not isinstance(whole, Padded)
            return whole[i.integer("index")]
        if i.opcode == "opt-barrier":
            return values[0]
        if i.opcode in ("while", "conditional") and (
            any(map(_is_touched, i.called)) or any(x.sizes for v in values for x in leaves(v))
        ):
            return self._loop(i, values[0]) if i.opcode == "while" else self._branches(i, values)
        if not is_dynamic(i) and not any(x.sizes for v in values for x in leaves(v)):
            return p.opened(self._kept(i, [p.whole(v) for v in values]))
        arrays = [v for v in values if isinstance(v, Padded)]
        rule = elementwise if is_elementwise(i) else RULES.get(i.opcode)
        if i.opcode == "custom-call":
            rule = CALLS.get(i.word("custom_call_target"))
        if rule is None or len(arrays) != len(values):
            raise refused(i)
        return rule(p, i, arrays)

    def _kept(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """An instruction without dynamic sizes, of what stands for its operands."""
        i.operands = list(operands)
        self.p.keep(i)
        return i

    def _loop(self, i: Instruction, state: Value) -> Value:
        p = self.p
        shape = i.shape
        condition, body = (i.computation(key) for key in ("condition", "body"))
        made = p.like(i, [_flattened(p, state, shape, i)], _flat_shape(shape))
        made.attributes = {
            **made.attributes,
            "condition": self.inside(condition, self.callees, shape, None),
            "body": self.inside(body, self.callees, shape, shape),
        }
        return _unflattened(p, made, shape)

    def _branches(self, i: Instruction, values: Sequence[Value]) -> Value:
        p = self.p
        index, *given = values
        operands = [_flattened(p, v, o.shape, i) for v, o in zip(given, i.operands[1:], strict=True)]
        made = p.like(i, [p.whole(index), *operands], _flat_shape(i.shape))
        shapes = [o.shape for o in i.operands[1:]]

        def padded(called: Sequence[Computation]) -> list[Computation]:
            return [self.inside(c, self.callees, s, i.shape) for c, s in zip(called, shapes, strict=True)]

        if "branch_computations" in i.attributes:
            made.attributes["branch_computations"] = tuple(padded(i.called))
        else:
            keys = "true_computation", "false_computation"
            made.attributes.update(zip(keys, padded([i.computation(key) for key in keys]), strict=True))
        return _unflattened(p, made, i.shape)


def _dynamic_dims(shape: Shape) -> Iterator[tuple[int, int]]:
    """(leaf, dimension) of all sizes that only the run knows."""
    for k, leaf in enumerate(shape.leaves()):
        for d, flag in enumerate(leaf.dynamic):
            if flag:
                yield k, d


def _flat_shape(shape: Shape) -> Shape:
    """The tuple of all arrays, then of their sizes."""
    return tuple_of([*map(static, shape.leaves()), *(array(S32) for _ in _dynamic_dims(shape))])


def _flattened(p: Padder, value: Value, shape: Shape, i: Instruction) -> Instruction:
    """A value as that tuple.

    Raises:
        CompileError: it has a dynamic size that the shape does not say.
    """
    arrays = list(leaves(value))
    said = list(_dynamic_dims(shape))
    if any((k, d) not in said for k, x in enumerate(arrays) for d in x.sizes):
        raise refused(i, f"it takes or gives a size that its shape, {shape}, does not say to be dynamic")
    sizes = [Real(p, p.size(arrays[k], d).i).i for k, d in said]
    return p.emit("tuple", *(x.i for x in arrays), *sizes)


def _unflattened(p: Padder, made: Instruction, shape: Shape) -> Value:
    parts = [p.emit("get-tuple-element", made, index=k) for k in range(len(made.shape.elements))]
    count = len(list(shape.leaves()))
    found: list[dict[int, Instruction]] = [{} for _ in range(count)]
    for n, (k, d) in enumerate(_dynamic_dims(shape)):
        found[k][d] = parts[count + n]
    return rebuilt(shape, iter([Padded(x, sizes) for x, sizes in zip(parts, found, strict=False)]))
