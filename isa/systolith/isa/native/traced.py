"""Functions on arrays, traced into LLVM's IR: the same definitions give numpy's results and machine code.

A `Symbol` stands for an array.  Applied to symbols, the functions of `alu.py` and those that they call emit vector
instructions: one IEEE operation for each of numpy's, none fused, none reordered.  Where a function looks whether a rare
case occurs anywhere, a symbol says that it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from systolith.isa.native.library import F32 as FLOAT
from systolith.isa.native.library import I32
from systolith.isa.numerics.images import F32, S32, U32, Abstract

_BOOL = np.dtype(np.bool_)


class UntraceableError(Exception):
    """A function that has no traced form."""


class Symbol(np.lib.mixins.NDArrayOperatorsMixin, Abstract):
    """A vector of 32-bit integers, floats or truth values while a function is traced.

    Attributes:
        value: in the IR: integers for u32 and s32, floats, or i1.
        dtype: bool, u32, s32 or f32.
    """

    ndim = 1

    def __init__(self, b: ir.IRBuilder, value: Any, dtype: np.dtype[Any]) -> None:
        self.b = b
        self.value = value
        self.dtype = dtype

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Symbol:
        emit = _UFUNCS.get(ufunc.__name__)
        if emit is None or method != "__call__" or not kwargs.keys() <= {"out"}:  # x += y gives x another value
            raise UntraceableError(f"{ufunc.__name__}.{method}")
        return emit(*self._alike(inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Symbol:
        if function is not np.where or kwargs:
            raise UntraceableError(function.__name__)
        condition, *values = args
        if not any(isinstance(v, Symbol) for v in values):
            values[0] = constant(self.b, values[0], values[0].dtype, self.value.type.count)
        a, b = self._alike(values)
        return Symbol(self.b, self.b.select(_truth(condition), a.value, b.value), a.dtype)

    def _alike(self, values: Any) -> tuple[Symbol, ...]:
        """Operands of one type: numbers take that of the symbols, truth values count 0 or 1 among integers."""
        symbols = [v for v in values if isinstance(v, Symbol)]
        kinds = {s.dtype for s in symbols}
        if len(kinds) > 1:
            kinds -= {_BOOL}
        if len(kinds) != 1:
            raise UntraceableError(f"operands of types {kinds}")
        kind, width = kinds.pop(), symbols[0].value.type.count
        return tuple(_operand(self.b, v, kind, width) for v in values)

    def view(self, dtype: Any) -> Symbol:
        """The same bits as another 32-bit type."""
        kind = np.dtype(dtype)
        if kind not in (U32, S32, F32) or self.dtype == _BOOL:
            raise UntraceableError(f"{self.dtype} as {kind}")
        if (kind == F32) == (self.dtype == F32):
            return Symbol(self.b, self.value, kind)
        element = FLOAT if kind == F32 else I32
        return Symbol(self.b, self.b.bitcast(self.value, ir.VectorType(element, self.value.type.count)), kind)

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """Converted; floats to integers towards zero."""
        kind = np.dtype(dtype)
        if kind == self.dtype:
            return self
        convert = _CONVERSIONS.get((self.dtype.char, kind.char))
        if convert is None:
            raise UntraceableError(f"{self.dtype} to {kind}")
        element = FLOAT if kind == F32 else I32
        return Symbol(self.b, convert(self.b, self.value, ir.VectorType(element, self.value.type.count)), kind)

    def __bool__(self) -> bool:
        raise UntraceableError("a branch")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise UntraceableError("an array of it")

    def any(self) -> bool:
        """Perhaps."""
        return True

    def all(self) -> bool:
        """Perhaps not."""
        return False


def constant(b: ir.IRBuilder, value: Any, kind: np.dtype[Any], width: int) -> Symbol:
    """A number in every lane, by its bits."""
    if kind == _BOOL:
        return Symbol(b, ir.Constant(ir.VectorType(ir.IntType(1), width), [int(value)] * width), kind)
    bits = int(np.asarray(value, kind).view(U32))
    image = Symbol(b, ir.Constant(ir.VectorType(I32, width), [bits] * width), U32)
    return image.view(kind)


def _operand(b: ir.IRBuilder, value: Any, kind: np.dtype[Any], width: int) -> Symbol:
    if isinstance(value, Symbol):
        return value if value.dtype == kind else value.astype(kind)
    given = getattr(value, "dtype", kind)
    if given != kind and given != _BOOL:
        raise UntraceableError(f"{given} with {kind}")
    return constant(b, value, kind, width)


def _truth(condition: Any) -> Any:
    if condition.dtype == _BOOL:
        return condition.value
    return condition.b.icmp_unsigned("!=", condition.value, ir.Constant(condition.value.type, None))


def _call(b: ir.IRBuilder, name: str, value: Any, result: Any) -> Any:
    """An intrinsic of one vector; `result`: its type."""
    suffix = "".join(f".v{t.count}{'f32' if t.element == FLOAT else 'i32'}" for t in (result, value.type))
    full = f"llvm.{name}{suffix if result != value.type else suffix[: len(suffix) // 2]}"
    return b.call(b.module.declare_intrinsic(full, fnty=ir.FunctionType(result, [value.type])), [value])


def _either(for_floats: str, for_integers: str) -> Callable[..., Symbol]:
    """A binary instruction of the builder, by the operands' type."""

    def emit(x: Symbol, y: Symbol) -> Symbol:
        name = for_floats if x.dtype == F32 else for_integers
        if not name or (x.dtype == _BOOL and name not in ("and_", "or_", "xor")):
            raise UntraceableError(f"{for_floats or for_integers} of {x.dtype}")
        return Symbol(x.b, getattr(x.b, name)(x.value, y.value), x.dtype)

    return emit


def _float(name: str) -> Callable[[Symbol], Symbol]:
    def emit(x: Symbol) -> Symbol:
        if x.dtype != F32:
            raise UntraceableError(f"{name} of {x.dtype}")
        return Symbol(x.b, _call(x.b, name, x.value, x.value.type), F32)

    return emit


def _compare(relation: str) -> Callable[[Symbol, Symbol], Symbol]:
    def emit(x: Symbol, y: Symbol) -> Symbol:
        if x.dtype == F32:
            compare = x.b.fcmp_unordered if relation == "!=" else x.b.fcmp_ordered
        else:
            compare = x.b.icmp_signed if x.dtype == S32 else x.b.icmp_unsigned
        return Symbol(x.b, compare(relation, x.value, y.value), _BOOL)

    return emit


def _select(condition: Symbol, x: Symbol, y: Symbol) -> Symbol:
    return Symbol(x.b, x.b.select(condition.value, x.value, y.value), x.dtype)


def _isnan(x: Symbol) -> Symbol:
    return Symbol(x.b, x.b.fcmp_unordered("uno", x.value, x.value), _BOOL)


def _extreme(relation: str) -> Callable[[Symbol, Symbol], Symbol]:
    """minimum, maximum: a NaN if either is."""
    compare = _compare(relation)

    def emit(x: Symbol, y: Symbol) -> Symbol:
        best = _select(compare(x, y), x, y)
        return _select(_isnan(x), x, best) if x.dtype == F32 else best  # a NaN in y does not compare: y is taken

    return emit


def _extreme_number(relation: str) -> Callable[[Symbol, Symbol], Symbol]:
    """fmin, fmax: a number if either is one."""
    compare = _compare(relation)
    return lambda x, y: _select(_isnan(y), x, _select(compare(x, y), x, y))


def _negative(x: Symbol) -> Symbol:
    if x.dtype == F32:
        return (x.view(U32) ^ np.uint32(0x80000000)).view(F32)  # type: ignore[no-any-return]
    return Symbol(x.b, x.b.sub(ir.Constant(x.value.type, None), x.value), x.dtype)


def _absolute(x: Symbol) -> Symbol:
    if x.dtype == F32:
        return (x.view(U32) & np.uint32(0x7FFFFFFF)).view(F32)  # type: ignore[no-any-return]
    return _select(x < 0, _negative(x), x)


def _copysign(x: Symbol, y: Symbol) -> Symbol:
    size, sign = x.view(U32) & np.uint32(0x7FFFFFFF), y.view(U32) & np.uint32(0x80000000)
    return (size | sign).view(F32)  # type: ignore[no-any-return]


def _shift_right(x: Symbol, y: Symbol) -> Symbol:
    return Symbol(x.b, (x.b.ashr if x.dtype == S32 else x.b.lshr)(x.value, y.value), x.dtype)


def _size_below(x: Symbol, beyond: bool) -> Symbol:
    size = x.view(U32) & np.uint32(0x7FFFFFFF)
    found: Symbol = size == np.uint32(0x7F800000) if beyond else size < np.uint32(0x7F800000)
    return found


_UFUNCS: dict[str, Callable[..., Symbol]] = {
    "add": _either("fadd", "add"),
    "subtract": _either("fsub", "sub"),
    "multiply": _either("fmul", "mul"),
    "divide": _either("fdiv", ""),
    "bitwise_and": _either("", "and_"),
    "bitwise_or": _either("", "or_"),
    "bitwise_xor": _either("", "xor"),
    "invert": lambda x: Symbol(x.b, x.b.not_(x.value), x.dtype),
    "left_shift": _either("", "shl"),
    "right_shift": _shift_right,
    "negative": _negative,
    "absolute": _absolute,
    "bitwise_count": lambda x: Symbol(x.b, _call(x.b, "ctpop", x.value, x.value.type), U32),
    "sqrt": _float("sqrt"),
    "rint": _float("nearbyint"),
    "floor": _float("floor"),
    "ceil": _float("ceil"),
    "trunc": _float("trunc"),
    "minimum": _extreme("<"),
    "maximum": _extreme(">"),
    "fmin": _extreme_number("<"),
    "fmax": _extreme_number(">"),
    "copysign": _copysign,
    "isnan": _isnan,
    "isinf": lambda x: _size_below(x, True),
    "isfinite": lambda x: _size_below(x, False),
    "signbit": lambda x: x.view(S32) < 0,
    **{
        name: _compare(relation)
        for name, relation in (
            *(("equal", "=="), ("not_equal", "!="), ("less", "<"), ("less_equal", "<=")),
            *(("greater", ">"), ("greater_equal", ">=")),
        )
    },
}


_CONVERSIONS: dict[tuple[str, str], Callable[[ir.IRBuilder, Any, Any], Any]] = {
    ("?", "I"): lambda b, v, kind: b.zext(v, kind),
    ("?", "i"): lambda b, v, kind: b.zext(v, kind),
    ("?", "f"): lambda b, v, kind: b.uitofp(v, kind),
    ("i", "f"): lambda b, v, kind: b.sitofp(v, kind),
    ("I", "f"): lambda b, v, kind: b.uitofp(v, kind),
    ("f", "i"): lambda b, v, kind: _call(b, "fptosi.sat", v, kind),
    ("f", "I"): lambda b, v, kind: _call(b, "fptoui.sat", v, kind),
    ("i", "I"): lambda b, v, kind: v,
    ("I", "i"): lambda b, v, kind: v,
}
