"""StableHLO and VHLO, as JAX lowers and exports to them, by jaxlib's converters.

Taken are MLIR's text and bytecode, portable artifacts (bytecode of VHLO, which later versions read), and what
`jax.export` serializes, which has a portable artifact in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from systolith.isa.errors import SystolithError

_BYTECODE = b"ML\xefR"
_ARTIFACT = _BYTECODE + b"\rStableHLO_"
_HIDDEN = "jax.global_constant"
_SIZE = 4  # bytes, before bytes of a FlatBuffer, which `jax.export` writes
# After comments and aliases: a module, or a function alone.  HLO's text starts with `HloModule` or a computation.
_TEXT = re.compile(
    r"""\s*((//|\#)[^\n]*\n\s*)*("?(builtin\.)?module"?\s*([@{(]|attributes\b)|"?(func|vhlo)\.func)""", re.VERBOSE
)


class StableHloError(SystolithError):
    """StableHLO that cannot be read or converted."""


def is_mlir_text(text: str) -> bool:
    """Whether a text is MLIR, by its beginning."""
    return _TEXT.match(text) is not None


def is_mlir(data: bytes) -> bool:
    """Whether bytes that are no text are MLIR's bytecode, or what `jax.export` serializes."""
    return data.startswith(_BYTECODE) or _ARTIFACT in data


def proto_of_mlir(code: bytes, name: str = "jax") -> bytes:
    """A program of MLIR as a serialized HloModuleProto.

    Args:
        code: StableHLO or VHLO, perhaps with Shardy, in one of the forms above.
        name: of the program, for messages.

    Raises:
        StableHloError: it is ill-formed, no HLO can express it, or JAX is not installed.
    """
    code = _exported(code, name)
    try:
        from jax._src.interpreters import mlir
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        raise StableHloError(f"{name}: StableHLO is read by JAX: pip install 'systolith[jax]'") from None
    with mlir.make_ir_context() as context, _one_line(context, name):
        if code.startswith(_ARTIFACT):
            return proto_of(stablehlo.deserialize_portable_artifact(context, code))
        module = ir.Module.parse(code, context)
        if any(operation.operation.name.startswith("vhlo.") for operation in module.body.operations):
            module = stablehlo.deserialize_portable_artifact(context, mlir.module_to_bytecode(module))
        return proto_of(module)


def proto_of(module: Any) -> bytes:
    """A module of jaxlib's MLIR as a serialized HloModuleProto."""
    from jax._src.interpreters import mlir
    from jaxlib import _jax

    _refuse_hidden_arguments(module)
    computation = _jax.mlir.mlir_module_to_xla_computation(mlir.module_to_bytecode(module), False, False)
    proto: bytes = computation.as_serialized_hlo_module_proto()
    return proto


def _exported(code: bytes, name: str) -> bytes:
    """The portable artifact in what `jax.export` serialized; other code as it is."""
    at = code.find(_ARTIFACT)
    if at <= 0:
        return code
    size = int.from_bytes(code[max(at - _SIZE, 0) : at], "little")
    if at + size > len(code):
        raise StableHloError(
            f"{name}: the exported program is cut: {size} bytes of StableHLO, {len(code) - at} are there"
        )
    return code[at : at + size]


def _refuse_hidden_arguments(module: Any) -> None:
    """Refuse what `jax.export` passes beside the user's arguments."""
    from jaxlib.mlir import ir

    for function in module.body.operations:
        attributes = function.attributes
        if "arg_attrs" not in attributes or "sym_name" not in attributes:
            continue
        if ir.StringAttr(attributes["sym_name"]).value == "main" and "jax.global_constant" in str(
            attributes["arg_attrs"]
        ):
            raise StableHloError(
                "the program is exported for several platforms, or takes its sizes as arguments: export it for one"
                " platform (jax.export.export(f, platforms=['tpu'])) and for shapes without symbols"
            )


@contextmanager
def _one_line(context: Any, name: str) -> Iterator[None]:
    """Errors of MLIR as one line; nothing goes to standard error."""
    told: list[str] = []

    def tell(diagnostic: Any) -> bool:
        with suppress(Exception):  # of bytes that are no text
            told.append(f"{diagnostic.location}: {diagnostic.message}")
        return True

    handler = context.attach_diagnostic_handler(tell)
    try:
        yield
    except SystolithError as error:
        raise StableHloError(f"{name}: {error}") from None
    except Exception as error:  # MLIR's bindings have several types
        lines = [line.strip() for line in (*told, *str(error).splitlines()) if line.strip()]
        first = next((line for line in lines if "error:" in line or "loc(" in line), lines[0] if lines else "unknown")
        first = re.sub(r"^[A-Z_]+: ", "", first)  # a status
        found = re.match(r"""(?:error: )?(?:loc\()?"-":(\d+):(\d+)\)?:(?: error:)? (.*)""", first)
        if found and int(found[1]):
            raise StableHloError(f"{name}:{found[1]}:{found[2]}: {found[3]}") from None
        raise StableHloError(f"{name}: not readable as StableHLO: {found[3] if found else first}") from None
    finally:
        handler.detach()
