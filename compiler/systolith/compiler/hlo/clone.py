"""A copy of a module, so that passes may change one and leave the other."""

from __future__ import annotations

from collections.abc import Callable

from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module


def clone(module: Module) -> Module:
    """A module that shares nothing mutable with `module` but literals (which nothing changes) and its text."""
    copies = {c: Computation(c.name, attributes=dict(c.attributes), line=c.line) for c in module.computations}
    for computation, copy in copies.items():
        _fill(copy, computation, copies)
    return Module(
        module.name,
        list(copies.values()),
        copies[module.entry],
        dict(module.attributes),
        module.preamble,
        module.style,
    )


def clone_computation(computation: Computation, name: str) -> Computation:
    """A copy of one computation, which calls the same computations."""
    copy = Computation(name, attributes=dict(computation.attributes), line=computation.line)
    _fill(copy, computation, {})
    return copy


def clone_called(computation: Computation, fresh: Callable[[str], str]) -> list[Computation]:
    """Copies of a computation and of all that it calls, which share nothing, in the order in which they are called: it
    is the last one.  `fresh`: a name like another one.
    """
    copies: dict[Computation, Computation] = {}

    def visit(c: Computation) -> None:
        for called in (called for i in c.instructions for called in i.called):
            if called not in copies:
                visit(called)
        copies[c] = Computation(fresh(c.name), attributes=dict(c.attributes), line=c.line)
        _fill(copies[c], c, copies)

    visit(computation)
    return list(copies.values())


def _fill(copy: Computation, computation: Computation, copies: dict[Computation, Computation]) -> None:
    made: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        attributes = {key: _copied(value, copies) for key, value in i.attributes.items()}
        operands = [made[o] for o in i.operands]
        made[i] = i.copy(operands, attributes)
    copy.instructions = list(made.values())
    copy.root = made[computation.root] if computation.root is not None else None


def _copied(value: Attribute, copies: dict[Computation, Computation]) -> Attribute:
    if isinstance(value, Computation):
        return copies.get(value, value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple) and (callees := [c for c in value if isinstance(c, Computation)]):
        return tuple(copies.get(c, c) for c in callees)
    return value
