"""The table of opcodes: all that the compiler knows of each HLO operation, in one row.

A row says of which family an opcode is, and what the compiler knows of it: the expression of an element of its result,
the index map through which it moves data, the rule of its dimensions, or the pass that writes it as other operations.
Whatever depends on the opcode (what is refused, what fuses, which values are views, what reports count) asks here.
Tables further up, of what lowers a family, are made by `of_family`, which checks that they are complete.

`register` replaces a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from systolith.compiler.hlo import opcodes
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import IndexMap
from systolith.compiler.ops import dim_rules as dims
from systolith.compiler.ops.dim_rules import DimRule
from systolith.compiler.ops.element_builder import Rule
from systolith.compiler.ops.elementwise import RULES, MicroOps
from systolith.compiler.ops.functions import COMPOSED
from systolith.isa import routines
from systolith.isa.microops import MICROOPS, Slot


class Family(StrEnum):
    """Families of operations; those of a family are lowered alike."""

    GIVEN = "lies in memory before the computation runs"
    NAME = "names values; nothing moves"
    CONTROL = "branches and loops of the sequencer"
    CALL = "is inlined"
    ELEMENTWISE = "micro-operations of the vector unit"
    MAP = "a computation of elementwise operations, inlined"
    MOVEMENT = "an index map, folded into what reads the result"
    CONTRACTION = "products on the matrix units"
    REDUCTION = "carried registers of the vector unit"
    DMA = "moves data at indices that only the run knows"
    EXPANDED = "is written as other operations by its expander"
    DYNAMIC = "depends on the device, or on sizes that only the run knows"
    ORDER = "orders others"
    ASYNC = "starts, goes on with or ends what runs beside others"
    REGISTERED = "is lowered to tile IR by a rule of an installed package"
    HOST = "moves arrays between the host's queues and the device"
    EFFECT = "does more than give a value"


_LOWERED = (
    Family.GIVEN,
    Family.NAME,
    Family.CONTROL,
    Family.MAP,
    Family.MOVEMENT,
    Family.CONTRACTION,
    Family.REDUCTION,
    Family.DMA,
    Family.REGISTERED,
    Family.HOST,
)

RUNNING = (Family.CALL, Family.CONTROL, Family.HOST)
"""Families of what runs in grouped HLO: groups, loops and conditionals, infeed and outfeed."""

ROOTS = (Family.CONTRACTION, Family.REDUCTION)
"""Families of root operations: a group has at most one, or several on one iteration space."""

MoveRule = Callable[[Instruction, IndexMap], IndexMap | None]
"""(instruction, map to its result's elements) -> map to its operand's; None: that is no index map."""


@dataclass(frozen=True)
class OpInfo:
    """A row.

    Attributes:
        opcode: its name.
        family: what it is.
        compute: makes an element of the result of those of the operands; of elementwise operations that have a
            lowering.
        move: of data movement of one operand.
        dim: which dimension of an operand belongs to one of the result; None: all of the operands is needed.
        view: whether it may only change how an array in memory is addressed.
        shifts: whether users of its result read its operand at other indices than users of the operand itself, or not
            at all of them.
        updates: whether its result is its first operand, changed in places (if it has one result).
        expander: name of the pass that writes it as other operations, always or where it has to.
    """

    opcode: str
    family: Family
    compute: Rule | None = None
    move: MoveRule | None = None
    dim: DimRule | None = None
    view: bool = False
    shifts: bool = False
    updates: bool = False
    expander: str = ""

    @property
    def lowered(self) -> bool:
        """Whether there is a lowering (for some element types at least)."""
        return self.compute is not None or self.family in _LOWERED

    @property
    def in_kernel(self) -> bool:
        """Whether it can be part of a kernel of the vector unit, beside others."""
        return self.compute is not None or self.family in (Family.MOVEMENT, Family.MAP)

    @property
    def expensive(self) -> bool:
        """Whether doing it twice costs more than a few cycles a vector."""
        if isinstance(self.compute, MicroOps) and self.compute.float:
            return MICROOPS[self.compute.float].slot is Slot.TRANS
        return self.family is Family.MAP or self.opcode in COMPOSED


def _rows(family: Family, names: str) -> list[OpInfo]:
    """Operations of which there is nothing to say but their family."""
    return [OpInfo(name, family) for name in names.split()]


def _elementwise(name: str, expander: str = "") -> OpInfo:
    return OpInfo(name, Family.ELEMENTWISE, RULES.get(name), dim=dims.elementwise_dim, expander=expander)


_IN_ORDER = "convert-async-to-sync"
_ALONE = "single-device"

OPS: dict[str, OpInfo] = {
    row.opcode: row
    for row in (
        *_rows(Family.GIVEN, "parameter constant"),
        *_rows(Family.NAME, "after-all tuple get-tuple-element"),
        OpInfo("bitcast", Family.NAME),
        *_rows(Family.CONTROL, "while conditional"),
        OpInfo("call", Family.CALL, expander="call-inliner"),
        OpInfo("fusion", Family.CALL, expander="fusion-inliner"),
        *(_elementwise(name) for name in sorted(opcodes.ELEMENTWISE)),
        _elementwise("bitcast-convert", "bitcast_dtypes_expander"),
        _elementwise("stochastic-convert", "stochastic-convert-decomposer"),
        *(_elementwise(name, "complex-rewriter") for name in ("complex", "real", "imag")),
        *_rows(Family.MAP, "map"),
        OpInfo(
            "broadcast",
            Family.MOVEMENT,
            move=lambda i, m: m.broadcast(i.ints("dimensions", ()), i.operands[0].dims),
            dim=dims.broadcast_dim,
        ),
        OpInfo(
            "reshape",
            Family.MOVEMENT,
            move=lambda i, m: m.reshape(i.operands[0].dims, i.dims),
            dim=dims.reshape_dim,
            view=True,
        ),
        OpInfo(
            "transpose",
            Family.MOVEMENT,
            move=lambda i, m: m.transpose(i.ints("dimensions")) if i.dims else m,
            dim=lambda i, k, d: i.ints("dimensions")[d],
            view=True,
        ),
        OpInfo(
            "slice", Family.MOVEMENT, move=lambda i, m: m.slice(i.slices), dim=dims.slice_dim, view=True, shifts=True
        ),
        OpInfo(
            "reverse",
            Family.MOVEMENT,
            move=lambda i, m: m.reverse(i.ints("dimensions"), i.operands[0].dims),
            dim=dims.untouched_dim,
            view=True,
            shifts=True,
        ),
        OpInfo("pad", Family.MOVEMENT, dim=dims.pad_dim, shifts=True),
        OpInfo("concatenate", Family.MOVEMENT, dim=dims.untouched_dim),
        OpInfo("iota", Family.MOVEMENT, dim=dims.iota_dim),
        OpInfo("dot", Family.CONTRACTION, dim=dims.dot_dim, expander="integer-product-expander"),
        OpInfo("convolution", Family.CONTRACTION, dim=dims.convolution_dim),
        OpInfo("reduce", Family.REDUCTION, dim=dims.reduce_dim),
        OpInfo("reduce-window", Family.REDUCTION, dim=dims.reduce_window_dim, expander="reduce-window-rewriter"),
        OpInfo("dynamic-slice", Family.DMA),
        OpInfo("dynamic-update-slice", Family.DMA, updates=True),
        OpInfo("gather", Family.DMA, expander="gather_simplifier"),
        OpInfo("scatter", Family.DMA, expander="scatter_simplifier", updates=True),
        *(
            OpInfo(name, Family.EXPANDED, expander="batchnorm_expander")
            for name in ("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
        ),
        OpInfo("cholesky", Family.EXPANDED, expander="cholesky_expander"),
        OpInfo("triangular-solve", Family.EXPANDED, expander="triangular_solve_expander"),
        OpInfo("rng-bit-generator", Family.EXPANDED, expander="rng-bit-generator-expander"),
        OpInfo("select-and-scatter", Family.EXPANDED, expander="select_and_scatter_expander"),
        OpInfo("fft", Family.EXPANDED, expander="fft-expander"),
        OpInfo("sort", Family.EXPANDED, expander="sort-expander"),
        OpInfo("topk", Family.EXPANDED, expander="topk-decomposer"),
        OpInfo("opt-barrier", Family.EXPANDED, expander="optimization-barrier-expander"),
        OpInfo("custom-call", Family.EXPANDED, expander="sharding-remover"),
        *(
            OpInfo(name, Family.EXPANDED, expander="dynamic_padder")
            for name in ("dynamic-reshape", "get-dimension-size", "set-dimension-size")
        ),
        *(OpInfo(name, Family.DYNAMIC, expander=_ALONE) for name in ("partition-id", "replica-id")),
        OpInfo("ragged-dot", Family.EXPANDED, expander="ragged-dot-rewriter"),
        OpInfo("scaled-dot", Family.EXPANDED, expander="scaled-dot-rewriter"),
        OpInfo("scan", Family.REDUCTION, expander="scan-expander"),
        *(OpInfo(name, Family.ORDER, expander=_IN_ORDER) for name in ("add-dependency", "domain")),
        *(
            OpInfo(name, Family.ASYNC, expander=_IN_ORDER)
            for name in ("async-done", "async-start", "async-update", "copy-done", "copy-start")
        ),
        *(OpInfo(name, Family.EFFECT, expander="rng-expander") for name in ("rng", "rng-get-and-update-state")),
        *(
            OpInfo(name, Family.EFFECT, expander=_ALONE)
            for name in """all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start
            all-to-all collective-broadcast collective-permute collective-permute-done collective-permute-start
            ragged-all-to-all reduce-scatter""".split()
        ),
        *_rows(Family.HOST, "infeed outfeed"),
        *_rows(Family.EFFECT, "recv recv-done send send-done"),
    )
}  # fmt: skip
"""Every opcode that XLA has."""

if odd := (OPS.keys() ^ opcodes.KNOWN) | (RULES.keys() - OPS.keys()):
    raise ValueError(f"opcodes, rows and rules differ in {sorted(odd)}")


TARGETS: dict[str, OpInfo] = {}
"""Rows of custom calls by their target, where these are known."""


ROUTINE = OpInfo("custom-call", Family.REGISTERED)
"""Of custom calls whose target has a routine."""


def info(i: Instruction) -> OpInfo:
    """The row of an instruction's opcode; of a custom call, that of its target."""
    row = OPS[i.opcode]
    if row.opcode != "custom-call":
        return row
    target = row_name(i)
    return TARGETS.get(target) or (ROUTINE if routines.is_known(target) else row)


def row_name(i: Instruction) -> str:
    """The name by which packages register an operation: its opcode; of a custom call, its target."""
    return str(i.attributes.get("custom_call_target", "")) if i.opcode == "custom-call" else i.opcode


def family(i: Instruction) -> Family:
    """The family of an instruction's opcode."""
    return info(i).family


def is_elementwise(i: Instruction) -> bool:
    """Whether an instruction is elementwise, and has a lowering for some element types."""
    return info(i).compute is not None


def register(row: OpInfo) -> None:
    """Let `row` be what the compiler knows of its opcode from now on: to lower what has no lowering, say.

    Raises:
        ValueError: HLO has no such opcode.
    """
    if row.opcode not in OPS:
        raise ValueError(f"HLO has no opcode {row.opcode!r}{opcodes.suggestion(row.opcode)}")
    OPS[row.opcode] = row


def opcodes_of(*families: Family) -> frozenset[str]:
    """The opcodes of some families."""
    return frozenset(row.opcode for row in OPS.values() if row.family in families)


T = TypeVar("T")


def of_family(family: Family, rules: Mapping[str, T]) -> Mapping[str, T]:
    """`rules`, which has a value for each opcode of a family and for no other.

    Raises:
        ValueError: it has not.
    """
    if odd := opcodes_of(family) ^ rules.keys():
        raise ValueError(f"rules and rows of family {family.name} differ in {sorted(odd)}")
    return rules
