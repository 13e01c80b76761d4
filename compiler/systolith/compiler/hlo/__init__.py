"""The HLO front end: text to IR and back, verifier, reference evaluator."""

from systolith.compiler.hlo.devices import Host
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.evaluator import evaluate, evaluate_computation, evaluate_devices
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.parser import parse_hlo
from systolith.compiler.hlo.printer import print_hlo
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.verifier import verify

__all__ = [
    "Computation",
    "HloError",
    "Host",
    "Instruction",
    "Module",
    "Shape",
    "evaluate",
    "evaluate_computation",
    "evaluate_devices",
    "parse_hlo",
    "print_hlo",
    "verify",
]
