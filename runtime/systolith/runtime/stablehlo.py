"""StableHLO, as JAX lowers to it, by jaxlib's converters."""

from __future__ import annotations

from typing import Any

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.proto.schema import message_class
from systolith.runtime.source_lines import mark
from systolith.runtime.sources import parse_proto


def parsed_mlir(code: bytes) -> bytes:
    """A program of MLIR as a serialized HloModuleProto.

    Args:
        code: StableHLO, perhaps with Shardy: a portable artifact, bytecode or text.
    """
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context() as context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, code)
        except Exception:  # jaxlib gives no type: it is not of that form
            module = ir.Module.parse(code, context)
        return proto_of(module)


def proto_of(module: Any) -> bytes:
    """A module of jaxlib's MLIR as a serialized HloModuleProto."""
    from jax._src.interpreters import mlir
    from jaxlib import _jax

    computation = _jax.mlir.mlir_module_to_xla_computation(mlir.module_to_bytecode(module), False, False)
    proto: bytes = computation.as_serialized_hlo_module_proto()
    return proto


def read_module(proto: bytes, name: str = "jax") -> Module:
    """The module of a proto; its instructions know their lines of Python.

    Raises:
        SystolithError: it is ill-formed.
    """
    module = parse_proto(proto, name)
    mark(module, message_class("HloModuleProto").FromString(proto))
    return module
