"""Whether a kernel's schedule is legal: slots, latencies, register lives, recurrences.

A legal schedule gives the values that its micro-operations give if run one after another in the order listed, iteration
by iteration: the value plane relies on it, and so does the hardware, which has no interlocks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from systolith.isa.allocate import Life
from systolith.isa.dependence import latency_of, slots_of
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, MAX_STAGES, MAX_STREAMS, NREGS, NSCALARS, SCALAR0, Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS, Slot

if TYPE_CHECKING:
    from systolith.isa.chip import Chip


def verify_kernel(kernel: Kernel, chip: Chip) -> None:
    """Check a kernel against a chip.

    Raises:
        ProgramError: naming kernel, section, micro-operation and limit.
    """
    name = f"kernel {kernel.name}"
    if not 0 <= kernel.rotating <= NREGS or kernel.ii < 1:
        raise ProgramError(f"{name}: rotating {kernel.rotating}, ii {kernel.ii}: must be 0 to {NREGS}, at least 1")
    stages = -(-kernel.body.length // kernel.ii)
    if stages > MAX_STAGES:
        raise ProgramError(f"{name}: {stages} iterations in flight (length over ii): at most {MAX_STAGES}")
    sections = {"prologue": kernel.prologue, "body": kernel.body, "epilogue": kernel.epilogue}
    for where, section in sections.items():
        what = f"{name}: {where}"
        _check_operands(section, len(kernel.constants), what)
        _check_issue(section, kernel.ii if where == "body" else 0, chip, what)
        _check_order(section, chip, what)
    _check_definitions(kernel, name)
    _check_static(kernel, chip, name)
    _check_rotating(kernel, chip, name)


def _check_operands(section: Section, constants: int, what: str) -> None:
    for m in section.ops:
        info = MICROOPS.get(m.op)
        if info is None or len(m.srcs) != info.sources:
            raise ProgramError(f"{what}: {m.op}: unknown, or {len(m.srcs)} operands are not what it needs")
        if (m.dst == -1) != (info.slot is Slot.STORE) or not -1 <= m.dst < NREGS:
            raise ProgramError(f"{what}: {m.op}: result {m.dst}: must be a register, -1 only for stores")
        for s in m.srcs:
            if not (0 <= s < NREGS or CONST0 <= s < CONST0 + constants or SCALAR0 <= s < SCALAR0 + NSCALARS):
                raise ProgramError(f"{what}: {m.op}: operand {s}: no register, scalar, or constant of {constants}")
        stream = m.imm if m.op in ("ld", "st") else m.imm % 16
        if stream >= MAX_STREAMS:
            raise ProgramError(f"{what}: {m.op}: stream {stream}: must be from 0 to {MAX_STREAMS - 1}")


def _check_issue(section: Section, ii: int, chip: Chip, what: str) -> None:
    """Each slot takes one micro-operation a cycle (modulo ii); the length holds the last result."""
    seen: Counter[tuple[Slot, int, int]] = Counter()
    last = 0
    for m in section.ops:
        slot = MICROOPS[m.op].slot
        key = (slot, m.slot, m.cycle % ii if ii else m.cycle)
        seen[key] += 1
        if m.cycle < last:
            raise ProgramError(f"{what}: {m.op}: cycle {m.cycle} after {last}: must be listed in issue order")
        last = m.cycle
        if not 0 <= m.slot < slots_of(slot, chip):
            raise ProgramError(f"{what}: {m.op}: slot {m.slot}: the chip has {slots_of(slot, chip)} of {slot}")
        if seen[key] > 1:
            raise ProgramError(f"{what}: {m.op}: cycle {m.cycle}: {slot} slot {m.slot} is taken")
        end = m.cycle + latency_of(m.op, chip)
        if end > section.length:
            raise ProgramError(f"{what}: {m.op}: result in cycle {end}: the length is {section.length}")


def _check_order(section: Section, chip: Chip, what: str) -> None:
    """A read finds the result of the last write listed before it."""
    landing: dict[int, int] = {}
    stored = -1
    for m in section.ops:
        for s in m.srcs:
            if landing.get(s, 0) > m.cycle:
                raise ProgramError(f"{what}: {m.op}: reads v{s} in cycle {m.cycle}: it is there in {landing[s]}")
        if m.op == "ld" and m.cycle <= stored:
            raise ProgramError(f"{what}: ld in cycle {m.cycle}: a store listed before it issues in {stored}")
        if m.op == "st":
            stored = m.cycle
        if m.dst >= 0:
            end = m.cycle + latency_of(m.op, chip)
            if landing.get(m.dst, -1) >= end:
                raise ProgramError(f"{what}: {m.op}: v{m.dst} would be overwritten in cycle {landing[m.dst]}")
            landing[m.dst] = end


def _check_definitions(kernel: Kernel, name: str) -> None:
    """Every register read has been written; rotating ones in the same section."""
    kept: set[int] = set()
    sections = {"prologue": kernel.prologue, "body": kernel.body, "epilogue": kernel.epilogue}
    for where, section in sections.items():
        written: set[int] = set()
        for m in section.ops:
            for s in m.srcs:
                if s < CONST0 and s not in written and (s < kernel.rotating or s not in kept):
                    raise ProgramError(f"{name}: {where}: {m.op}: reads v{s}, which nothing before it wrote")
            written.add(m.dst)
        kept |= written


def _check_static(kernel: Kernel, chip: Chip, name: str) -> None:
    """Static registers, between one iteration and the next."""
    writes: dict[int, list[MicroOp]] = {}
    for m in kernel.body.ops:
        if m.dst >= kernel.rotating:
            writes.setdefault(m.dst, []).append(m)
    for reg, ops in writes.items():
        if len(ops) > 1:
            raise ProgramError(f"{name}: body: v{reg} is static and written {len(ops)} times: at most once")
        w = ops[0]
        land = w.cycle + latency_of(w.op, chip)
        position = kernel.body.ops.index(w)
        for i, m in enumerate(kernel.body.ops):
            if reg not in m.srcs:
                continue
            if i <= position and m.cycle + kernel.ii < land:
                raise ProgramError(
                    f"{name}: body: {m.op} needs v{reg} {land - m.cycle} cycles later: ii is {kernel.ii}"
                )
            if i > position and m.cycle >= land + kernel.ii:
                raise ProgramError(
                    f"{name}: body: {m.op} reads v{reg} in cycle {m.cycle}: overwritten in {land + kernel.ii}"
                )


def _lives(kernel: Kernel, chip: Chip) -> list[tuple[int, Life]]:
    """(rotating register, life) of every value of the body."""
    out: list[tuple[int, Life]] = []
    current: dict[int, int] = {}
    for m in kernel.body.ops:
        for s in m.srcs:
            if s in current:
                reg, life = out[current[s]]
                out[current[s]] = (reg, life._replace(last=max(life.last, m.cycle)))
        if 0 <= m.dst < kernel.rotating:
            land = m.cycle + latency_of(m.op, chip)
            current[m.dst] = len(out)
            out.append((m.dst, Life(m.cycle, land, land)))
    return out


def _check_rotating(kernel: Kernel, chip: Chip, name: str) -> None:
    """No value of another iteration lands in a rotating register that is still read."""
    lives = _lives(kernel, chip)
    ii, rotating = kernel.ii, kernel.rotating
    for n, (v, (_, first, last)) in enumerate(lives):
        for m, (u, b) in enumerate(lives[: n + 1]):  # the other way around k is -k
            lo, hi = -((b.last - first) // ii), (last - b.first) // ii
            # The smallest k of lo .. hi, other than the value itself, with u + k = v modulo the rotating registers.
            k = lo + (v - u - lo) % rotating
            if n == m and k == 0:
                k += rotating
            if k <= hi:
                raise ProgramError(f"{name}: body: v{u} of iteration i + {k} overwrites v{v} of i while it is read")
