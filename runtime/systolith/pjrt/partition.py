"""Programs for several devices of which none needs another's values: the program of each.

That is so outside of `shard_map` where every array is replicated, and inside where there is no collective. A module
says what is inside by custom calls that take local parts of global arrays and give them back, with Shardy's shardings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from systolith.compiler.errors import CompileError, compile_error
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.opcodes import COLLECTIVES
from systolith.compiler.hlo.proto.schema import message_class
from systolith.compiler.hlo.shape import tuple_of

_TO_LOCAL, _TO_GLOBAL, _RESULT = (
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.FuncResultSharding",
)
_PLACED = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.")
_OF_DEVICE = ("partition-id", "replica-id")
_TUPLE, _OTHER = 2, 3  # `OpSharding.Type`
_REPLICATED = ""


class _Value(NamedTuple):
    """A local value, and how the global one is made of those of all devices (Shardy's text)."""

    local: Instruction
    sharding: str


class _Part(NamedTuple):
    """A result of a custom call, the operand that it is of, and how that lies on the devices."""

    part: Instruction
    operand: Instruction
    sharding: str


@dataclass(frozen=True)
class Shardings:
    """`OpSharding` of each parameter, and of the results: a tuple of them where the module gives a tuple."""

    parameters: list[Any]
    result: Any


def local(module: Module, devices: int) -> Shardings:
    """Make a module for several devices that of each of them, in place.

    Raises:
        CompileError: a device would need values of others, or know its number; names the first operation that asks.
    """
    for i in module.instructions():
        if i.opcode.removesuffix("-start") in COLLECTIVES or i.opcode in _OF_DEVICE:
            raise _refused(i, devices)
    entry = module.entry
    given = dict.fromkeys(entry.parameters, _REPLICATED)
    for call in [i for i in entry.instructions if _target(i) == _TO_LOCAL]:
        for part, operand, sharding in _parts(module, call):
            value = _resolved(operand)
            if value.sharding == sharding:  # parts that another `shard_map` gave
                operand = value.local
            elif given.get(operand, _REPLICATED) not in (_REPLICATED, sharding):  # taken already, split otherwise
                raise _refused(operand, devices)
            elif operand.shape.dims != part.shape.dims:
                if operand not in given or any(operand in i.operands for i in entry.instructions if i is not call):
                    raise _refused(operand, devices)
                operand.shape = part.shape
                given[operand] = sharding
            entry.replace(part, operand)
    values = [_resolved(leaf) for leaf in _leaves(entry.result)]
    root = values[0].local
    if entry.result.shape.is_tuple:
        locals_ = [v.local for v in values]
        root = Instruction(entry.fresh_name("local"), "tuple", tuple_of([v.shape for v in locals_]), locals_)
        entry.instructions.append(root)
    entry.root = root
    needed = _reached(root) | given.keys()
    entry.instructions = [i for i in entry.instructions if i in needed]
    _check(module, given, devices)
    module.attributes.pop("entry_computation_layout", None)
    axes = _meshes(module)
    result = [_op_sharding(v.sharding, axes, v.local, devices) for v in values]
    return Shardings([_op_sharding(s, axes, p, devices) for p, s in given.items()], _tuple(result, root))


def _refused(i: Instruction, devices: int) -> CompileError:
    return compile_error(
        i,
        f"the program is for {devices} devices together, but systolith's devices are independent: put its arrays on one"
        " device, without a mesh",
    )


def _target(i: Instruction) -> str:
    return i.word("custom_call_target", "") if i.opcode == "custom-call" else ""


def _parts(module: Module, call: Instruction) -> Iterator[_Part]:
    """The results of a custom call that takes local parts."""
    shardings = re.findall(r"<@[^>]*>", _frontend(call.attributes).get("xla.sdy.in_shardings", ""))
    if not call.shape.is_tuple:
        yield _Part(call, call.operands[0], shardings[0])
        return
    for user in module.entry.instructions:
        if user.opcode == "get-tuple-element" and user.operands[0] is call:
            index = user.integer("index")
            yield _Part(user, call.operands[index], shardings[index])


def _frontend(attributes: Any) -> dict[str, str]:
    found: dict[str, str] = attributes.get("frontend_attributes", {})
    return found


def _leaves(root: Instruction) -> list[Instruction]:
    """The results, one of them or those of a tuple."""
    if not root.shape.is_tuple:
        return [root]
    if root.opcode == "tuple":
        return root.operands
    return [
        Instruction(f"{root.name}.{n}", "get-tuple-element", element, [root], {"index": n})
        for n, element in enumerate(root.shape.elements)
    ]


def _resolved(value: Instruction) -> _Value:
    """The local value behind a result, through what only says how the global one lies."""
    index = 0
    while True:
        of = value.operands[0] if value.opcode == "get-tuple-element" else None
        if of is not None and of.opcode == "tuple":
            value = of.operands[value.integer("index")]
        elif of is not None and _target(of) in (_RESULT, _TO_GLOBAL):
            index, value = value.integer("index"), of
        elif _target(value) == _RESULT:
            value = value.operands[index]
            index = 0
        elif _target(value) == _TO_GLOBAL:
            shardings = re.findall(r"<@[^>]*>", _frontend(value.attributes).get("xla.sdy.out_shardings", ""))
            return _Value(value.operands[index], shardings[index])
        else:
            return _Value(value, _REPLICATED)


def _reached(root: Instruction) -> set[Instruction]:
    """The instructions on which a value depends, and its own."""
    found, pending = {root}, [root]
    while pending:
        for operand in pending.pop().operands:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return found


def _check(module: Module, given: dict[Instruction, str], devices: int) -> None:
    """Refuse what is still split over devices."""
    for i in module.instructions():
        sharding: Any = i.attributes.pop("sharding", None)
        split = sharding is not None and sharding.kind not in ("replicated", "manual") and not given.get(i)
        if split or _target(i).startswith(_PLACED):
            raise _refused(i, devices)


def _meshes(module: Module) -> dict[str, dict[str, int]]:
    """Sizes of the axes of each mesh, in their order."""
    text = _frontend(module.attributes).get("xla.sdy.meshes", "")
    return {
        name: {axis: int(size) for axis, size in re.findall(r'"([^"]+)"=(\d+)', axes)}
        for name, axes in re.findall(r"(\w+) = #sdy\.mesh<\[([^\]]*)\]>", text)
    }


def _op_sharding(text: str, meshes: dict[str, dict[str, int]], i: Instruction, devices: int) -> Any:
    """Shardy's text, such as `<@mesh, [{"i"}, {}]>`, as an `OpSharding`; replicated without one."""
    made: Any = message_class("OpSharding")()
    if text == _REPLICATED or not re.search(r'\{"', text):
        return made
    named = re.fullmatch(r'<@(\w+), \[((?:\{(?:"[^":]+"(?:, )?)*(?:\?)?\}(?:, )?)*)\]>', text)
    if named is None or named[1] not in meshes:
        raise _refused(i, devices)
    sizes = meshes[named[1]]
    dims = [re.findall(r'"([^"]+)"', dim) for dim in re.findall(r"\{([^}]*)\}", named[2])]
    used = [axis for dim in dims for axis in dim]
    rest = [axis for axis in sizes if axis not in used]
    made.type = _OTHER
    made.tile_assignment_dimensions.extend(prod(sizes[axis] for axis in dim) for dim in dims)
    if rest:
        made.tile_assignment_dimensions.append(prod(sizes[axis] for axis in rest))
        made.replicate_on_last_tile_dim = True
    made.iota_reshape_dims.extend(sizes.values())
    made.iota_transpose_perm.extend([*sizes].index(axis) for axis in (*used, *rest))
    return made


def _tuple(shardings: list[Any], root: Instruction) -> Any:
    """Of the whole result."""
    if not root.shape.is_tuple:
        return shardings[0]
    made: Any = message_class("OpSharding")()
    made.type = _TUPLE
    made.tuple_shardings.extend(shardings)
    return made
