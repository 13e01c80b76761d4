"""What has to hold of tile IR: operations, arguments, streams inside their buffers, registers set before use."""

from __future__ import annotations

from typing import NoReturn

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import Block, If, Ref, TileOp, VReg
from systolith.isa.geometry import Interval, interval
from systolith.isa.instruction import Space
from systolith.isa.opcodes import OPCODES

CONTROL = frozenset({"jmp", "loop", "halt", "beq", "bne", "blt", "bge", "bltu", "bgeu"})
"""Made of regions, never written in tile IR."""


def verify_tile_ir(block: Block) -> None:
    """Check a block.

    Raises:
        CompileError: a rule is broken (by a lowering); names the operation, its origin and the rule.
    """
    _block(block, set())


def _block(block: Block, known: set[VReg]) -> None:
    for item in block.items:
        if isinstance(item, TileOp):
            _op(item, known)
        elif isinstance(item, If):
            _need(item.index in known, f"if {item.name}", f"register {item.index} is not set")
            for branch in item.branches:
                _block(branch, set(known))
        else:
            _block(item.condition, known)
            _need(item.predicate in known, f"while {item.name}", f"register {item.predicate} is not set")
            _block(item.body, set(known))


def _need(good: bool, where: str, what: str) -> None:
    if not good:
        raise CompileError(f"tile IR: {where}: {what}")


def _fail(op: TileOp, what: str) -> NoReturn:
    raise CompileError(f"tile IR: {op.op} of {op.origin.group!r} ({op.origin.what}): {what}")


def _op(op: TileOp, known: set[VReg]) -> None:
    opcode = OPCODES.get(op.op)
    if opcode is None or op.op in CONTROL:
        _fail(op, "not an operation of tile IR")
    if op.args.keys() != opcode.names:
        _fail(op, f"arguments {sorted(op.args)}, declared are {sorted(opcode.names)}")
    for name, value in op.args.items():
        for part in value if type(value) is tuple else (value,):
            if type(part) is Ref:
                _ref(op, name, part, known)
            elif type(part) is VReg and name != "rd" and part not in known:
                _fail(op, f"{name}: register {part} is not set")
    result = op.args.get("rd")
    if isinstance(result, VReg):
        known.add(result)


def _ref(op: TileOp, name: str, ref: Ref, known: set[VReg]) -> None:
    registers = [r for r in (ref.dynamic, *ref.bias) if type(r) is VReg]
    for register in registers:
        if register not in known:
            _fail(op, f"{name}: register {register} is not set")
    if ref.buf is None or registers:
        return
    span = interval(ref.pattern)
    if not isinstance(span, Interval) or ref.buf.space in (Space.HOST, Space.LINK) or ref.pattern.coords:
        return
    first, end = ref.offset + span.lo, ref.offset + span.hi
    if first < 0 or end > ref.buf.bytes:
        _fail(op, f"{name}: bytes {first} to {end} of {ref.buf.name}, {ref.buf.bytes} long")
