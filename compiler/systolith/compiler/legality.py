"""Legality: canonical HLO, or groups read as text, is checked before any work is done on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain

from systolith.compiler.errors import CompileError, compile_error
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, ShapeKind
from systolith.compiler.memory.residency import names_memory, nested
from systolith.compiler.mxu.matmul import sums_integers
from systolith.compiler.ops.expression import Const, Graph
from systolith.compiler.ops.expression_builder import inline_scalar, lower_elementwise
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.table import OPS, Family, family, info
from systolith.compiler.passes.expand.custom_calls import targets
from systolith.compiler.passes.words.complex_numbers import COMPLEX_NUMBERS
from systolith.compiler.passes.words.pairs import PairedTypes
from systolith.compiler.passes.words.wide_types import WIDE_TYPES
from systolith.isa.chip import Chip
from systolith.isa.dtypes import Kind
from systolith.isa.host_functions import PYTHON, is_known, why_elsewhere

_ANY = Const(0)

_AT_THE_EDGE = ("parameter", "bitcast", "tuple", "get-tuple-element", "infeed", "outfeed")
"""Opcodes of what takes values from outside, shows their parts, and gives such values."""

_OTHERWISE = "the compiler has no lowering for {}; express it by other operations (docs/operations.md)"
_ALONE = "{} takes several devices, the chip is one; make the module for one (hlo.evaluate_devices runs it on several)"
_INSTEAD = {
    **{row.opcode: _ALONE for row in OPS.values() if row.expander == "single-device"},
    "rng": "the compiler has no lowering for {} of complex numbers, in conditions of loops and in computations on"
    " elements; take real numbers, made outside of these",
    **dict.fromkeys(("recv", "recv-done"), "the compiler has no lowering for {}; take its values as parameters"),
    **dict.fromkeys(("send", "send-done"), "the compiler has no lowering for {}; give its values as results"),
}
"""Why opcodes are refused, and what to do; of others the same."""

DEEPEST = 256
"""Loops and conditionals around an instruction."""


def check_legality(module: Module, chip: Chip, elided: str | None = None, grouped: bool = False) -> None:
    """Refuse what has no lowering, and constants without values unless `elided` says what they are.

    In a grouped module loops may start from memory without contents.

    Raises:
        CompileError: operations without a lowering, element types that the chip does not have, dynamic dimensions,
            loops nested too deep; its `refusals` name each instruction, its shape and its line, and what to do.
    """
    refused: dict[str, None] = {}
    computed: set[Hashable] = set()
    obstacles = {types: cache(partial(types.obstacle, module)) for types in (COMPLEX_NUMBERS, WIDE_TYPES)}
    for instruction in _running(module):
        if grouped and names_memory(instruction):
            continue
        try:
            _check_values(instruction, elided)
            _check_opcode(instruction)
            _check_shape(instruction, chip, obstacles)
            if (kind := _kind(instruction)) not in computed:
                _check_computed(instruction)
                computed.add(kind)
        except CompileError as problem:
            refused.update(dict.fromkeys(problem.refusals))
    if refused:
        raise CompileError(*refused)


def _running(module: Module) -> Iterator[Instruction]:
    """Instructions of the entry and of the branches and bodies that it runs, and those in groups.

    Raises:
        CompileError: these are nested too deep.
    """
    seen = {module.entry}
    waiting: list[Iterator[Instruction]] = [iter(module.entry.instructions)]
    while waiting:
        i = next(waiting[-1], None)
        if i is None:
            waiting.pop()
            continue
        if isinstance(i, Group):
            waiting.append(iter(i.body.instructions))
            continue
        yield i
        inner = [c for c in nested(i) if c not in seen]
        if inner and len(waiting) > DEEPEST:
            raise compile_error(i, f"loops and conditionals are nested deeper than {DEEPEST}")
        seen.update(inner)
        waiting.append(chain.from_iterable(c.instructions for c in inner))


def _check_values(i: Instruction, elided: str | None) -> None:
    if i.opcode == "constant" and i.literal is None and elided is None:
        why = "its values are left out of the text ('{...}'); print it with large constants, or take --elided zeros"
        raise compile_error(i, why)


def _check_opcode(i: Instruction) -> None:
    if info(i).lowered:
        return
    if i.opcode == "custom-call":
        target = i.word("custom_call_target")
        if target.startswith(PYTHON) and not is_known(target):
            raise compile_error(i, f"custom-call target {target!r}: {why_elsewhere()}")
        what = f"no lowering is registered for custom-call target {target!r} of these shapes"
        instead = (
            "compute it in HLO, register a function of the host, or install a package with an expander or a lowering"
        )
        raise compile_error(i, f"{what}; {instead} of it; there are some of {', '.join(targets())}")
    family_says = _INSTEAD.get(i.opcode.removesuffix("-start"), _OTHERWISE)
    raise compile_error(i, family_says.format(i.opcode))


def _kind(i: Instruction) -> Hashable:
    """All of an elementwise operation that its lowering depends on; of others the instruction."""
    if family(i) is not Family.ELEMENTWISE:
        return i
    attributes = [(k, repr(v)) for k, v in i.attributes.items() if k != "metadata"]
    return i.opcode, i.shape.element, *(o.shape.element for o in i.operands), *attributes


def _check_computed(i: Instruction) -> None:
    """Whether the units have what an instruction computes in its element types."""
    if family(i) is Family.CONTRACTION:
        sums_integers(i)
    elif family(i) in (Family.REDUCTION, Family.MAP) or i.opcode == "scatter":
        called = i.computation()
        inline_scalar(Graph(), called, [_ANY] * len(called.parameters))
    elif family(i) is Family.ELEMENTWISE:
        lower_elementwise(Graph(), i, [_ANY] * len(i.operands))


def _check_shape(i: Instruction, chip: Chip, obstacles: Mapping[PairedTypes, Callable[[], Instruction | None]]) -> None:
    if i.shape.is_fixed and i.shape.dtype.bits < 64:
        return
    for leaf in i.shape.leaves():
        if not leaf.is_array:
            if leaf.kind is ShapeKind.TOKEN:
                continue
            raise compile_error(i, f"a {leaf.kind} has no place on the chip; remove it from the module")
        if any(leaf.dynamic):
            raise compile_error(i, "dynamic dimensions have no lowering; pad to the bound")
        if not leaf.size:
            continue
        found = next((types for types in obstacles if types.splits(leaf)), None)
        if found is not None:
            obstacle = obstacles[found]() or (i if i.opcode not in _AT_THE_EDGE else None)
            if obstacle is not None:
                shapes = [obstacle.shape, *(o.shape for o in obstacle.operands)]
                _check_wide(obstacle, shapes, chip, obstacles)
                dtype = next(s.dtype for shape in shapes for s in shape.leaves() if found.splits(s))
                why = f"{dtype} has no form on pairs of {found.parts[dtype]} here; convert before"
                raise compile_error(obstacle, why)
    _check_wide(i, [i.shape], chip, obstacles)


def _check_wide(i: Instruction, shapes: Iterable[Shape], chip: Chip, split: Iterable[PairedTypes]) -> None:
    """Refuse types of 64 bits and more that do not become pairs."""
    for leaf in (leaf for s in shapes for leaf in s.arrays if leaf.size):
        stored = chip.features.wide and leaf.dtype.kind is not Kind.COMPLEX  # such a chip moves them
        if leaf.dtype.bits >= 64 and not stored and not any(types.splits(leaf) for types in split):
            hint = "use c64, or pairs of f32" if leaf.dtype.kind is Kind.COMPLEX else "convert to 32 bits before"
            raise compile_error(i, f"chip {chip.name!r} has no {leaf.dtype} (features.wide); {hint}")
