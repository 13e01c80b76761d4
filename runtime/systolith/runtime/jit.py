"""A JAX function on the simulated chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, overload

from systolith.compiler.options import Options
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.runtime.client import Client, ClientLibrary

if TYPE_CHECKING:  # it imports JAX
    from systolith.runtime.jitted import JitFunction

Numbers = int | Sequence[int]
Names = str | Sequence[str]


@overload
def jit(
    function: Callable[..., object],
    client: Client | None = None,
    options: Options | None = None,
    donate_argnums: Numbers | None = None,
    *,
    donate_argnames: Names | None = None,
    static_argnums: Numbers | None = None,
    static_argnames: Names | None = None,
) -> JitFunction: ...
@overload
def jit(
    function: None = None,
    client: Client | None = None,
    options: Options | None = None,
    donate_argnums: Numbers | None = None,
    *,
    donate_argnames: Names | None = None,
    static_argnums: Numbers | None = None,
    static_argnames: Names | None = None,
) -> Callable[[Callable[..., object]], JitFunction]: ...
@checked
def jit(
    function: Callable[..., object] | None = None,
    client: Client | None = None,
    options: Options | None = None,
    donate_argnums: Numbers | None = None,
    *,
    donate_argnames: Names | None = None,
    static_argnums: Numbers | None = None,
    static_argnames: Names | None = None,
) -> JitFunction | Callable[[Callable[..., object]], JitFunction]:
    """Compile a JAX function for the simulated chip, as `jax.jit` does for a device of JAX; also a decorator.

    The function takes pytrees of whatever JAX makes arrays of, typed keys of random numbers, and buffers of the client.
    Where an argument is a buffer, the results stay on its device, as buffers, and the call does not wait for them; else
    they are numpy arrays.  Keys come back as keys.  It is compiled once for each set of shapes, element types and
    static values.  Called while JAX traces (inside `jax.jit`, `jax.grad`, another `sl.jit`, ...) it is `jax.jit`.

    Args:
        function: as `jax.jit` takes it; None: give back a decorator.
        client: where to run; by default `ClientLibrary.client_library_or_die()`, one `tpu_v3` device.
        options: of the compiler.
        donate_argnums: arguments whose memory on the device the results may take, as for `jax.jit`: they are updated in
            place, and buffers among them are deleted.  Arrays of the host stay as they are.
        donate_argnames: the same, by name.
        static_argnums: arguments that are constants of the program; they are hashable.
        static_argnames: the same, by name.

    Raises:
        SystolithError: JAX is not installed; when called: the function uses something that the chip does not do.
    """
    try:
        import jax  # noqa: F401
    except ImportError:
        raise SystolithError("sl.jit needs JAX: pip install 'systolith[jax]'") from None
    from systolith.runtime.jitted import JitFunction

    known = {
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
    }
    made = partial(
        JitFunction,
        client=client or ClientLibrary.client_library_or_die(),
        options=options or Options(),
        named={name: value for name, value in known.items() if value is not None},
    )
    return made if function is None else made(function)
