"""The module that JAX finds by the entry point `jax_plugins`: `initialize` registers the platform `systolith`.

Every process that uses JAX calls it: nothing is imported before JAX asks for the devices.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from systolith.runtime.jax_platform import PLATFORM, register

JAX = "0.10"
"""The version whose internals it was tested with; PJRT itself is compatible (`entries.py`)."""
LOWEST = -1
"""Priority: below that of `cpu`, so that the platform is the default only where the user names it."""


def initialize() -> None:
    """Register the platform with JAX."""
    from jax._src import xla_bridge

    xla_bridge.register_backend_factory(PLATFORM, _client, priority=LOWEST, fail_quietly=True)


def _client() -> Any:
    """JAX's client of the plugin.

    Raises:
        RuntimeError: this JAX is another one than the plugin is made for.
    """
    try:
        return _made()
    except (ImportError, AttributeError, TypeError) as error:
        raise RuntimeError(
            f"systolith's plugin is made for jax {JAX}, this is {version('jax')}: {error}; install 'systolith[jax]'"
            " anew, or another jax"
        ) from error


def _made() -> Any:
    from jax._src import xla_bridge
    from jax._src.lib import _profiler
    from jaxlib import xla_client

    from systolith.pjrt import buffers  # noqa: F401  its functions are entries of the table
    from systolith.pjrt.table import Api

    if not xla_client.pjrt_plugin_loaded(PLATFORM):
        capsule = Api().capsule
        xla_client.load_pjrt_plugin_with_c_api(PLATFORM, capsule)
        _profiler.register_plugin_profiler(capsule)
        register()
    return xla_bridge.make_pjrt_c_api_client(PLATFORM)
