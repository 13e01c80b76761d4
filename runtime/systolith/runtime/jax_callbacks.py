"""Calls of Python from JAX's programs, as custom calls of functions of the host (`isa/host_functions.py`).

JAX has rules of its own for `pure_callback`, `io_callback`, `jax.debug.callback` and `jax.debug.print`; all of them
call `emit_python_callback`, which knows JAX's platforms.  For systolith each callback gets a target of its own, which
is registered as long as JAX keeps the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4
from weakref import finalize

import numpy as np

from systolith.isa.host_functions import PYTHON, register, unregister

_NUMBERS = count()
_PROCESS = uuid4().hex
_ON_SOME_PLATFORMS = ("debug_callback_p", "debug_print_p")


def register_callbacks(platform: str) -> None:
    """Let programs for the platform call Python."""
    from jax._src import callback, debugging
    from jax._src.interpreters import mlir

    others = callback.emit_python_callback

    def emit_python_callback(context: Any, function: Any, token: Any, *arguments: Any, **settings: Any) -> Any:
        emit = _emit if tuple(context.module_context.platforms) == (platform,) else others
        return emit(context, function, token, *arguments, **settings)

    callback.emit_python_callback = emit_python_callback  # type: ignore[assignment]
    known: dict[str, dict[Any, Any]] = mlir._platform_specific_lowerings
    for name in _ON_SOME_PLATFORMS:
        primitive = getattr(debugging, name)
        known[platform][primitive] = known["cpu"][primitive]


def _called(function: Callable[..., Sequence[Any]], *operands: Any) -> list[np.ndarray[Any, Any]]:
    """The results of a callback, of types that JAX has."""
    from jax._src import dtypes

    return [np.asarray(dtypes.canonicalize_value(np.asarray(x))) for x in function(*operands)]


def _emit(
    context: Any,
    function: Callable[..., Sequence[Any]],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Any, Any, Any]:
    """A custom call: results, token, and what calls Python, as JAX's function of this name gives them."""
    from jax._src.interpreters import mlir

    target = f"{PYTHON}{_PROCESS}.{next(_NUMBERS)}"
    register(target, partial(_called, function))
    holder = _Holder()
    finalize(holder, unregister, target)
    context.module_context.add_keepalive(holder)
    tokens = [token] if token else []
    made = mlir.custom_call(
        target,
        result_types=[
            *(t.type for t in tokens),
            *(mlir.aval_to_ir_type(context.module_context, a) for a in result_avals),
        ],
        operands=[*tokens, *operands],
        has_side_effect=has_side_effect,
    )
    results = list(made.results)
    token = results.pop(0) if tokens else None
    return results, token, holder


class _Holder:
    """Alive as long as JAX keeps a program; with it goes the target."""
