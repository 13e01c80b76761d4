"""The verifier of tile IR: operations, arguments, streams inside their buffers, registers set before use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, NoReturn, cast

from systolith.compiler.errors import CompileError
from systolith.compiler.tile.ir import (
    ROUTINE,
    Arg,
    Block,
    Entry,
    If,
    Item,
    Loop,
    Ref,
    TileModule,
    TileOp,
    VReg,
    registers_of,
)
from systolith.isa.chip import Chip
from systolith.isa.geometry import Interval, interval
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel
from systolith.isa.opcodes import OPCODES, Field, FieldKind

CONTROL = frozenset({"jmp", "loop", "halt", "beq", "bne", "blt", "bge", "bltu", "bgeu"})
"""Made of regions, never written in tile IR."""


class _Around(NamedTuple):
    """A loop, and the registers that its body sets."""

    loop: Loop
    sets: Collection[object]


Loops = tuple[_Around, ...]
"""Those around, the outermost first."""


class _BrokenRuleError(Exception):
    """An item of tile IR breaks a rule."""

    def __init__(self, item: Item, what: str) -> None:
        super().__init__(what)
        self.item = item


def verify_tile_ir(block: Block) -> None:
    """Check a block.

    Raises:
        CompileError: a rule is broken (by a lowering); names the operation, its origin and the rule.
    """
    _checked(block, {})


def verify_tile_module(module: TileModule, chip: Chip | None) -> None:
    """Check a module that was read as text; `chip`: that it is to be compiled for.

    Raises:
        CompileError: a rule is broken, or it is for another chip.
    """
    if chip is not None and module.chip_digest not in ("", chip.digest()):
        raise CompileError(
            f"module {module.name!r}: its tile IR is for chip {module.chip} {module.chip_digest}, not for {chip.name}"
            f" {chip.digest()}: compile it from HLO for this one"
        )
    _checked(module.block, module.lines)


def _checked(block: Block, lines: Mapping[Item, int]) -> None:
    try:
        _block(block, set(), ())
    except _BrokenRuleError as problem:
        line = f" line {lines[problem.item]}" if problem.item in lines else ""
        raise CompileError(f"tile IR{line}: {problem}") from None


def _block(block: Block, known: set[VReg], loops: Loops) -> None:
    for item in block.items:
        if isinstance(item, TileOp):
            _op(item, known, loops)
        elif isinstance(item, If):
            _need(item.index in known, item, f"if {item.name}: register {item.index} is not set")
            for branch in item.branches:
                _block(branch, set(known), loops)
        elif isinstance(item, Loop):
            _loop(item, known, loops)
        else:
            _block(item.condition, known, loops)
            _need(item.predicate in known, item, f"while {item.name}: register {item.predicate} is not set")
            _block(item.body, set(known), loops)


def _loop(item: Loop, known: set[VReg], loops: Loops) -> None:
    where = f"loop {item.name}"
    if isinstance(item.count, int):
        _need(0 <= item.count < 1 << 31, item, f"{where}: count {item.count}: must be 0 to {(1 << 31) - 1}")
    else:
        _need(item.count in known, item, f"{where}: register {item.count} is not set")
    _need(item.var not in known, item, f"{where}: register {item.var} is set outside")
    sets: set[object] = set()
    for op in item.body.ops():
        _need(op.args.get("rd") != item.var, op, f"{where}: its body sets the induction variable {item.var}")
        sets.add(op.args.get("rd"))
    _block(item.body, {*known, item.var}, (*loops, _Around(item, sets - {None})))


def _need(good: bool, item: Item, what: str) -> None:
    if not good:
        raise _BrokenRuleError(item, what)


def _fail(op: TileOp, what: str) -> NoReturn:
    raise _BrokenRuleError(op, f"{op.op} of {op.origin.group!r} ({op.origin.what}): {what}")


def _op(op: TileOp, known: set[VReg], loops: Loops) -> None:
    if op.op == ROUTINE:
        _routine(op, known, loops)
        return
    opcode = OPCODES.get(op.op)
    if opcode is None or op.op in CONTROL:
        _fail(op, "not an operation of tile IR")
    if op.args.keys() != opcode.names:
        _fail(op, f"arguments {sorted(op.args)}, declared are {sorted(opcode.names)}")
    for field in opcode.fields:
        if not _is_of_kind(op.args[field.name], field):
            _fail(op, f"{field.name} = {op.args[field.name]!r}: must be {field.kind}")
    for name, value in op.args.items():
        for part in value if type(value) is tuple else (value,):
            if type(part) is Ref:
                _ref(op, name, part, known, loops)
            elif type(part) is VReg and name != "rd" and part not in known:
                _fail(op, f"{name}: register {part} is not set")
    result = op.args.get("rd")
    if isinstance(result, VReg):
        known.add(result)


_ROUTINE_PARTS: dict[str, tuple[bool, type]] = {
    "call": (False, str),
    "text": (False, str),
    "names": (True, str),
    "operands": (True, Ref),
    "results": (True, Ref),
    "scratch": (True, Ref),
    "registers": (True, VReg),
}
"""Arguments of a routine: whether they are tuples, and of what."""


def _routine(op: TileOp, known: set[VReg], loops: Loops) -> None:
    if op.args.keys() != _ROUTINE_PARTS.keys():
        _fail(op, f"arguments {sorted(op.args)}, declared are {sorted(_ROUTINE_PARTS)}")
    for name, (several, part) in _ROUTINE_PARTS.items():
        value = op.args[name]
        good = type(value) is tuple and all(type(v) is part for v in value) if several else type(value) is part
        if not good:
            _fail(op, f"{name} = {value!r}: must be {'a tuple of ' * several}{part.__name__}")
    if len(op.refs) != len(cast(tuple[str, ...], op.args["names"])):
        _fail(op, f"{len(op.refs)} places and {len(cast(tuple[str, ...], op.args['names']))} names")
    for ref in op.refs:
        if ref.buf is None or ref.dynamic is not None or ref.moves or (ref.buf.space is Space.HBM and ref.offset):
            _fail(op, "a place whose address is not fixed, or that is not at the start of its buffer in HBM")
        _ref(op, "a place", ref, known, loops)


_SCALARS = (int, VReg)
_PARTS: dict[FieldKind, tuple[type, ...]] = {
    FieldKind.STREAMS: (Ref,),
    FieldKind.COUNTS: (int,),
    FieldKind.SCALARS: _SCALARS,
}
_VALUES: dict[FieldKind, tuple[type, ...]] = {
    FieldKind.UINT: (int,),
    FieldKind.SINT: (int, Ref),
    FieldKind.REG: _SCALARS,
    FieldKind.OPERAND: _SCALARS,
    FieldKind.CHOICE: (str,),
    FieldKind.STREAM: (Ref,),
}


def _is_of_kind(value: Arg, field: Field) -> bool:
    """Whether an argument is what a field takes: tile IR has kernels and references where instructions have numbers."""
    if field.kind in _PARTS:
        return type(value) is tuple and all(type(part) in _PARTS[field.kind] for part in value)
    if field.name == "kernel":
        return type(value) is Kernel
    if field.kind is FieldKind.REG and type(value) is int:
        return value == 0
    return type(value) in _VALUES.get(field.kind, ())


def _ref(op: TileOp, name: str, ref: Ref, known: set[VReg], loops: Loops) -> None:
    registers = [*registers_of(ref.dynamic), *(b for b in ref.bias if type(b) is VReg)]
    for register in registers:
        if register not in known:
            _fail(op, f"{name}: register {register} is not set")
    if isinstance(ref.dynamic, Entry):
        pitch, whole = ref.dynamic.pitch, ref.buf.bytes if ref.buf is not None and ref.buf.space is Space.HBM else 0
        if not 0 < pitch < whole or whole % pitch:
            _fail(op, f"{name}: entries of {pitch} bytes in {whole} of HBM: must be several that fill it")
    if ref.index is not None and ref.index.space is not Space.VMEM:
        _fail(op, f"{name}: the index list {ref.index.name} is in {ref.index.space.name}, must be in VMEM")
    if name == "imm" and (registers or ref.moves):
        _fail(op, f"{name}: a number, which no register and no loop moves")
    lo, hi = _moved(op, name, ref, loops)
    if ref.buf is None and (ref.offset or ref.pointer or ref.dynamic):
        _coordinate(op, name, ref)
    if ref.buf is None or registers:
        return
    span = interval(ref.pattern)
    if not isinstance(span, Interval) or ref.buf.space in (Space.HOST, Space.LINK) or ref.pattern.coords:
        return
    first, end = ref.offset + span.lo + lo, ref.offset + span.hi + hi
    if first < 0 or end > ref.buf.bytes:
        over = " in all iterations" if ref.moves else ""
        _fail(op, f"{name}: bytes {first} to {end} of {ref.buf.name}, {ref.buf.bytes} long{over}")


def _coordinate(op: TileOp, name: str, ref: Ref) -> None:
    """Check that a stream without a buffer has a coordinate that can be moved: by its first bias, which none has."""
    biases = [c.bias for c in ref.pattern.coords]
    if not biases or biases[0] >= 0 or 0 in biases or isinstance(ref.dynamic, Entry):
        what = f"moved by {ref.offset}" + " and by loops" * bool(ref.moves) + " and by a register" * bool(ref.start)
        _fail(op, f"{name}: {what}: no coordinate without a bias that could be moved")


def _moved(op: TileOp, name: str, ref: Ref, loops: Loops) -> tuple[int, int]:
    """How many bytes loops move a stream down and up; those of unknown counts need not."""
    if not ref.moves:
        return 0, 0
    moving = [var for var, _ in ref.moves]
    if moving != [loop.var for loop, _ in loops if loop.var in moving]:
        given, around = (", ".join(map(str, of)) or "none" for of in (moving, [loop.var for loop, _ in loops]))
        _fail(op, f"{name}: moves of {given}: must be loops around it ({around}), each once, the outermost first")
    if any(ref.start in sets for loop, sets in loops if loop.var in moving):
        _fail(op, f"{name}: starts from register {ref.start}, which a loop that moves it sets")
    counts = {loop.var: loop.count for loop, _ in loops if isinstance(loop.count, int)}
    ends = [stride * max(0, counts.get(var, 1) - 1) for var, stride in ref.moves]
    return sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
