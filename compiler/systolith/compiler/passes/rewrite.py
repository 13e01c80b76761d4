"""One sweep over a computation that replaces instructions: every name, place and use is found in constant time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import numpy as np

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Literal, Module
from systolith.compiler.hlo.rules.shapes import infer
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.visiting import control_predecessors
from systolith.isa.dtypes import PRED, DType

INHERITED = ("metadata", "frontend_attributes", "sharding")
"""Attributes of a replaced instruction that the new one takes over, unless it has its own."""


class Names:
    """Names that are taken; new ones are unique."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._last: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """`stem`, or `stem.N` with the next N that makes it unique."""
        name = stem
        while name in self._taken:
            number = self._last[stem] = self._last.get(stem, 0) + 1
            name = f"{stem}.{number}"
        self._taken.add(name)
        return name


class Rewriter:
    """The interface by which rules make instructions, which stand before the one to be replaced.

    Attributes:
        computation: what is rewritten.
        pinned: instructions that state control dependencies, or are named in one; they are never replaced.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        before = control_predecessors(computation)
        self.pinned = set(before).union(*before.values())
        self._names = Names(i.name for i in computation.instructions)
        self._values: dict[Instruction, Instruction] = {}
        self._out: list[Instruction] = []
        self._gone: set[Instruction] = set()
        self._at: Instruction | None = None

    @property
    def made(self) -> list[Instruction]:
        """The instructions so far."""
        return self._out

    @cached_property
    def uses(self) -> Counter[Instruction]:
        """How often each instruction was an operand before the sweep; of the root, once more."""
        found = Counter(o for i in self.computation.instructions for o in i.operands)
        found[self.computation.result] += 1
        return found

    @cached_property
    def has_dynamic_sizes(self) -> bool:
        """Whether some array may have another size than its shape says (which need not say that it is dynamic)."""
        return any(
            i.opcode in ("set-dimension-size", "dynamic-reshape")
            or i.attributes.get("custom_call_target") == "SliceToDynamic"
            or i.shape.is_dynamic
            for i in self.computation.instructions
        )

    def emit(
        self,
        opcode: str,
        *operands: Instruction,
        shape: Shape | None = None,
        name: str | None = None,
        **attributes: Attribute,
    ) -> Instruction:
        """A new instruction.

        Args:
            opcode: XLA's name.
            operands: instructions that stand before.
            shape: shape of the result; may be left out where operands and attributes give it.
            name: stem of its name; the opcode if None.
            attributes: such as `dimensions=(0, 1)`.
        """
        made = Instruction(self._names.fresh(name or opcode), opcode, shape or array(PRED), list(operands), attributes)
        if shape is None:
            made.shape = infer(made)
        return self._append(made)

    def constant(self, value: object, dtype: DType) -> Instruction:
        """A new constant."""
        literal = np.asarray(value, dtype.stored)
        return self.literal(literal, array(dtype, literal.shape))

    def literal(self, value: Literal | None, shape: Shape) -> Instruction:
        """A new constant of any shape; None: without values, as where the text leaves them out."""
        return self._append(Instruction(self._names.fresh("constant"), "constant", shape, literal=value))

    def full(self, value: object, shape: Shape) -> Instruction:
        """One value, repeated to a shape."""
        return self.spread(self.constant(value, shape.dtype), shape)

    def spread(self, scalar: Instruction, shape: Shape) -> Instruction:
        """A scalar, repeated to a shape."""
        return self.emit("broadcast", scalar, shape=shape, dimensions=()) if shape.rank else scalar

    def drop(self, i: Instruction) -> None:
        """Let an earlier instruction go if nothing uses it any more."""
        self._gone.add(i)

    def reshaped(self, x: Instruction, dims: Sequence[int]) -> Instruction:
        """An array with other dimensions; of the same ones as it is."""
        dims = tuple(dims)
        return x if x.dims == dims else self.emit("reshape", x, shape=array(x.shape.dtype, dims))

    def transposed(self, x: Instruction, order: Sequence[int]) -> Instruction:
        """An array with its dimensions in an order."""
        order = tuple(order)
        same = order == tuple(range(len(order)))
        return x if same else self.emit("transpose", x, dimensions=order)

    def converted(self, x: Instruction, dtype: DType) -> Instruction:
        """An array as another type; of the same type as it is."""
        return x if x.shape.dtype == dtype else self.emit("convert", x, shape=array(dtype, x.dims))

    def sliced(self, x: Instruction, ends: Sequence[tuple[int, int]]) -> Instruction:
        """A part of an array, from the first to before the last index in each dimension."""
        whole = all(cut == (0, n) for cut, n in zip(ends, x.dims, strict=True))
        return x if whole else self.emit("slice", x, slice=tuple(SliceDim(first, end) for first, end in ends))

    def narrowed(self, x: Instruction, dim: int, first: int, end: int) -> Instruction:
        """The part of an array from the first to before the last index along one dimension."""
        return self.sliced(x, [(first, end) if d == dim else (0, n) for d, n in enumerate(x.dims)])

    def like(
        self, i: Instruction, operands: Sequence[Instruction], shape: Shape, name: str | None = None
    ) -> Instruction:
        """The same operation on other operands."""
        kept = i.attributes if shape == i.shape else {k: v for k, v in i.attributes.items() if k != "sharding"}
        made = i.copy(list(operands), dict(kept), shape)
        made.name = self._names.fresh(name or i.name)
        return self._append(made)

    def _append(self, made: Instruction) -> Instruction:
        made.line = self._at.line if self._at is not None else 0
        self._out.append(made)
        return made

    def sweep(self, rule: Rule) -> bool:
        """Ask the rule about every instruction, operands first, and about what replaces it."""
        values = self._values
        for i in self.computation.instructions:
            if values:
                i.operands = [values.get(o, o) for o in i.operands]
            self._at = i
            current, fresh = i, len(self._out)
            while (new := self._replacement(rule, current)) is not None:
                if current is not i:
                    self._gone.add(current)
                made = new in self._out[fresh:]
                current = new
                if not made:
                    break
            if current is i:
                self._out.append(i)
            else:
                values[i] = current
        return self._finish()

    def _replacement(self, rule: Rule, i: Instruction) -> Instruction | None:
        """The replacement that a rule gives, if it is valid for `i`; else all that the rule made is undone."""
        if i in self.pinned:
            return None
        mark = len(self._out)
        new = rule(self, i)
        if new is None:
            del self._out[mark:]
            return None
        made = new in self._out[mark:]
        if new is i or not stands_for(i, new, made):
            del self._out[mark:]
            return None
        if made:
            for key in INHERITED:
                if key in i.attributes:
                    new.attributes.setdefault(key, i.attributes[key])
        return new

    def _finish(self) -> bool:
        changed = bool(self._values)
        if changed:
            root = self.computation.result
            self.computation.root = self._values.get(root, root)
            used = {o for i in self._out for o in i.operands}
            self.computation.instructions = [i for i in self._out if i not in self._gone or i in used]
        return changed


Rule = Callable[[Rewriter, Instruction], "Instruction | None"]
"""Gives the replacement of an instruction: an operand, an earlier instruction, or one that it made; None: no change."""


def stands_for(old: Instruction, new: Instruction, made: bool = False) -> bool:
    """Whether users of one instruction can take another: shapes agree, and shardings unless it was made for them."""
    if not interchangeable(old.shape, new.shape):
        return False
    mine, its = old.attributes.get("sharding"), new.attributes.get("sharding")
    return made or mine is None or its is None or mine == its


def interchangeable(a: Shape, b: Shape) -> bool:
    """Whether a value of one shape can stand for one of the other: sizes, dynamic dimensions and layout agree."""
    if a is b:
        return True
    if a.is_tuple and b.is_tuple:
        return len(a.elements) == len(b.elements) and all(map(interchangeable, a.elements, b.elements))
    return a.same(b) and _flags(a) == _flags(b) and a.minor_to_major == b.minor_to_major


def _flags(shape: Shape) -> tuple[bool, ...]:
    return shape.dynamic or (False,) * shape.rank


def rewrite(module: Module, rule: Rule, opcodes: Collection[str] | None = None) -> bool:
    """Sweep over every computation of a module; with opcodes, which the rule is about, over those that have some."""
    changes = [
        Rewriter(computation).sweep(rule)
        for computation in module.computations
        if opcodes is None or any(i.opcode in opcodes for i in computation.instructions)
    ]
    return any(changes)
