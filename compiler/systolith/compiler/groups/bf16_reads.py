"""What reads values as bf16: products in one pass, which round f32 operands, and what moves a value to these alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.mxu.matmul import contraction_of
from systolith.compiler.mxu.precision import passes_of
from systolith.isa.dtypes import BF16, F32

_MOVED = frozenset({"transpose", "reshape", "slice", "reverse"})
"""Data movement that a value may go through, of one operand."""

Use = tuple[Instruction, int]
"""A user of a value, and which of its operands that is."""


class Bf16Reads:
    """What reads the values of a computation as bf16.

    Args:
        computation: it.
        precision: of products, instead of their own.

    Attributes:
        users: of each value.
        narrow: data movement all of whose users read bf16, and how many of these read each element of it.
    """

    def __init__(self, computation: Computation, precision: str | None) -> None:
        self.computation, self.precision = computation, precision
        self.users = computation.users()
        self.narrow: dict[Instruction, int] = {}
        for i in reversed(computation.instructions):
            if i.opcode in _MOVED and self.alone(i):
                self.narrow[i] = self.count(self.uses(i))

    def uses(self, i: Instruction) -> list[Use]:
        """All uses of a value."""
        users = dict.fromkeys(self.users[i])
        return [(user, k) for user in users for k, o in enumerate(user.operands) if o is i]

    def alone(self, i: Instruction) -> bool:
        """Whether all that reads a value reads it as bf16."""
        return i is not self.computation.result and all(map(self.rounds, self.uses(i)))

    def rounds(self, use: Use) -> bool:
        """Whether a user reads a value as bf16, or all that read what it makes of it do."""
        user, k = use
        if user.opcode == "convert":
            return user.shape.dtype is BF16 and user is not self.computation.result
        return user in self.narrow or (user.opcode in ("dot", "convolution") and self._reads_once(user, k))

    def count(self, uses: Iterable[Use]) -> int:
        """How many that read bf16 read each element of a value, by its uses that do."""
        each = dict.fromkeys(user for user, _ in uses)
        parts = [self.narrow[user] for user in each if user.opcode == "slice"]
        return sum(self.narrow.get(user, 1) for user in each if user.opcode != "slice") + min(parts, default=0)

    def reached(self, uses: Iterable[Use]) -> list[Instruction]:
        """All that reads bf16, and what moves a value on the way there."""
        found: dict[Instruction, None] = {}
        todo = [user for user, _ in uses]
        while todo:
            if (user := todo.pop()) not in found:
                found[user] = None
                todo += self.users[user] if user in self.narrow else ()
        return list(found)

    def narrowed(self, uses: list[Use], made: Instruction) -> None:
        """Let uses be of a value that is bf16."""
        for user, k in uses:
            user.operands[k] = made
        for user in self.reached(uses):
            if user in self.narrow:
                user.shape = replace(user.shape, element=BF16)
            elif user.opcode == "convert":
                self.computation.replace(user, user.operands[0])
                self.computation.instructions.remove(user)

    def _reads_once(self, product: Instruction, k: int) -> bool:
        """Whether the matrix units read an operand of a product rounded, and nothing else of it."""
        types = [o.shape.dtype for o in product.operands[:2]]
        if product.shape.dtype is not F32 or not all(t in (F32, BF16) for t in types) or _may_be_sums(product):
            return False
        return not any(part[k] for part in passes_of(product, self.precision, F32, F32))


def as_bf16(i: Instruction, name: str) -> Instruction:
    """A value rounded to bf16."""
    return Instruction(name, "convert", replace(i.shape, element=BF16), [i], line=i.line)


def _may_be_sums(product: Instruction) -> bool:
    """Whether the vector unit may compute a product, which rounds nothing: of a vector, or one channel at a time."""
    c = contraction_of(product)
    return 1 in (c.count(c.m), c.count(c.n))
