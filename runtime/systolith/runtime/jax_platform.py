"""Registers the platform `systolith` with JAX, and its lowering rules.

JAX lowers nearly all it has to plain HLO on a platform that it does not know. The rest are eigenvalues, which are
refused, and calls of Python from a running program (`jax_callbacks.py`). For eigenvalues, singular values, LU factors,
tridiagonal forms and systems the rules of CPUs are taken: calls of LAPACK, which the compiler expands; others would be
programs of a thousand operations, and systems would not exchange rows. Donation and the cache of compiled programs are
for platforms that JAX lists.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from systolith.runtime.jax_callbacks import register_callbacks

PLATFORM = "systolith"
"""The platform's name, which JAX and users give."""
TAKEN_FROM_CPU = ("eigh", "lu", "svd", "tridiagonal", "tridiagonal_solve")
ON_CPUS_ONLY = ("eig", "geqp3", "hessenberg", "schur")


@cache
def register(platform: str = PLATFORM) -> None:
    """Tell JAX the rules, and that the platform can do what listed ones can."""
    from jax._src import compilation_cache, xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    if not xla_bridge.is_known_platform(platform):
        xla_bridge.backends()  # finds the plugin, by its entry point
    known: dict[Any, Any] = mlir._platform_specific_lowerings
    for primitive, rule in list(known["cpu"].items()):
        if primitive.name in TAKEN_FROM_CPU:
            known[platform][primitive] = rule
    register_callbacks(platform)
    for name in ON_CPUS_ONLY:
        mlir.register_lowering(getattr(linalg, f"{name}_p"), _on_cpus_only, platform=platform)
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)
    others = compilation_cache.is_cache_used

    def is_cache_used(backend: Any) -> bool:
        return compilation_cache._is_cache_enabled() if backend.platform == platform else others(backend)

    compilation_cache.is_cache_used = is_cache_used


def _on_cpus_only(context: Any, *_: object, **__: object) -> NoReturn:
    raise NotImplementedError(
        f"systolith: {context.primitive.name} is for CPUs only in JAX; with JAX_PLATFORMS=systolith,cpu compute it in"
        " `with jax.default_device(jax.devices('cpu')[0])`"
    )
