"""A fusion group: operations that run together, as an instruction of grouped HLO.

A group prints as XLA's `fusion`; `kind=` and `backend_config=` are made of its unit and its tiling, never read for what
runs.  Only the compiler makes groups: the canonical form has no `fusion` (`passes/simplify/inline.py`), and text that
was printed from groups becomes groups again through `read_groups` alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from systolith.compiler.errors import compile_error
from systolith.compiler.hlo.attributes import Raw
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.visiting import cone, through
from systolith.compiler.ops.dim_rules import summed_dims
from systolith.compiler.ops.expression_builder import group_roots, reads_in_place, root_operations
from systolith.compiler.ops.reduction import reached
from systolith.compiler.ops.reduction_builder import is_depthwise, one_pass_obstacle, over_product
from systolith.compiler.ops.table import ROOTS, Family, family, info


class Unit(StrEnum):
    """The unit that computes the root operation of a group; VIEW: none, the group names a part of its first operand."""

    MXU = "mxu"
    VPU = "vpu"
    DMA = "dma"
    VIEW = "view"


_VIEW = '{"view":true}'
"""How a group that is a view prints."""


@dataclass(frozen=True)
class Tiling:
    """How a group runs in blocks.

    Attributes:
        dims: the dimension of each result that the blocks are along; of one that is accumulated, that of what it
            reduces.
        accumulated: numbers of the results that every block combines with what the blocks before gave: operations on
            a parameter, which stands for that, and a reduction of the block, or a product of it, which is added.
    """

    dims: tuple[int, ...]
    accumulated: tuple[int, ...] = ()


@dataclass(eq=False, repr=False)
class Group(Instruction):
    """Operations that run together.

    Attributes:
        unit: that computes the root operation; None: the group runs in blocks, whose operations are groups again.
        tiling: how it runs in blocks; None: it does not.
        why: its value is stored, for people; is not printed.
    """

    opcode: str = field(default="fusion", init=False)
    unit: Unit | None = field(kw_only=True)
    tiling: Tiling | None = field(default=None, kw_only=True)
    why: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        assert (self.unit is None) == (self.tiling is not None), f"{self.name}: a unit, or blocks"
        own: dict[str, Attribute] = {"kind": self.kind, "calls": self.body}
        self.attributes = own | {
            k: v for k, v in self.attributes.items() if k not in ("kind", "calls", "backend_config")
        }
        if self.tiling is not None:
            fields = {name: value for name, value in asdict(self.tiling).items() if value}
            text = json.dumps({"tiling": fields}, separators=(",", ":"))
            self.attributes["backend_config"] = Raw(text)
        elif self.unit is Unit.VIEW:
            self.attributes["backend_config"] = Raw(_VIEW)

    def read_in_place(self) -> None:
        """Be a view of what it is a slice of."""
        assert self.unit is Unit.DMA
        assert self.root.opcode == "dynamic-slice"
        self.unit = Unit.VIEW
        self.attributes["backend_config"] = Raw(_VIEW)

    @classmethod
    def of(
        cls,
        name: str,
        body: Computation,
        operands: Sequence[Instruction],
        like: Instruction,
        unit: Unit | None,
        tiling: Tiling | None = None,
        why: str = "",
    ) -> Group:
        """A new group; `like`: what it computes, from the same place of the user's program."""
        attributes: dict[str, Attribute] = {"calls": body}
        attributes |= {k: v for k, v in like.attributes.items() if k == "metadata"}
        shape = body.result.shape
        return cls(name, shape, list(operands), attributes, line=like.line, unit=unit, tiling=tiling, why=why)

    @property
    def body(self) -> Computation:
        """Its computation; parameters stand for the operands."""
        return self.computation("calls")

    @property
    def root(self) -> Instruction:
        """The root operation: the first product or reduction; if there is none, what makes the first result."""
        return root_operation(self.body)

    @property
    def fed_to_root(self) -> frozenset[Instruction]:
        """The parameters of the body that the root operation is computed from."""
        return frozenset(i for i in cone(self.root.operands) if i.opcode == "parameter")

    @property
    def sliced(self) -> Instruction:
        """The operand that its root is a dynamic slice of."""
        number = self.root.operands[0].number
        assert self.root.opcode == "dynamic-slice"
        assert number is not None
        return self.operands[number]

    @property
    def reduces(self) -> bool:
        """Whether the vector unit reduces: by a reduction, or a convolution."""
        return self.unit is Unit.VPU and family(self.root) in ROOTS

    @property
    def sums_products(self) -> bool:
        """Whether it runs in blocks, and accumulates products."""
        if self.tiling is None:
            return False
        roots = group_roots(self.body)
        return any(family(roots[n].operands[1]) is Family.CONTRACTION for n in self.tiling.accumulated)

    @property
    def kind(self) -> str:
        """XLA's word for it."""
        if self.unit is Unit.VPU:
            return "kInput" if self.reduces else "kLoop"
        return "kOutput" if self.unit is Unit.MXU else "kCustom"


def result_values(group: Instruction, users: Mapping[Instruction, Iterable[Instruction]]) -> list[Instruction]:
    """The value of each result of a group: the group, or its tuple elements; `users` of every instruction."""
    if not group.shape.is_tuple:
        return [group]
    elements = {u.integer("index"): u for u in users[group]}
    return [elements[k] for k in range(len(group.shape.elements))]


def root_operation(body: Computation) -> Instruction:
    """The root operation of a group's body; see `Group.root`."""
    return (root_operations(body) or group_roots(body))[0]


def unit_of(root: Instruction) -> Unit:
    """The unit of a group with a root operation; `groups/unit_assignment.py` may choose another for a convolution."""
    if family(root) is Family.CONTRACTION:
        return Unit.MXU
    return Unit.VPU if family(root) is Family.REDUCTION or is_cheap(root) else Unit.DMA


def is_cheap(i: Instruction) -> bool:
    """Whether an operation can be part of a vector group."""
    return i.shape.is_array and info(i).in_kernel


def read_groups(module: Module) -> Module:
    """Turn the fusions of a module whose text was printed from groups (`grouped.hlo`) into groups again, in place.

    Raises:
        CompileError: a fusion that no group is printed as, or whose operations are none that a group can have.
    """
    for computation in module.computations:
        made: dict[Instruction, Instruction] = {}
        for i in computation.instructions:
            i.operands = [made.get(o, o) for o in i.operands]
            if i.opcode == "fusion":
                made[i] = _read(i)
        computation.root = made.get(computation.result, computation.result)
        computation.instructions = [made.get(i, i) for i in computation.instructions]
    return module


def _read(i: Instruction) -> Group:
    """The group that a fusion was printed from."""
    body, kind = i.computation("calls"), i.word("kind", "")
    root = root_operation(body)
    is_view = root.opcode == "dynamic-slice" and str(i.attributes.get("backend_config")) == _VIEW
    tiling = None if is_view else _tiling(i, group_roots(body))
    summed = kind == "kInput" and root.opcode == "convolution" and is_depthwise(root)
    unit = Unit.VIEW if is_view else None if tiling else Unit.VPU if summed else unit_of(root)
    group = Group(i.name, i.shape, i.operands, i.attributes, line=i.line, unit=unit, tiling=tiling)
    if group.kind != kind:
        raise compile_error(
            i, f"a group of {root.opcode} {root.name!r} is kind={group.kind}, not kind={kind or '(none)'}"
        )
    if why := _obstacle(group):
        raise compile_error(i, f"its operations are not those of one group: {why}")
    return group


def _obstacle(group: Group) -> str:
    """Why a unit cannot compute the operations of a group; empty: it can, as far as their kinds tell."""
    body, root, results = group.body, group.root, group_roots(group.body)
    roots = root_operations(body)
    inside = [i for i in body.instructions if family(i) is not Family.GIVEN and (i is not body.result or i in results)]
    odd = next((i for i in inside if i not in roots and not is_cheap(i)), None)
    if group.unit in (Unit.DMA, Unit.VIEW):
        return "" if inside == results == [root] else f"{root.opcode} {root.name!r} runs alone"
    if group.unit is None or odd is not None:
        return "" if odd is None or group.unit is None else f"{odd.opcode} {odd.name!r} is in no kernel"
    if group.unit is Unit.VPU and (len(roots) > 1 or len(results) > 1):
        return one_pass_obstacle(body)
    if any(family(i) is Family.CONTRACTION for i in roots[1:]):
        return "there are several products"
    if len(roots) > 1:
        return one_pass_obstacle(body, root) or _read_elsewhere(body, root)
    if len(results) > 1 and (group.unit is not Unit.MXU or any(r.dims != root.dims for r in results)):
        return "there are several results, not all of the product's dimensions"
    if group.reduces and results != [root] and not reads_in_place(results[0], root, ()):
        return f"{results[0].name!r} reads {root.name!r} elsewhere than at its own index"
    return "" if not roots or reached(results[0], {root}) else f"its result is not made of {root.name!r}"


def _read_elsewhere(body: Computation, product: Instruction) -> str:
    """Why results and sums are not those of a product's group; empty: they read it at their own indices alone."""
    roots = group_roots(body)
    values = [through(v, "transpose") if v in roots else v for v in over_product(body, product)]
    odd = next((v for v in values if v is not product and not reads_in_place(v, product, ())), None)
    return "" if odd is None else f"{odd.name!r} reads {product.name!r} elsewhere than at its own index"


def _tiling(i: Instruction, roots: Sequence[Instruction]) -> Tiling | None:
    text = i.attributes.get("backend_config")
    if text is None:
        return None
    try:
        fields = json.loads(str(text))["tiling"]
        tiling = Tiling(tuple(fields["dims"]), tuple(fields.get("accumulated", ())))
        numbered = zip(tiling.dims, roots, strict=True)
        along = all(_runs_along(r, d, n in tiling.accumulated) for n, (d, r) in enumerate(numbered))
        if along and all(type(n) is int and 0 <= n < len(roots) for n in tiling.accumulated):
            return tiling
    except (ValueError, KeyError, TypeError):
        pass
    wanted = '{"tiling":{"dims":[...]}} with a dimension of each result'
    raise compile_error(i, f"the backend_config of a group is {wanted}, not {text}")


def _runs_along(root: Instruction, d: object, accumulated: bool) -> bool:
    """Whether a result of a blocked group has the dimension of its tiling, or, accumulated, reduces it."""
    if not accumulated:
        return type(d) is int and 0 <= d < len(root.dims)
    if type(d) is not int or len(root.operands) != 2 or root.operands[0].opcode != "parameter":
        return False
    part = root.operands[1]
    return bool(summed_dims(part, d)) and (part.opcode == "reduce" or root.opcode == "add")


def accumulation(root: Instruction, d: int) -> list[tuple[Instruction, int]]:
    """What an accumulated result of a blocked group reduces, and along which dimensions."""
    return summed_dims(root.operands[1], d)
