"""Public functions that check their arguments: one of another type than annotated is refused in words."""

from __future__ import annotations

import inspect
import numbers
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from systolith.isa.errors import SystolithError

if TYPE_CHECKING:  # it takes long to import
    import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
_ITEMS = (Sequence, list, tuple)
# Numpy's numbers are as good as Python's.
_NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check each argument against its annotation, as far as that names classes, unions, and sequences of them.

    Whatever numpy makes an array of passes for an array, and only bools for a bool.

    Raises:
        SystolithError: an argument is of another type; names it and both types.
    """
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not hints:
            hints.update(_annotated(function))
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind = signature.parameters[name].kind
            given: Iterable[object] = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
            for one in given:
                if not matches(one, hints[name]):
                    raise SystolithError(f"{name}: expected {_text(hints[name])}, got {type(one).__name__}")
        return function(*args, **kwargs)

    return call


def _annotated(function: Callable[..., object]) -> dict[str, Any]:
    """The annotations; Any for those with names that only type checkers know."""
    found: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(function).items():
        try:
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            found |= get_type_hints(alone, function.__globals__)
        except (NameError, TypeError):
            found[name] = Any
    return dict.fromkeys(inspect.signature(function).parameters, Any) | found


def as_array(given: object) -> np.ndarray[Any, np.dtype[Any]]:
    """The argument as an array.

    Raises:
        SystolithError: numpy makes none of it, or one of objects.
    """
    import numpy as np

    try:
        array = np.asarray(given)
    except (ValueError, TypeError, OverflowError) as error:  # nested lists of unequal lengths, among others
        raise SystolithError(f"expected an array, got {type(given).__name__}: {error}") from None
    if array.dtype.hasobject:
        raise SystolithError(f"expected an array of numbers or bools, got {type(given).__name__}")
    return array


def matches(value: object, hint: Any) -> bool:
    """Whether a value is of an annotated type."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(matches(value, part) for part in get_args(hint))
    if origin in _ITEMS:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        kind = get_args(hint)[0]
        if origin is tuple and get_args(hint)[1:] not in ((), (...,)):
            return len(value) == len(get_args(hint)) and all(map(matches, value, get_args(hint)))
        return all(matches(item, kind) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is not None:
        return origin is not Callable or callable(value)
    if hint is Any or _is_array(hint):
        return True
    if isinstance(value, bool):
        return hint in (bool, object)
    return not isinstance(hint, type) or isinstance(value, _NUMBERS.get(hint, hint))


def _is_array(hint: Any) -> bool:
    return (getattr(hint, "__module__", ""), getattr(hint, "__name__", "")) == ("numpy", "ndarray")


def _text(hint: Any) -> str:
    """An annotation for people."""
    parts = [_text(part) for part in get_args(hint) if part is not ...]
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(parts)
    name = "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
    return f"{name} of {parts[0]}" if get_origin(hint) in _ITEMS else name
