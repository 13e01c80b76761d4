"""Tile IR as text.  `parser.py` reads it back.

    module "name" chip "small" "0123456789abcdef"   what it is for; without a chip, for any
    %a = HBM 128 align 4 BufferDecl("a", ...)     the buffer table, in its order
    %x = VMEM 128 align 4 whole                   other buffers; `whole`: it holds a whole value
    group GroupInfo("fusion", ...)                a group, for reports
    p0 = Pattern("f32", (4, 8), (32, 4))          table entries: patterns, kernels, origins, group records, each once
    g0 = GroupRecord("fusion", (("a", Array(%a, ...)),), (("fusion", Array(%x, ...)),))
    dma.load src=Ref(%a, p0) dst=Ref(%x, p0) ; o0 begin g0
                                                  an operation, its origin, and the group that begins or ends with it
    while $3 "name" trip 20 { ... } do { ... }    regions
    loop $5 count 20 "name" { ... }                       of the source: "name" source holds %a, %b
    if $4 "name" { ... } { ... }

`$N` is a virtual register; a line that begins with `//` is a comment.  Everything else is a Python literal or the name
of a table entry.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from systolith.compiler.tile.ir import (
    Array,
    Block,
    Buf,
    Entry,
    GroupRecord,
    If,
    Loop,
    Ref,
    TileModule,
    TileOp,
    VReg,
    While,
)
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel, MicroOp, Section
from systolith.isa.pattern import Coord, Pattern
from systolith.isa.program import BufferDecl, Role


class Printer:
    """Collects the tables while the body is printed.

    Args:
        module: what is printed.
    """

    def __init__(self, module: TileModule) -> None:
        self.module = module
        self.tables: dict[str, dict[object, str]] = {"p": {}, "k": {}, "o": {}}
        self.buffers = {b: f"%{b.name}" for b in module.buffers}
        self.body: list[str] = []
        self.begin = {record.first: f"g{n}" for n, record in enumerate(module.records)}
        self.end = {record.last: f"g{n}" for n, record in enumerate(module.records)}

    def text(self) -> str:
        """The module."""
        self.block(self.module.block, 0)
        records = [f"g{n} = {self._record(record)}" for n, record in enumerate(self.module.records)]
        entries = [f"{name} = {self._call(value)}" for table in self.tables.values() for value, name in table.items()]
        buffers = [self._buffer(b) for b in self.buffers]
        groups = [f"group {self._call(g)}" for g in self.module.groups]
        chip = f' chip "{self.module.chip}" "{self.module.chip_digest}"' if self.module.chip_digest else ""
        return (
            "\n".join([f'module "{self.module.name}"{chip}', *buffers, *groups, *entries, *records, *self.body]) + "\n"
        )

    def block(self, block: Block, depth: int) -> None:
        """Print a block."""
        pad = "  " * depth
        for item in block.items:
            if isinstance(item, TileOp):
                self.body.append(pad + self._op(item))
            elif isinstance(item, While):
                trip = f" trip {item.trip_count}" if item.trip_count is not None else ""
                self.body.append(f'{pad}while {self._value(item.predicate)} "{item.name}"{trip} {{')
                self.block(item.condition, depth + 1)
                self.body.append(f"{pad}}} do {{")
                self.block(item.body, depth + 1)
                self.body.append(f"{pad}}}")
            elif isinstance(item, Loop):
                count = self._value(item.count)
                held = ", ".join(self._value(buf) for buf in item.held)
                source = " source" * item.source + (f" holds {held}" if held else "")
                self.body.append(f'{pad}loop {self._value(item.var)} count {count} "{item.name}"{source} {{')
                self.block(item.body, depth + 1)
                self.body.append(f"{pad}}}")
            else:
                self._if(item, pad, depth)

    def _if(self, item: If, pad: str, depth: int) -> None:
        self.body.append(f'{pad}if {self._value(item.index)} "{item.name}" {{')
        for number, branch in enumerate(item.branches):
            if number:
                self.body.append(f"{pad}}} {{")
            self.block(branch, depth + 1)
        self.body.append(f"{pad}}}")

    def _op(self, op: TileOp) -> str:
        unit = f"[{op.unit}]" if op.unit else ""
        args = " ".join(f"{name}={self._value(value)}" for name, value in op.args.items())
        begin = f" begin {self.begin[op]}" if op in self.begin else ""
        end = f" end {self.end[op]}" if op in self.end else ""
        return f"{op.op}{unit} {args}{' ' * bool(args)}; {self._entry('o', op.origin)}{begin}{end}"

    def _record(self, record: GroupRecord) -> str:
        arrays = ", ".join(self._value(of) for of in (record.inputs, record.outputs))
        return f"GroupRecord({record.name!r}, {arrays})"

    def _entry(self, table: str, value: object) -> str:
        return self.tables[table].setdefault(value, f"{table}{len(self.tables[table])}")

    def _value(self, value: Any) -> str:
        if isinstance(value, Pattern):
            return self._entry("p", value)
        if isinstance(value, Kernel):
            return self._entry("k", value)
        if isinstance(value, Buf):
            return self.buffers.setdefault(value, f"%{value.name}")
        if isinstance(value, VReg):
            return f"${value.n}"
        if isinstance(value, Array | Ref | Entry | Coord | Section | MicroOp | BufferDecl):
            return self._call(value)
        if isinstance(value, DType):
            return f'"{value.name}"'
        if isinstance(value, tuple):
            return "(" + "".join(f"{self._value(v)}, " for v in value).rstrip() + ")"
        return repr(str(value)) if isinstance(value, Role) else repr(value)

    def _call(self, value: Any) -> str:
        parts = []
        positional = True
        for f in fields(value):
            current = getattr(value, f.name)
            if f.default is not MISSING and current == f.default:
                positional = False
                continue
            parts.append(self._value(current) if positional else f"{f.name}={self._value(current)}")
        return f"{type(value).__name__}({', '.join(parts)})"

    def _buffer(self, b: Buf) -> str:
        unit = f" unit {b.unit}" if b.unit else ""
        whole = " whole" if b in self.module.whole else ""
        decl = f" {self._call(b.decl)}" if b.decl is not None else ""
        if b.parts:
            decl = f" stack {self._value(b.parts)}"
        return f"%{b.name} = {Space(b.space).name} {b.bytes} align {b.align}{unit}{whole}{decl}"


def print_tile_ir(module: TileModule) -> str:
    """A module as text: buffers, groups, tables, then the operations in program order."""
    return Printer(module).text()
