"""Sorts of more elements than stay in VMEM: in a loop over part of the lines, or over blocks of one long line.

The compiler knows no chip here, so a block is what 16 MiB hold with room to spare.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.expand.sort_network import Arrays, Network, Order
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import S32

AT_ONCE = 1 << 21
"""Bytes of the elements that are sorted at once; a stage has them twice."""

KEYS = 8
"""Bytes that an element of a sort carries besides its operands: a feature and its place."""


def in_batches(
    r: Rewriter,
    callees: Callees,
    i: Instruction,
    dim: int,
    fresh: Callable[[Rewriter, Instruction, Shape], Instruction | None],
    share: float = 1,
) -> list[Instruction] | None:
    """A sort along `dim` in a loop over part of another dimension; None: it is small enough, or one line.

    Args:
        fresh: makes an operand for a part, of the operand and the part's shape; None: it is a part of the operand.
        share: of the elements, those that are sorted.
    """
    dims = i.operands[0].dims
    padded = prod(dims) // dims[dim] * power(dims[dim])
    size = int(share * padded * (KEYS + sum(o.shape.dtype.size for o in i.operands)))
    batch = max((d for d in range(len(dims)) if d != dim), key=lambda d: dims[d], default=dim)
    if size <= AT_ONCE or batch == dim or dims[batch] == 1:
        return None
    part = max(1, AT_ONCE * dims[batch] // size)
    part = part - part % 128 if part > 128 else part
    results = list(i.shape.elements) if i.shape.is_tuple else [i.shape]

    def of_part(shape: Shape) -> Shape:
        return array(shape.dtype, tuple(part if d == batch else n for d, n in enumerate(shape.dims)))

    def step(b: Rewriter, turn: Instruction, state: State) -> State:
        given, made = state[: len(i.operands)], state[len(i.operands) :]
        zero = b.constant(0, S32)
        start = b.emit("multiply", turn, b.constant(part, S32))
        starts = [start if d == batch else zero for d in range(len(dims))]
        parts = []
        for outside, x in zip(i.operands, given, strict=True):
            shape = of_part(x.shape)
            new = fresh(b, outside, shape)
            parts.append(new or b.emit("dynamic-slice", x, *starts, shape=shape, dynamic_slice_sizes=shape.dims))
        shapes = [of_part(s) for s in results]
        done = b.like(i, parts, tuple_of(shapes) if i.shape.is_tuple else shapes[0])
        each = [b.emit("get-tuple-element", done, index=k) for k in range(len(shapes))] if i.shape.is_tuple else [done]
        return [
            *given,
            *(b.emit("dynamic-update-slice", x, y, *starts, shape=x.shape) for x, y in zip(made, each, strict=True)),
        ]

    spaces = [r.full(0, s) for s in results]
    turns = -(-dims[batch] // part)
    done = counted_loop(r, callees, turns, [*i.operands, *spaces], step, Rewriter, f"{i.name}.parts")
    return list(done[len(i.operands) :])


def in_blocks(r: Rewriter, callees: Callees, order: Order, xs: Arrays) -> Arrays:
    """The columns of matrices in order: by one network, or by blocks of rows.

    Blocks are sorted, and runs of blocks merged, in loops; between these blocks are exchanged as a whole.  For that the
    second run of each merge lies backwards, which the loop before sees to.
    """
    n, columns = xs[0].dims
    row = columns * sum(x.shape.dtype.size for x in xs)
    network = Network(r, order)
    if n * row <= 2 * AT_ONCE:
        return network.sorted(xs)
    block = min(n, power(AT_ONCE // row + 1) // 2) or 1
    count = n // block
    for run in range(count.bit_length()):
        for k in reversed(range(run)):
            xs = network.apart(xs, block << k)
        xs = _each_block(r, callees, order, xs, block, run)
    return xs


def _each_block(r: Rewriter, callees: Callees, order: Order, xs: Arrays, block: int, run: int) -> Arrays:
    """Put every block in order, and every second run of 2 ** run blocks backwards (but the last run of all)."""
    n, columns = xs[0].dims
    count = n // block
    last = 1 << run == count
    dims = (block, columns)

    def step(b: Rewriter, turn: Instruction, state: State) -> State:
        def op(opcode: str, x: Instruction, value: int) -> Instruction:
            return b.emit(opcode, x, b.constant(value, S32))

        def starts(at: Instruction) -> tuple[Instruction, Instruction]:
            return op("multiply", at, block), b.constant(0, S32)

        given, made = state[: len(xs)], state[len(xs) :]
        parts = [
            b.emit("dynamic-slice", x, *starts(turn), shape=array(x.shape.dtype, dims), dynamic_slice_sizes=dims)
            for x in given
        ]
        odd = op("and", op("shift-right-logical", turn, run), 1)
        backwards = None if last else b.emit("compare", odd, b.constant(0, S32), direction="NE")
        network = Network(b, order)
        parts = list(network.merged(parts, backwards) if run else network.sorted(parts, backwards))
        at = turn if backwards is None else b.emit("select", backwards, op("xor", turn, (1 << run) - 1), turn)
        put = [
            b.emit("dynamic-update-slice", x, y, *starts(at), shape=x.shape) for x, y in zip(made, parts, strict=True)
        ]
        return [*given, *put]

    spaces = [r.full(0, x.shape) for x in xs]
    return counted_loop(r, callees, count, [*xs, *spaces], step, Rewriter, "sort.blocks")[len(xs) :]


def power(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()
