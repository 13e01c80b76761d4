"""From regions to a line of operations with labels and jumps, and real registers for virtual ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.tile.ir import ROUTINE, Block, If, Loop, Pointer, Ref, Scalar, TileOp, VReg, While, registers_of
from systolith.compiler.tile.repeated import repeated
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


@dataclass(frozen=True)
class LoopHead:
    """A `loop` instruction: what follows it, up to the `LoopEnd` of its name, runs `count` times."""

    name: str
    count: Scalar
    origin: Origin = NO_ORIGIN


@dataclass(frozen=True)
class LoopEnd:
    """The end of a loop's body."""

    name: str


Item = TileOp | Label | Jump | LoopHead | LoopEnd


@dataclass
class Linear:
    """Items in order, and a register for each virtual one.

    Attributes:
        items: in order.
        registers: of the virtual ones.
        loops: the first item of each loop and the one after its last.
        pointers: the virtual register that holds how far loops have moved an address.
        sources: of operations that are copies.
    """

    items: list[Item] = field(default_factory=list)
    registers: dict[VReg, int] = field(default_factory=dict)
    loops: list[tuple[int, int]] = field(default_factory=list)
    pointers: dict[Pointer, VReg] = field(default_factory=dict)
    sources: dict[TileOp, TileOp] = field(default_factory=dict)
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
        elif isinstance(item, Loop):
            _loop(line, item)
        else:
            _while(line, item)


def _while(line: Linear, item: While) -> None:
    start, end = line.label("while"), line.label("done")
    first = len(line.items)
    line.items.append(Label(start))
    _block(line, item.condition)
    line.items.append(Jump("beq", end, item.predicate, 0, Origin(item.name, item.name, "test")))
    _block(line, item.body)
    line.items.append(Jump("jmp", start, origin=Origin(item.name, item.name, "loop")))
    line.loops.append((first, len(line.items)))
    line.items.append(Label(end))


def _loop(line: Linear, item: Loop) -> None:
    """A loop: registers that its iterations move are set before it and changed at the end of its body.

    A loop of nothing is left out, since the machine has none.
    """
    if not _any(item.body):
        return
    name, origin = line.label("loop"), Origin(item.name, item.name, "loop")
    steps = {p: p[1][-1][1] for p in _pointers(item.body) if p[1][-1][0] == item.var}
    used = _names(item.body, item.var)
    for pointer in steps:
        line.pointers.setdefault(pointer, line.vreg())  # loops one after another may name the same variable
        made = {"rd": line.pointers[pointer]}
        start, moves = pointer
        before = line.pointers[start, moves[:-1]] if moves[1:] else start
        if before is None:
            line.items.append(TileOp("li", {**made, "imm": 0}, origin))
        else:
            line.items.append(TileOp("add", {**made, "ra": before, "b": 0}, origin))
    if used:
        line.items.append(TileOp("li", {"rd": item.var, "imm": 0}, origin))
    changed = [(line.pointers[p], step) for p, step in steps.items()] + [(item.var, 1)] * used
    count = item.count
    if item.source and isinstance(count, int) and count > 2 and _is_straight(item.body):
        # The first iteration finds the queues unlike later ones: it is not in the loop.
        _block(line, repeated(item.body, line.vreg, line.sources))
        line.items += [TileOp("add", {"rd": r, "ra": r, "b": step}, origin) for r, step in changed]
        count -= 1
    line.items.append(LoopHead(name, count, origin))
    first = len(line.items)
    _block(line, item.body)
    line.items += [TileOp("add", {"rd": r, "ra": r, "b": step}, origin) for r, step in changed]
    if isinstance(line.items[-1], Label):
        line.items.append(TileOp("sync", {}, origin))  # jumps to what follows the body would leave the loop
    line.loops.append((first, len(line.items)))
    line.items.append(LoopEnd(name))


def _is_straight(block: Block) -> bool:
    """Whether the iterations of a loop with this body may overlap: SEQ joins the queues at what is no loop."""
    return all(
        item.op != ROUTINE if isinstance(item, TileOp) else isinstance(item, Loop) and _is_straight(item.body)
        for item in block.items
    )


def _any(block: Block) -> bool:
    """Whether anything runs in a block."""
    return any(_any(item.body) if isinstance(item, Loop) else True for item in block.items)


def _names(block: Block, var: VReg) -> bool:
    """Whether an operation or region of a block has a register as an operand."""
    return any(
        var in vregs_of(item)
        if isinstance(item, TileOp)
        else item.operand == var or any(_names(region, var) for region in item.regions)
        for item in block.items
    )


def pointers(loop: Loop) -> int:
    """Registers for addresses that a loop moves; of loops in it, one after another, those of the one with most."""
    own = sum(moves[-1][0] == loop.var for _, moves in _pointers(loop.body))
    return own + max((pointers(item) for item in loop.body.items if isinstance(item, Loop)), default=0)


def _pointers(block: Block) -> dict[Pointer, None]:
    """Addresses that loops move in a block, by the loops around it too: what a loop in it starts from included."""
    found: dict[Pointer, None] = {}
    for item in block.items:
        if isinstance(item, TileOp):
            found |= {ref.pointer: None for ref in item.refs if ref.pointer}
            continue
        inner = {p: None for region in item.regions for p in _pointers(region)}
        if isinstance(item, Loop):
            inner = {(start, m[:-1] if m[-1][0] == item.var else m): None for start, m in inner}
        found |= {(start, m): None for start, m in inner if m}
    return found


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


def vregs_of(item: Item, pointers: Mapping[Pointer, VReg] | None = None) -> list[VReg]:
    """Every virtual register that an item names, and those that hold how far loops have moved its addresses."""
    if isinstance(item, Label | LoopEnd):
        return []
    if isinstance(item, Jump):
        return [v for v in (item.ra, item.rb) if isinstance(v, VReg)]
    if isinstance(item, LoopHead):
        return [item.count] if isinstance(item.count, VReg) else []
    found: list[VReg] = []
    for value in item.args.values():
        for part in value if type(value) is tuple else (value,):
            if type(part) is VReg:
                found.append(part)
            elif type(part) is Ref:
                found += registers_of(part.dynamic)
                if pointers and part.pointer:
                    found = [v for v in found if v is not part.start] + [pointers[part.pointer]]
                found += [v for v in part.bias if isinstance(v, VReg)]
    return found


def _allocate(line: Linear) -> None:
    spans: dict[VReg, list[int]] = {}
    for position, item in enumerate(line.items):
        # The registers of a routine are all in use at once.
        last = position + (isinstance(item, TileOp) and item.op == ROUTINE)
        for v in vregs_of(item, line.pointers):
            # What is read first has its value from before.
            given = not isinstance(item, TileOp) or item.args.get("rd") != v
            spans.setdefault(v, [0 if given else position, last])[1] = last
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
                f"more than {len(REGISTERS)} scalars are live at once; use fewer dynamic slices in a group,"
                " or fewer strides of loops"
            )
        line.registers[v] = free.pop()
        active.append((last, v))
