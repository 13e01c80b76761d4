"""Functions of `sl.jit`: lowered by JAX for the platform `systolith`, compiled, and run on a client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from pathlib import Path
from threading import Lock
from types import MethodType
from typing import Any, cast

import jax
import numpy as np
from jax._src import config, core, dtypes, source_info_util
from jax._src.api_util import infer_argnums_and_argnames

from systolith.compiler.hlo.cost.analysis import HloCostAnalysis
from systolith.compiler.hlo.ir import Module
from systolith.compiler.memory.report import MemoryUse
from systolith.compiler.options import Options
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array
from systolith.runtime.client import Client
from systolith.runtime.device import Buffer
from systolith.runtime.executable import Executable
from systolith.runtime.inputs.sources import parse_proto
from systolith.runtime.inputs.stablehlo import proto_of
from systolith.runtime.jax_platform import PLATFORM, register
from systolith.runtime.run import Run

_shaped: Any = core.shaped_abstractify
_struct: Any = jax.ShapeDtypeStruct
source_info_util.register_exclusion(__file__)  # the lines of Python that errors name are the user's


class JitFunction:
    """A function compiled for the simulated chip, as `sl.jit` gives it; has the name, docstring and signature of it.

    Attributes:
        client: where it runs.
    """

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, function: Callable[..., Any], client: Client, options: Options, named: Mapping[str, Any]
    ) -> None:
        """`named`: the arguments of `jax.jit` that say which arguments are static and donated."""
        register()
        update_wrapper(self, function)
        self.client = client
        self._options = options
        try:
            self._jax = jax.jit(function, keep_unused=True, **named)
        except (TypeError, ValueError) as error:  # numbers or names that the function does not have
            raise SystolithError(f"sl.jit: {error}") from None
        self._static = _static(function, named)
        self._compiled: dict[object, CompiledFunction] = {}
        self._compiling = Lock()
        self._last: CompiledFunction | None = None

    def __repr__(self) -> str:
        return f"<sl.jit of {getattr(self, '__qualname__', repr(self.__wrapped__))} on {self.client.chip.name}>"

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; compiles it for arguments like none before.

        Raises:
            SystolithError: an argument is no array; the function does something that the chip does not; the run fails.
        """
        leaves, structure = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or not core.trace_state_clean():
            leaves = [leaf.numpy() if isinstance(leaf, Buffer) else leaf for leaf in leaves]
            args, kwargs = jax.tree.unflatten(structure, leaves)
            return self._jax(*args, **kwargs)
        given = self._split(args, kwargs)
        compiled = self._compiled.get(given.key)
        if compiled is None:
            with self._compiling:
                compiled = self._compiled.get(given.key)
                if compiled is None:
                    compiled = self._compiled[given.key] = self._lowered(args, kwargs).compile()
        self._last = compiled
        return compiled.run(given.leaves)

    def lower(self, *args: Any, **kwargs: Any) -> LoweredFunction:
        """Lower it for arguments, of which only shapes and element types count (`jax.ShapeDtypeStruct` will do).

        Raises:
            SystolithError: an argument is no array, or the function does something that the chip does not.
        """
        self._split(args, kwargs)
        return self._lowered(args, kwargs)

    def _lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoweredFunction:
        args, kwargs = jax.tree.map(_abstract, (args, kwargs))
        traced = self._jax.trace(*args, **kwargs)
        try:
            stage = cast("Any", traced).lower(lowering_platforms=(PLATFORM,))
        except NotImplementedError as error:  # a primitive without a rule for the platform
            raise SystolithError(str(error)) from None
        return LoweredFunction(stage, self.client, self._options)

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given:
        """The arguments that are arrays, and all on which the program depends."""
        numbers, names = self._static
        fixed = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
        static = [(n, a) for n, a in enumerate(args) if n in fixed]
        static_names = [(n, a) for n, a in sorted(kwargs.items()) if n in names]
        dynamic = tuple(a for n, a in enumerate(args) if n not in fixed)
        given = _Given(dynamic, {n: a for n, a in kwargs.items() if n not in names})
        marks = tuple((n, type(a), a) for n, a in [*static, *static_names])
        try:
            hash(marks)
        except TypeError as error:
            raise SystolithError(f"{self!r}: a static argument: {error}") from None
        given.key = (marks, given.key, config.trace_context())
        return given

    @property
    def last_executable(self) -> Executable:
        """The program that ran last.

        Raises:
            SystolithError: none did.
        """
        if self._last is None:
            raise SystolithError(f"{self!r} has not been called")
        return self._last.executable

    @property
    def last_run(self) -> Run:
        """Its latest run, once that has ended.

        Raises:
            SystolithError: there is none, or it failed.
        """
        run = self.last_executable.last_run
        if run is None:
            raise SystolithError(f"{self!r} has not been called")
        return run

    def cost_analysis(self) -> dict[str, float]:
        """Of the program that ran last: flops, transcendentals, bytes accessed."""
        return self.last_executable.cost_analysis()

    @checked
    def report(self, path: str | Path) -> Path:
        """Write the HTML report of the latest run."""
        return self.last_run.report(path)


class LoweredFunction:
    """A function that JAX has lowered for the simulated chip.

    Attributes:
        out_info: pytree of the results, with `shape` and `dtype`.
        in_tree: structure of the arguments that are not static, positional and by name.
    """

    def __init__(self, stage: Any, client: Client, options: Options) -> None:
        self._stage, self._client, self._options = stage, client, options
        self.out_info, self.in_tree = stage.out_info, stage.in_tree

    def __repr__(self) -> str:
        return f"<LoweredFunction for {self._client.chip.name}: {self.in_tree}>"

    def as_text(self, dialect: str = "stablehlo") -> str:
        """The program as text: `stablehlo` or `hlo`.

        Raises:
            SystolithError: there is no such dialect.
        """
        if dialect not in ("stablehlo", "hlo"):
            raise SystolithError(f"dialect {dialect!r}: must be stablehlo or hlo")
        return str(self._stage.as_text(dialect))

    def compile(self) -> CompiledFunction:
        """Compile it for the chip.

        Raises:
            SystolithError: the compiler refuses it; names the operation and the line of Python.
        """
        return CompiledFunction(self._client.compile(self._module(), self._options), self._stage)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's keys of the program as JAX lowered it, before it is compiled: flops, bytes accessed, ..."""
        return HloCostAnalysis(self._module()).total

    def _module(self) -> Module:
        return parse_proto(proto_of(self._stage.compiler_ir("stablehlo")))


class CompiledFunction:
    """A function compiled for one set of shapes and static values.

    Attributes:
        executable: the program.
        out_info: pytree of the results, with `shape` and `dtype`.
    """

    def __init__(self, executable: Executable, stage: Any) -> None:
        self.executable = executable
        executable.calls = stage._lowering
        self.out_info = stage.out_info
        self._in_tree = stage.in_tree
        self._types = [(a.shape, a.dtype) for a in jax.tree.leaves(stage.in_avals)]
        self._constants = [np.asarray(c) for c in stage._lowering.const_args]
        self._results, self._out_tree = jax.tree.flatten(stage.out_info)

    def __repr__(self) -> str:
        return f"<CompiledFunction of {_text(self._in_tree, self._types)}: {self.executable!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on the arguments that are not static.

        Raises:
            SystolithError: it is compiled for others; the run fails.
        """
        given = _Given(args, kwargs)
        types = [(a.shape, a.dtype) for a in given.types]
        if given.structure != self._in_tree or types != self._types:
            raise SystolithError(
                f"{self.executable.program.name} is compiled for {_text(self._in_tree, self._types)}, got"
                f" {_text(given.structure, types)}"
            )
        return self.run(given.leaves)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Run it on arrays, keys and buffers of the right shapes; results as `sl.jit` says."""
        buffers = [leaf for leaf in leaves if isinstance(leaf, Buffer)]
        device = buffers[0].device.number if buffers else 0
        given = [_given(leaf, element) for leaf, (_, element) in zip(leaves, self._types, strict=True)]
        made = self.executable(*self._constants, *given, device=device)
        results = [_result(b, info.dtype, bool(buffers)) for b, info in zip(made, self._results, strict=True)]
        return jax.tree.unflatten(self._out_tree, results)

    def as_text(self, stage: str = "program.s") -> str:
        """A stage of the compilation, as `Executable.as_text`."""
        return self.executable.as_text(stage)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's keys: flops, transcendentals, bytes accessed."""
        return self.executable.cost_analysis()

    def memory_analysis(self) -> MemoryUse:
        """Use of HBM and VMEM."""
        return self.executable.memory


class _Given:
    """Arguments that are not static, flat.

    Attributes:
        leaves: arrays, keys, buffers.
        structure: how to put them together.
        types: JAX's type of each.
        key: all on which the program depends.

    Raises:
        SystolithError: JAX makes no array of one.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.leaves, self.structure = jax.tree.flatten((args, kwargs))
        try:
            self.types = [_shaped(_abstract(leaf)) for leaf in self.leaves]
        except (TypeError, ValueError, OverflowError) as error:
            raise SystolithError(f"an argument is no array to JAX: {error}") from None
        self.key: object = (self.structure, tuple(self.types))


def _abstract(leaf: Any) -> Any:
    """An argument as JAX takes it to trace."""
    return _struct(leaf.shape, leaf.dtype.stored) if isinstance(leaf, Buffer) else leaf


def _is_key(element: Any) -> bool:
    return bool(dtypes.issubdtype(element, dtypes.extended))


def _given(leaf: Any, element: Any) -> Buffer | Array:
    """An argument as an executable takes it: a key is its numbers."""
    if isinstance(leaf, Buffer):
        return leaf
    if _is_key(element):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf).astype(element, copy=False)


def _result(buffer: Buffer, element: Any, stays: bool) -> Any:
    if _is_key(element):
        return jax.random.wrap_key_data(jax.numpy.asarray(buffer.numpy()), impl=element._impl.name)
    return buffer if stays else buffer.numpy()


def _static(function: Callable[..., Any], named: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of static arguments, each with its other, by JAX's rule."""
    numbers, names = named.get("static_argnums"), named.get("static_argnames")
    try:
        return infer_argnums_and_argnames(inspect.signature(function), numbers, names)
    except ValueError:  # a builtin has no signature
        return tuple(np.atleast_1d(numbers).tolist()) if numbers is not None else (), ()


def _text(structure: Any, types: Sequence[tuple[tuple[int, ...], Any]]) -> str:
    """The types of arguments, in their structure."""
    args, kwargs = jax.tree.unflatten(structure, [f"{element}{list(shape)}" for shape, element in types])
    return ", ".join([*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]) or "no arguments"
