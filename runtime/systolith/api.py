"""systolith's public face: `from systolith import api as sl`."""

from importlib import import_module
from typing import TYPE_CHECKING

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.shape import Layout, Shape
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.options import Options
from systolith.compiler.xla_builder import XlaBuilder, XlaComputation, XlaOp, ops
from systolith.compiler.xla_builder.arguments import ChannelHandle, ChannelType
from systolith.compiler.xla_builder.contraction import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
)
from systolith.compiler.xla_builder.cpp_names import (
    BF16,
    C64,
    C128,
    F16,
    F32,
    F64,
    PRED,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    LiteralUtil,
    PaddingConfigDimension,
    ShapeUtil,
    make_shape,
)
from systolith.compiler.xla_builder.literal import Literal
from systolith.compiler.xla_builder.movement import GatherDimensionNumbers
from systolith.compiler.xla_builder.padding import Padding, make_padding
from systolith.compiler.xla_builder.reduction import ScatterDimensionNumbers
from systolith.isa.chip import Chip, load_chip
from systolith.isa.errors import SystolithError
from systolith.isa.host_functions import register as register_custom_call_target
from systolith.isa.routines import Routine
from systolith.isa.routines import register as register_custom_call_routine
from systolith.runtime.client import Client, ClientLibrary
from systolith.runtime.connect import connect
from systolith.runtime.device import Buffer, Device
from systolith.runtime.executable import Executable
from systolith.runtime.global_data import GlobalData, XlaComputationInstance
from systolith.runtime.inputs.sources import parse_module
from systolith.runtime.jit import jit
from systolith.runtime.run import Run, last_run
from systolith.sim.host_times import HostTimes

if TYPE_CHECKING:
    from systolith.reports import plot
    from systolith.runtime.sweep.run import sweep

chip = load_chip
"""`chip("tpu_v3", {"vmem.bytes": "8MiB"})`: a preset or file, and other values of its fields."""

ComputationBuilder = XlaBuilder
"""The first generation's name of the builder."""

__version__: str
_LATER = {"plot": ("systolith.reports", "plot"), "sweep": ("systolith.runtime.sweep.run", "sweep")}
"""Names that take long to import, and few use: package and name there."""


if not TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version("systolith")
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        package, attribute = _LATER[name]
        try:
            found = getattr(import_module(package), attribute)
        except AttributeError:  # a module of the package
            found = import_module(f"{package}.{attribute}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "BF16",
    "C64",
    "C128",
    "F16",
    "F32",
    "F64",
    "PRED",
    "S8",
    "S16",
    "S32",
    "S64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Buffer",
    "ChannelHandle",
    "ChannelType",
    "Chip",
    "Client",
    "ClientLibrary",
    "ComputationBuilder",
    "ConvolutionDimensionNumbers",
    "Device",
    "DotDimensionNumbers",
    "Executable",
    "GatherDimensionNumbers",
    "GlobalData",
    "HostTimes",
    "Layout",
    "Literal",
    "LiteralUtil",
    "Module",
    "Options",
    "Padding",
    "PaddingConfigDimension",
    "Routine",
    "Run",
    "ScatterDimensionNumbers",
    "Shape",
    "ShapeUtil",
    "SystolithError",
    "XlaBuilder",
    "XlaComputation",
    "XlaComputationInstance",
    "XlaOp",
    "__version__",
    "chip",
    "connect",
    "evaluate",
    "jit",
    "last_run",
    "load_chip",
    "make_padding",
    "make_shape",
    "ops",
    "parse_hlo",
    "parse_module",
    "plot",
    "print_hlo",
    "register_custom_call_routine",
    "register_custom_call_target",
    "sweep",
    "verify",
]
