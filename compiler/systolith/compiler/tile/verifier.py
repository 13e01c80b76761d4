"""What has to hold of tile IR: operations, arguments, streams inside their buffers, registers set before use."""

from __future__ import annotations

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


def _op(op: TileOp, known: set[VReg]) -> None:
    where = f"{op.op} of {op.origin.group!r} ({op.origin.what})"
    _need(op.op in OPCODES and op.op not in CONTROL, where, "not an operation of tile IR")
    declared = {f.name for f in OPCODES[op.op].fields}
    _need(set(op.args) == declared, where, f"arguments {sorted(op.args)}, declared are {sorted(declared)}")
    for name, value in op.args.items():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Ref):
                _ref(part, f"{where}: {name}", known)
            elif isinstance(part, VReg) and name != "rd":
                _need(part in known, where, f"{name}: register {part} is not set")
    result = op.args.get("rd")
    if isinstance(result, VReg):
        known.add(result)


def _ref(ref: Ref, where: str, known: set[VReg]) -> None:
    for register in (ref.dynamic, *ref.bias):
        _need(not isinstance(register, VReg) or register in known, where, f"register {register} is not set")
    if ref.buf is None or ref.dynamic is not None or any(isinstance(b, VReg) for b in ref.bias):
        return
    span = interval(ref.pattern)
    if not isinstance(span, Interval) or ref.buf.space in (Space.HOST, Space.LINK) or ref.pattern.coords:
        return
    inside = ref.offset + span.lo >= 0 and ref.offset + span.hi <= ref.buf.bytes
    _need(
        inside, where, f"bytes {ref.offset + span.lo} to {ref.offset + span.hi} of {ref.buf.name}, {ref.buf.bytes} long"
    )
