"""Registers the platform `systolith` with JAX, and its lowering rules.

JAX lowers nearly all it has to plain HLO on a platform that it does not know, but for calls of Python from a running
program (`jax_callbacks.py`). For eigenvalues, singular values, LU factors, QR factors with pivots, Hessenberg, Schur
and tridiagonal forms, and tridiagonal systems the rules of CPUs are taken: calls of LAPACK, which the compiler expands.
For some there are no others; others would be programs of a thousand operations, and systems would not exchange rows.
Donation and the cache of compiled programs are for platforms that JAX lists.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from systolith.runtime.jax_callbacks import register_callbacks

PLATFORM = "systolith"
"""The platform's name, which JAX and users give."""
TAKEN_FROM_CPU = ("eig", "eigh", "geqp3", "hessenberg", "lu", "schur", "svd", "tridiagonal", "tridiagonal_solve")


@cache
def register(platform: str = PLATFORM) -> None:
    """Tell JAX the rules, and that the platform can do what listed ones can."""
    from jax._src import compilation_cache, xla_bridge
    from jax._src.interpreters import mlir

    if not xla_bridge.is_known_platform(platform):
        xla_bridge.backends()  # finds the plugin, by its entry point
    known: dict[Any, Any] = mlir._platform_specific_lowerings
    for primitive, rule in list(known["cpu"].items()):
        if primitive.name in TAKEN_FROM_CPU:
            known[platform][primitive] = rule
    register_callbacks(platform)
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)
    others = compilation_cache.is_cache_used

    def is_cache_used(backend: Any) -> bool:
        return compilation_cache._is_cache_enabled() if backend.platform == platform else others(backend)

    compilation_cache.is_cache_used = is_cache_used
