"""Shape inference: a table from opcode to the function that gives the result's shape.

Each function takes an instruction (operands and attributes; its declared shape only where `READS_SHAPE` says so) and
returns the shape, layout aside, or raises `HloError` with the rule that is broken.  Sources: XLA's
`shape_inference.cc`, `hlo_verifier.cc` and its operation semantics.
"""

from __future__ import annotations

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.opcodes import suggestion
from systolith.compiler.hlo.rules.shape_rules import Infer
from systolith.compiler.hlo.rules.shapes_async import ASYNC_RULES
from systolith.compiler.hlo.rules.shapes_collectives import COLLECTIVE_RULES
from systolith.compiler.hlo.rules.shapes_contraction import CONTRACTION_RULES
from systolith.compiler.hlo.rules.shapes_control import CONTROL_RULES
from systolith.compiler.hlo.rules.shapes_elementwise import ELEMENTWISE_RULES
from systolith.compiler.hlo.rules.shapes_gather import GATHER_RULES
from systolith.compiler.hlo.rules.shapes_linalg import LINALG_RULES
from systolith.compiler.hlo.rules.shapes_movement import MOVEMENT_RULES
from systolith.compiler.hlo.rules.shapes_random import RANDOM_RULES
from systolith.compiler.hlo.rules.shapes_reduction import REDUCTION_RULES
from systolith.compiler.hlo.shape import Shape

INFER: dict[str, Infer] = {
    **CONTROL_RULES,
    **ELEMENTWISE_RULES,
    **MOVEMENT_RULES,
    **GATHER_RULES,
    **CONTRACTION_RULES,
    **REDUCTION_RULES,
    **LINALG_RULES,
    **RANDOM_RULES,
    **COLLECTIVE_RULES,
    **ASYNC_RULES,
}
"""Opcode to rule."""

READS_SHAPE: dict[str, str] = {
    **dict.fromkeys("parameter constant bitcast custom-call iota".split(), "all of it"),
    **dict.fromkeys("broadcast reshape dynamic-reshape rng".split(), "sizes"),
    **dict.fromkeys("convert stochastic-convert bitcast-convert".split(), "element type"),
    **dict.fromkeys(("all-gather", "all-gather-start", "reduce-scatter"), "number of devices in a group"),
    "rng-bit-generator": "the array",
    **dict.fromkeys(("infeed", "recv"), "the data"),
    **dict.fromkeys(("async-start", "async-update"), "result and contexts"),
}
"""The part of the declared shape that an opcode's rule reads, where operands and attributes do not determine all.

Where an instruction declares nothing yet, its shape is `TOKEN`.  Also read, where it is no token: the element type of a
dot or convolution, whether a `sort` of one array gives a tuple, the contexts of a `collective-permute-start`.
"""


def infer(instruction: Instruction) -> Shape:
    """The shape that an instruction must have.

    Raises:
        HloError: its operands or attributes break a rule of the operation, or XLA has no such operation.
    """
    return rule_of(instruction.opcode)(instruction)


def rule_of(opcode: str) -> Infer:
    """The rule of an opcode.

    Raises:
        HloError: XLA has no such operation.
    """
    if opcode not in INFER:
        raise HloError(f"XLA has no operation {opcode!r}{suggestion(opcode)}")
    return INFER[opcode]
