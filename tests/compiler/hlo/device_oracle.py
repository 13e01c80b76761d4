"""XLA's CPU backend with several devices, in a process of its own: the oracle for operations of several devices.

The number of devices is fixed when XLA starts, and XLA aborts on some bad programs: hence the process.
"""

import importlib
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
DEVICES = 8


@dataclass(frozen=True)
class Program:
    """A module for `replicas` x `partitions` devices, and each device's arguments."""

    text: str
    arguments: list[list[Array]]
    replicas: int = 1
    partitions: int = 1


def run_module(name: str, stdin: object, **environment: str) -> Any:
    """The pickle that a Python module writes when it runs with 8 CPU devices and a pickle to read."""
    fixed = {
        # Without optimisation by LLVM, which takes most of the time.
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES} --xla_backend_optimization_level=0"
        " --xla_cpu_use_fusion_emitters=false",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
    }
    run = subprocess.run(
        [sys.executable, "-m", name],
        input=pickle.dumps(stdin),
        capture_output=True,
        env=os.environ | fixed | environment,
        timeout=120,
    )
    if run.returncode:
        raise RuntimeError(run.stderr.decode()[-2000:])
    return pickle.loads(run.stdout)


def run_xla_devices(programs: list[Program]) -> list[list[list[Array]] | str]:
    """For each program each device's results, tuples flattened, or XLA's message where it refuses the program."""
    results: list[list[list[Array]] | str] = run_module("tests.compiler.hlo.device_oracle", programs)
    return results


def _run(program: Program) -> list[list[Array]] | str:
    # jaxlib's bindings to XLA have no types.
    hlo: Any = importlib.import_module("jaxlib._hlo")
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    client_module: Any = importlib.import_module("jaxlib.xla_client")
    jax: Any = importlib.import_module("jax")
    count = program.replicas * program.partitions
    devices = jax.devices("cpu")[:count]
    options = client_module.CompileOptions()
    options.num_replicas, options.num_partitions = program.replicas, program.partitions
    grid = np.arange(count).reshape(program.replicas, program.partitions)
    options.device_assignment = client_module.DeviceAssignment.create(grid)
    options.executable_build_options.use_spmd_partitioning = program.partitions > 1
    try:
        module = hlo.hlo_module_from_text(program.text)
        computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        mlir = jaxlib.mlir.xla_computation_to_mlir_module(computation)
        executable = devices[0].client.compile_and_load(mlir, jaxlib.DeviceList(tuple(devices)), options)
        mesh = jax.sharding.Mesh(np.array(devices), "d")
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        buffers = []
        for parts in zip(*program.arguments, strict=True):
            local = [jax.device_put(x[None], d) for x, d in zip(parts, devices, strict=True)]
            shape = (count, *parts[0].shape)
            buffers.append(jax.make_array_from_single_device_arrays(shape, sharding, local))
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [[np.asarray(parts[n]) for parts in results] for n in range(count)]
    except Exception as problem:
        return str(problem)


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps([_run(p) for p in pickle.load(sys.stdin.buffer)]))
