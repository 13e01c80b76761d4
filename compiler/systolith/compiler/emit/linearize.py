"""From regions to a line of operations with labels and jumps, and real registers for virtual ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.tile.ir import Block, If, Ref, TileOp, VReg
from systolith.isa.program import Origin

REGISTERS = range(1, 28)
"""r0 reads as 0; `SCRATCH` hold addresses for the next instruction only."""
SCRATCH = range(28, 32)


NO_ORIGIN = Origin()


@dataclass(frozen=True)
class Label:
    """A place that jumps lead to."""

    name: str


@dataclass(frozen=True)
class Jump:
    """A jump or branch to a label; `ra` and `rb` are compared by branches."""

    op: str
    target: str
    ra: VReg | int = 0
    rb: VReg | int = 0
    origin: Origin = NO_ORIGIN


Item = TileOp | Label | Jump


@dataclass
class Linear:
    """Items in order, and a register for each virtual one."""

    items: list[Item] = field(default_factory=list)
    registers: dict[VReg, int] = field(default_factory=dict)
    loops: list[tuple[int, int]] = field(default_factory=list)
    _labels: int = 0
    _vregs: int = 0

    def label(self, stem: str) -> str:
        self._labels += 1
        return f"{stem}.{self._labels}"

    def vreg(self) -> VReg:
        """A register that no lowering has (theirs count up from 1)."""
        self._vregs += 1
        return VReg(-self._vregs)


def linearize(block: Block) -> Linear:
    """Flatten regions and allocate registers.

    Raises:
        CompileError: more scalars are live at once than there are registers.
    """
    line = Linear()
    _block(line, block)
    _allocate(line)
    return line


def _block(line: Linear, block: Block) -> None:
    for item in block.items:
        if isinstance(item, TileOp):
            line.items.append(item)
        elif isinstance(item, If):
            _if(line, item)
        else:
            start, end = line.label("while"), line.label("done")
            first = len(line.items)
            line.items.append(Label(start))
            _block(line, item.condition)
            line.items.append(Jump("beq", end, item.predicate, 0, Origin(item.name, item.name, "test")))
            _block(line, item.body)
            line.items.append(Jump("jmp", start, origin=Origin(item.name, item.name, "loop")))
            line.loops.append((first, len(line.items)))
            line.items.append(Label(end))


def _if(line: Linear, item: If) -> None:
    origin = Origin(item.name, item.name, "branch")
    names = [line.label("case") for _ in item.branches]
    end = line.label("join")
    for k, name in enumerate(names[:-1]):
        number: VReg | int = 0
        if k:
            number = line.vreg()
            line.items.append(TileOp("li", {"rd": number, "imm": k}, origin))
        line.items.append(Jump("beq", name, item.index, number, origin))
    for k in (len(names) - 1, *range(len(names) - 1)):
        line.items.append(Label(names[k]))
        _block(line, item.branches[k])
        line.items.append(Jump("jmp", end, origin=origin))
    line.items.append(Label(end))


def vregs_of(item: Item) -> list[VReg]:
    """Every virtual register that an item names."""
    if isinstance(item, Label):
        return []
    if isinstance(item, Jump):
        return [v for v in (item.ra, item.rb) if isinstance(v, VReg)]
    found: list[VReg] = []
    for value in item.args.values():
        for part in value if type(value) is tuple else (value,):
            if type(part) is VReg:
                found.append(part)
            elif type(part) is Ref:
                found += [v for v in (part.dynamic, *part.bias) if isinstance(v, VReg)]
    return found


def _allocate(line: Linear) -> None:
    spans: dict[VReg, list[int]] = {}
    for position, item in enumerate(line.items):
        for v in vregs_of(item):
            spans.setdefault(v, [position, position])[1] = position
    for start, end in sorted(line.loops, key=lambda s: s[1] - s[0]):
        for span in spans.values():
            if span[0] < start <= span[1] < end or start <= span[0] < end <= span[1]:
                span[0], span[1] = min(span[0], start), max(span[1], end)
    free = list(reversed(REGISTERS))
    active: list[tuple[int, VReg]] = []
    for v, (first, last) in sorted(spans.items(), key=lambda s: s[1]):
        for end, done in list(active):
            # A register that is read last by the instruction that writes the next one can serve both.
            if end <= first:
                active.remove((end, done))
                free.append(line.registers[done])
        if not free:
            raise DoesNotFitError(
                f"more than {len(REGISTERS)} scalars are live at once; use fewer dynamic slices in a group"
            )
        line.registers[v] = free.pop()
        active.append((last, v))
