"""ONNX models as modules: a table of operations to HLO (`table.py`), constants folded by ONNX's own evaluator.

Inputs are the first parameters, in order, then the initializers that are too large for a text.  Images are held with
their channels last (`graph.ChannelsLast`) until an operation sees their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.shape import array
from systolith.compiler.xla_builder import XlaBuilder, XlaOp
from systolith.isa.dtypes import DType
from systolith.isa.errors import SystolithError
from systolith.isa.files import Fill, read_bytes
from systolith.runtime.arrays import Array, as_bits, random_array
from systolith.runtime.imports.onnx.elementwise import ELEMENTWISE
from systolith.runtime.imports.onnx.graph import ChannelsLast, Graph, OnnxError, Value, element_type
from systolith.runtime.imports.onnx.node import Node
from systolith.runtime.imports.onnx.table import TABLE

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""
OLDEST, CONVERTED = 13, 18
"""The oldest version of ONNX's operators whose meaning the table has, and that to which older models are converted."""


@dataclass
class Imported:
    """A model in HLO.

    Attributes:
        module: the module.
        inputs: type and dimensions of each input, in order.
        weights: values of the parameters that follow.
    """

    module: Module
    inputs: list[tuple[DType, tuple[int, ...]]]
    weights: list[Array]

    def arrays(self, seed: int) -> list[Array]:
        """Arguments: random inputs from a seed, and the weights."""
        rng = np.random.default_rng(seed)
        return [random_array(rng, element, dims) for element, dims in self.inputs] + self.weights

    def arguments(self, seed: int) -> Fill:
        """A file of `arrays`, for `run --args`."""
        named: dict[str, Any] = {f"arg{n}": as_bits(a) for n, a in enumerate(self.arrays(seed))}
        return lambda handle: np.savez(handle, allow_pickle=False, **named)


def read_onnx(path: Path, dims: Sequence[str] = ()) -> Imported:
    """The module of a model.

    Args:
        path: the file.
        dims: `NAME=N`, sizes of symbolic dimensions.

    Raises:
        OnnxError: it is none; an operation, attribute, type or size has no counterpart; names it.
    """
    try:
        import onnx
    except ImportError:
        raise OnnxError("this needs onnx: pip install 'systolith[onnx]'") from None
    try:
        model = onnx.load_model_from_string(read_bytes(path, OnnxError))
        onnx.load_external_data_for_model(model, str(path.parent))
    except SystolithError:
        raise
    except Exception as problem:  # protobuf's errors, and those of files beside it
        raise OnnxError(f"{path}: not an ONNX model: {' '.join(str(problem).split())}") from None
    return import_model(model, str(path), _sizes(dims))


def import_model(model: ModelProto, what: str = "model", sizes: Mapping[str, int] | None = None) -> Imported:
    """The module of a model that has been read; as `read_onnx`."""
    from onnx import numpy_helper

    model = _recent(model, what)
    opset = next((o.version for o in model.opset_import if o.domain in DOMAINS), 0)
    graph = Graph(XlaBuilder(model.graph.name or "onnx"), opset)
    for initializer in model.graph.initializer:
        graph.values[initializer.name] = numpy_helper.to_array(initializer)
    inputs = [i for i in model.graph.input if i.name not in graph.values]
    declared = [_declared(i, what, sizes or {}) for i in inputs]
    for proto, (element, dims) in zip(inputs, declared, strict=True):
        graph.values[proto.name] = graph.b.parameter(graph.parameters, array(element, dims), proto.name)
        graph.parameters += 1
    if unknown := _unknown(model.graph.node, inputs):
        each, there = "no such operation" if len(unknown) == 1 else "no such operations", ", ".join(sorted(TABLE))
        raise OnnxError(f"{what}: {', '.join(unknown)}: {each} in the table; there are {there}")
    for node in model.graph.node:
        _add(graph, node, what)
    for result in model.graph.output:
        if result.name not in graph.values:
            raise OnnxError(f"{what}: output {result.name!r} is nowhere computed")
    try:
        graph.b.tuple([graph.named(result.name) for result in model.graph.output])
        module = graph.b.build().module()
        verify(module)
    except HloError as problem:
        raise OnnxError(f"{what}: {problem.message}") from None
    return Imported(module, declared, graph.weights)


def _recent(model: ModelProto, what: str) -> ModelProto:
    version = next((o.version for o in model.opset_import if o.domain in DOMAINS), OLDEST)
    if version >= OLDEST:
        return model
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, CONVERTED)
    except Exception as problem:  # of the converter, whatever it meets
        text = " ".join(str(problem).split())[:200]
        raise OnnxError(f"{what}: operators of version {version}, and ONNX's converter fails: {text}") from None


def _unknown(nodes: Iterable[NodeProto], inputs: Iterable[ValueInfoProto]) -> list[str]:
    """The operations on values of the run that are not in the table, each with the first node of it."""
    of_run = {proto.name for proto in inputs}
    found: dict[tuple[str, str], str] = {}
    for node in nodes:
        if node.op_type == "Shape" or of_run.isdisjoint(node.input):
            continue  # known before the run
        of_run.update(node.output)
        if node.domain not in DOMAINS or node.op_type not in TABLE:
            domain = "" if node.domain in DOMAINS else f" of domain {node.domain}"
            label = f"{node.op_type} {node.name or node.output[0]!r}{domain}"
            found.setdefault((node.domain, node.op_type), label)
    return list(found.values())


def _add(graph: Graph, node: NodeProto, what: str) -> None:
    where = f"{what}: {node.op_type} {node.name or node.output[0]!r}"
    missing = next((name for name in node.input if name and name not in graph.values), None)
    if missing is not None:
        raise OnnxError(f"{where}: input {missing!r} is nowhere computed")
    given = [graph.values[name] if name else None for name in node.input]
    if node.op_type == "Shape" and isinstance(given[0], XlaOp | ChannelsLast):
        given = [np.broadcast_to(np.float32(0), graph.dims(node.input[0]))]
    if all(value is None or not isinstance(value, XlaOp | ChannelsLast) for value in given):
        results: Sequence[Value] = _folded(graph, node, given, where)
    else:
        try:
            graph.b.set_op_metadata(op_type=node.op_type, op_name=node.name or node.output[0])
            last = node.op_type in ELEMENTWISE and graph.together_last([name for name in node.input if name])
            results = TABLE[node.op_type](Node(graph, node, where, last))
            ops = [r.op if isinstance(r, ChannelsLast) else r for r in results]
            for op in ops:
                if isinstance(op, XlaOp):
                    _ = op.shape  # an error of the builder is this node's
            if last:
                results = [ChannelsLast(op) if isinstance(op, XlaOp) else op for op in ops]
        except HloError as problem:
            raise OnnxError(f"{where}: {problem.message}") from None
        finally:
            graph.b.clear_op_metadata()
    asked = [name for name in node.output if name]
    if len(asked) > len(results):
        raise OnnxError(f"{where}: output {asked[len(results)]!r}: only the first {len(results)} are in the table")
    graph.values.update((name, value) for name, value in zip(node.output, results, strict=False) if name)


def _folded(graph: Graph, node: NodeProto, given: Sequence[Any], where: str) -> Sequence[Array]:
    """The results of a node all of whose inputs are known, by ONNX's reference evaluator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        alone = onnx.helper.make_graph(
            [node],
            "folded",
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in node.input if n],
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n],
        )
        model = onnx.helper.make_model(alone, opset_imports=[onnx.helper.make_opsetid("", graph.opset)])
        fed = {name: value for name, value in zip(node.input, given, strict=True) if name}
        return [np.asarray(x) for x in ReferenceEvaluator(model).run(None, fed)]
    except Exception as problem:  # of the evaluator, whatever it meets
        raise OnnxError(f"{where}: cannot be computed: {' '.join(str(problem).split())[:200]}") from None


def _declared(proto: ValueInfoProto, what: str, sizes: Mapping[str, int]) -> tuple[DType, tuple[int, ...]]:
    where = f"{what}: input {proto.name!r}"
    tensor = proto.type.tensor_type
    if not proto.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise OnnxError(f"{where}: is no tensor with a shape")
    dims = []
    for n, d in enumerate(tensor.shape.dim):
        if d.HasField("dim_value"):
            dims.append(d.dim_value)
        elif d.dim_param in sizes:
            dims.append(sizes[d.dim_param])
        else:
            name = d.dim_param or f"{proto.name}.{n}"
            if name not in sizes:
                raise OnnxError(f"{where}: dimension {n} is symbolic; give its size: --dim {name}=N")
            dims.append(sizes[name])
    return element_type(tensor.elem_type, where), tuple(dims)


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal():
            raise OnnxError(f"--dim {text}: must be NAME=N, such as batch=1")
        found[name] = int(size)
    return found
