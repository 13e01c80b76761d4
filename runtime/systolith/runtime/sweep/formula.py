"""Formulas over the columns of a sweep: constraints, objectives and the axes of a Pareto front.

Names are columns such as `vmem.bytes` or `seconds`; there are numbers, `+ - * / // % **`, comparisons, `and`, `or`,
`not`, `min`, `max`, `log2`.  Nothing else of Python is understood, so a study is safe to run.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from systolith.isa.errors import SystolithError

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,  # of floats: a tower of powers overflows at once, and takes no memory
}
_COMPARE: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "log2": math.log2}
_LONGEST = 1000


class FormulaError(SystolithError):
    """A formula cannot be read or computed."""


@dataclass(frozen=True)
class Formula:
    """An expression over columns.

    Attributes:
        text: as it was written.
        names: the columns that it reads.
    """

    text: str
    names: frozenset[str]
    _tree: ast.expr

    def __call__(self, columns: Mapping[str, Any]) -> Any:
        """Its value.

        Raises:
            FormulaError: a column has no number there, or the arithmetic fails; names the formula.
        """
        try:
            return _value(self._tree, columns)
        except (ArithmeticError, TypeError, ValueError, KeyError) as problem:
            raise FormulaError(f"{self.text!r}: {_reason(problem)}") from None

    def margins(self, columns: Mapping[str, Any]) -> list[float]:
        """Of a constraint: by how much each comparison fails, relative to its sides; at most 0 where it holds."""
        return [_margin(part, columns) for part in _conjuncts(self._tree)]


def read_formula(text: object, what: str) -> Formula:
    """Parse a formula; `what` names it in errors.

    Raises:
        FormulaError: it is none.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise FormulaError(f"{what}: must be a formula, a text of at most {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names = frozenset(_names(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        reason = problem.msg if isinstance(problem, SyntaxError) else problem
        raise FormulaError(f"{what}: {text!r} is no formula: {reason}") from None
    return Formula(text.strip(), names, tree)


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else None


def _names(node: ast.expr) -> set[str]:
    """The columns that an expression reads; a ValueError names what is not understood."""
    if (name := _dotted(node)) is not None:
        return {name}
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return set()
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _names(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _names(left) | _names(right)
        case ast.BoolOp(values=values):
            return set().union(*map(_names, values))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            return _names(left).union(*map(_names, others))
        case ast.Call(func=ast.Name(id=function), args=args, keywords=[]) if function in _FUNCTIONS and args:
            return set().union(*map(_names, args))
    raise ValueError(f"{ast.unparse(node)!r} is not understood")


def _value(node: ast.expr, columns: Mapping[str, Any]) -> Any:
    if (name := _dotted(node)) is not None:
        found = columns[name]
        if not isinstance(found, int | float):
            raise TypeError(f"{name} is {found!r}, which is no number")
        return found
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_value(operand, columns))
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, columns), _value(right, columns))
        case ast.BoolOp(op=op, values=values):
            found = (bool(_value(v, columns)) for v in values)
            return all(found) if isinstance(op, ast.And) else any(found)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(x, columns) for x in (left, *others)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False))
        case ast.Call(func=ast.Name(id=function), args=args):
            return _FUNCTIONS[function](*(_value(a, columns) for a in args))
    raise AssertionError("refused when it was read")


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _conjuncts(value)]
    return [node]


def _margin(node: ast.expr, columns: Mapping[str, Any]) -> float:
    match node:
        case ast.Compare(left=left, ops=[ast.LtE() | ast.Lt()], comparators=[right]):
            less, more = _value(left, columns), _value(right, columns)
        case ast.Compare(left=left, ops=[ast.GtE() | ast.Gt()], comparators=[right]):
            less, more = _value(right, columns), _value(left, columns)
        case _:
            return 0.0 if _value(node, columns) else 1.0
    gap = float(less - more) / (max(abs(less), abs(more)) or 1.0)
    holds = bool(_value(node, columns))
    return min(gap, 0.0) if holds else max(gap, 1e-12)


def _reason(problem: Exception) -> str:
    return f"there is no column {problem}" if isinstance(problem, KeyError) else str(problem)
