"""Loops of a known number of iterations, or of at most so many, for passes that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32

State = Sequence[Instruction]
R = TypeVar("R", bound=Rewriter)


def counted_loop(
    r: R,
    callees: Callees,
    trips: int,
    state: State,
    step: Callable[[R, Instruction, State], State],
    inside: Callable[[Computation], R],
    name: str = "loop",
    going: Callable[[State], Instruction] | None = None,
) -> State:
    """The state after so many iterations, by a `while`.

    Args:
        r: makes what stands around the loop.
        callees: has the loop's computations placed.
        trips: iterations.
        state: before the first one.
        step: makes the state after an iteration from its number, an s32, and the state before.
        inside: what makes the instructions of a computation.
        name: begins the computations' names.
        going: which part of the state, a pred, says whether to go on; None: always.
    """
    shape = tuple_of([array(S32), *(s.shape for s in state)])

    def computation(stem: str, make: Callable[[R, list[Instruction]], Instruction]) -> Computation:
        given = Instruction("state", "parameter", shape, number=0)
        made = Computation(callees.name(f"{name}.{stem}"), [given])
        rewriter = inside(made)
        parts = [rewriter.emit("get-tuple-element", given, index=k) for k in range(len(shape.elements))]
        root = make(rewriter, parts)
        made.instructions, made.root = [given, *rewriter.made], root
        return callees.add(made)

    def body(rewriter: R, parts: list[Instruction]) -> Instruction:
        count, *values = parts
        following = rewriter.emit("add", count, rewriter.constant(1, S32))
        return rewriter.emit("tuple", following, *step(rewriter, count, values))

    def condition(rewriter: R, parts: list[Instruction]) -> Instruction:
        count, *values = parts
        left = rewriter.emit("compare", count, rewriter.constant(trips, S32), shape=array(PRED), direction="LT")
        return left if going is None else rewriter.emit("and", left, going(values))

    first = r.emit("tuple", r.constant(0, S32), *state)
    test, once = computation("condition", condition), computation("body", body)
    done = r.emit("while", first, shape=shape, condition=test, body=once)
    return [r.emit("get-tuple-element", done, index=k + 1) for k in range(len(state))]
