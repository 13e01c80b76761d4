"""A JAX function on the simulated chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from systolith.compiler.options import Options
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.runtime.client import Client
from systolith.runtime.executable import Executable


@checked
def jit(
    function: Callable[..., Any],
    client: Client | None = None,
    options: Options | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:
    """Compile a JAX function for the simulated chip; one compilation a set of argument shapes.

    The returned function takes and gives pytrees of numpy arrays; its `last_executable` is the one that ran.

    Args:
        function: as `jax.jit` takes it.
        client: where to run; one `tpu_v3` device if none is given.
        options: of the compiler.
        donate_argnums: arguments whose memory on the device the results may take, as for `jax.jit`: they are updated in
            place.  The arrays of the host stay as they are.

    Raises:
        SystolithError: JAX is not installed, or the function uses something the chip does not do.
    """
    try:
        import jax
    except ImportError:
        raise SystolithError("sl.jit needs JAX: pip install 'systolith[jax]'") from None
    target = client or Client()
    lowered: dict[Any, tuple[Executable, Any, tuple[int, ...]]] = {}

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        try:
            arrays = [jax.numpy.asarray(leaf) for leaf in leaves]
        except (TypeError, ValueError, OverflowError) as error:
            raise SystolithError(f"an argument is no array to JAX: {error}") from None
        key = (structure, tuple((a.shape, str(a.dtype)) for a in arrays))
        if key not in lowered:
            stage = jax.jit(function, keep_unused=True, donate_argnums=donate_argnums).lower(*arguments)
            text = cast("Any", stage.compiler_ir("hlo")).as_hlo_text(print_large_constants=True)
            shapes = tuple(leaf.shape for leaf in jax.tree.leaves(stage.out_info))
            lowered[key] = (target.compile(text, options), jax.tree.structure(stage.out_info), shapes)
        executable, out_structure, _ = lowered[key]
        call.last_executable = executable  # type: ignore[attr-defined]
        results = [b.numpy() for b in executable(*(np.asarray(a) for a in arrays))]
        return jax.tree.unflatten(out_structure, results)

    return call
