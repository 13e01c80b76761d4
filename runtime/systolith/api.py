"""systolith's public face: `from systolith import api as sl`."""

from systolith.compiler.hlo.evaluator import evaluate
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.parser import parse_hlo
from systolith.compiler.hlo.printer import print_hlo
from systolith.compiler.hlo.verifier import verify
from systolith.compiler.lowering import Options
from systolith.isa.chip import Chip, load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.buffer import Buffer
from systolith.runtime.client import Client, Device
from systolith.runtime.executable import Executable, Run
from systolith.runtime.jit import jit

__all__ = [
    "Buffer",
    "Chip",
    "Client",
    "Device",
    "Executable",
    "Module",
    "Options",
    "Run",
    "SystolithError",
    "evaluate",
    "jit",
    "load_chip",
    "parse_hlo",
    "print_hlo",
    "verify",
]
