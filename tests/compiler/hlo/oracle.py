"""XLA's own CPU backend, through jaxlib: the oracle for values that owes nothing to systolith."""

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

QUICK = ("xla_cpu_use_fusion_emitters", False)
"""XLA's emitters of LLVM's IR, which compile a small module in 40 % of the time of those of MLIR, its default."""

DIFFER = re.compile(r"\b((cbrt|power|reduce-precision)\(|f8e)")
"""Operations and types of which the two give other values: the default ones count."""


def by_emitters(lines: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Operations, each after its type, in those that the default emitters compile and those that the quick ones do."""
    parts: tuple[list[tuple[str, str]], ...] = ([], [])
    for line in lines:
        parts[DIFFER.search(" ".join(line)) is None].append(line)
    return [part for part in parts if part]


def run_xla(text: str, *arrays: Array) -> list[Array]:
    """Run the text of an HLO module on XLA's CPU backend; results flattened.

    Raises:
        Exception: whatever XLA raises for a module that it refuses.
    """
    # jaxlib's bindings to XLA have no types.
    hlo: Any = importlib.import_module("jaxlib._hlo")
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    options: Any = importlib.import_module("jaxlib.xla_client").CompileOptions()
    options.executable_build_options.debug_options.xla_backend_optimization_level = 0  # of LLVM: most of the time
    if not DIFFER.search(text):
        options.env_option_overrides = [QUICK]
    jax: Any = importlib.import_module("jax")
    device = jax.devices("cpu")[0]
    module = hlo.hlo_module_from_text(text)
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    mlir = jaxlib.mlir.xla_computation_to_mlir_module(computation)
    executable = device.client.compile_and_load(mlir, jaxlib.DeviceList((device,)), options)
    with jax.enable_x64(True):
        buffers = [jax.device_put(np.asarray(a), device) for a in arrays]
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(parts[0]) for parts in results]
