"""Mutants of a module's text: each differs from it by one operator, constant or statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SWAPPED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One change of a text.

    Attributes:
        line: where it is, from 1.
        text: the whole text, changed.
    """

    line: int
    text: str


def mutants(text: str) -> Iterator[Mutant]:
    """All of a module's, in order.  Docstrings, annotations and text in f-strings stay as they are."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)
    for node in _mutable(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for words in _changed(node):
            yield Mutant(node.lineno, (whole[:begin] + words.encode() + whole[end:]).decode())


def _mutable(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Nodes that run, each before those in it."""
    if isinstance(node, ast.JoinedStr):
        return  # places in f-strings are not known before Python 3.12
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # zip's: a check
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _changed(node: ast.expr | ast.stmt) -> Iterator[str]:
    """What may stand in a node's place.  Expressions are in brackets: an `or` may stand where an `and` did."""
    for change in CHANGES.get(type(node), ()):
        for new in change(node):
            yield f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)


def _operator(node: ast.AST) -> Iterator[ast.AST]:
    """Another comparison, `-` for `+`, `or` for `and`, and the other way round."""
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            new = copy.copy(node)
            new.ops = [*node.ops]
            new.ops[n] = SWAPPED[type(op)]()
            yield new
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED:
        other = copy.copy(node)
        other.op = SWAPPED[type(node.op)]()
        yield other


def _constant(node: ast.AST) -> Iterator[ast.AST]:
    """One more and one less; the other truth value."""
    assert isinstance(node, ast.Constant)
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))


def _without_not(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def _nothing_returned(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and node.value and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))


def _deleted(node: ast.AST) -> Iterator[ast.AST]:
    """No statement, unless it is one that only documents, or gives a name that would then be missing."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom):
        return
    if not any(isinstance(t, ast.Name | ast.Tuple | ast.List) for t in targets):
        yield ast.Pass()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


CHANGES: dict[type[ast.AST], tuple[Callable[[ast.AST], Iterator[ast.AST]], ...]] = {
    ast.Compare: (_operator,),
    ast.BinOp: (_operator,),
    ast.BoolOp: (_operator,),
    ast.UnaryOp: (_without_not,),
    ast.Constant: (_constant,),
    ast.Return: (_nothing_returned,),
    ast.AugAssign: (_operator, _deleted),
    ast.Assign: (_deleted,),
    ast.Expr: (_deleted,),
    ast.Raise: (_deleted,),
    ast.Continue: (_deleted,),
    ast.Break: (_deleted,),
}
