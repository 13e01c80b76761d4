"""What values are made of: the operations that compute them from others, to be done again elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from systolith.compiler.cost.prices import transfer_cycles
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.mxu.matmul import contraction_cycles, contraction_of
from systolith.compiler.ops.table import is_elementwise
from systolith.isa.chip import Chip

MOST = 32
"""Operations that are done again for a value."""

SPREAD = ("broadcast", "constant", "iota", "reshape")
"""What is done again beside elementwise operations."""

WORTH = 2
"""So many times longer HBM has to take for a value than the matrix units take to compute it again."""


def cone(
    value: Instruction,
    is_given: Callable[[Instruction], bool],
    may_be: Callable[[Instruction], bool],
    most: int = MOST,
) -> list[Instruction] | None:
    """The operations that make a value of what is given, and that, operands first.

    None: it takes others than those that may be, or more than `most`.
    """
    found: dict[Instruction, None] = {}
    stack = [(value, False)]
    work = 0
    while stack:
        i, after = stack.pop()
        if after:
            found.setdefault(i)
            continue
        if i in found:
            continue
        if i is not value and is_given(i):
            found.setdefault(i)
            continue
        work += 1
        if work > most or not may_be(i):
            return None
        stack.append((i, True))
        stack += [(o, False) for o in i.operands]
    return list(found)


def moves_no_more(value: Instruction, made_of: Iterable[Instruction]) -> bool:
    """Whether to store and load a value moves no more than to load what it would be made of again: it is narrower."""
    return 2 * value.shape.bytes <= sum(i.shape.bytes for i in made_of)


def elementwise_cone(value: Instruction, is_given: Callable[[Instruction], bool]) -> list[Instruction] | None:
    """The same of what is elementwise."""
    return cone(value, is_given, _is_elementwise)


def cone_again(value: Instruction, is_given: Callable[[Instruction], bool], chip: Chip) -> list[Instruction] | None:
    """The same of what is elementwise and of products, if these take half as long as HBM for the value, or less.

    Scores of attention are such a value: a product over the few features of a head makes an array that is much larger
    than its operands.
    """
    found = cone(value, is_given, lambda i: _is_elementwise(i) or i.opcode in ("dot", "reduce", "transpose"))
    if found is None:
        return None
    products = [contraction_of(i) for i in found if i.opcode == "dot" and not is_given(i)]
    multiplied = sum(contraction_cycles(c, chip) for c in products)
    return found if multiplied * WORTH <= transfer_cycles(2 * value.shape.bytes, chip) else None


def _is_elementwise(i: Instruction) -> bool:
    return (is_elementwise(i) or i.opcode in SPREAD) and not i.called
