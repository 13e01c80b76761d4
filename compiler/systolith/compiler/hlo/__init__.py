"""The HLO front end: text to IR and back, verifier, reference evaluator, cost analysis.

- In: HLO text, HloModuleProto, arrays.  Out: a `Module`, its text, values and costs, or an `HloError` with its place.
- From below: `errors`, `escapes`, `lexer` (tokens), `shape`, `attributes`, `ir`; then `rules/`, `text/`, `proto/`,
  `values/`, `cost/`.
- Not here: passes, the builder of XLA's client, anything that knows the machine.
"""

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.devices import Host
from systolith.compiler.hlo.values.evaluator import evaluate, evaluate_computation, evaluate_devices

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
