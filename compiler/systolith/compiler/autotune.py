"""Trying tile plans: the best candidates of the cost model, each compiled for its group alone and timed by a simulator.

The simulator is given by the caller (the compiler knows none).  What won is remembered in a JSON file, by what the
group computes, where its values lie, the room that it has, the chip and the compiler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from systolith.compiler.assemble import assemble
from systolith.compiler.driver import schedule
from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.gemm_plan import GemmPlan
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.lowering import Lowering
from systolith.compiler.matmul import lower_output
from systolith.compiler.tile.ir import Array, Buf
from systolith.isa.dtypes import dtype
from systolith.isa.files import OutputError, write_atomic
from systolith.isa.instruction import Space
from systolith.isa.program import Program, Role


@dataclass(frozen=True)
class Tuned:
    """What came of trying the plans of one group.

    Attributes:
        plan: signature of the fastest.
        tried: how many plans were to be.
        cycles: of the fastest.
        first: cycles of the one that the estimate prefers.
    """

    plan: str
    tried: int
    cycles: int
    first: int


def default_cache() -> Path:
    """Where results are remembered: in `$XDG_CACHE_HOME`, or else `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "systolith" / "autotune.json"


@dataclass(eq=False)
class Tuner:
    """Picks tile plans.

    Attributes:
        count: plans of each group to try.
        measure: gives the cycles of a program; None: they depend on data.
        path: of the memory.
        stage: told what is being tried.
        known: results by key.
    """

    count: int
    measure: Callable[[Program], int | None]
    path: Path
    stage: Callable[[str], None] = lambda _: None
    known: dict[str, Tuned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = read_cache(self.path)

    def pick(
        self, ctx: Lowering, group: Instruction, operands: Sequence[Array], results: Sequence[Array], free: int
    ) -> str:
        """The signature of the plan that a kOutput group is to have; empty: the cheapest.

        Args:
            ctx: where the group is to be lowered; only told what was decided.
            group: the `fusion`.
            operands, results: its arrays.
            free: bytes of VMEM that no whole value takes.
        """
        if any(a.dynamic is not None for a in (*operands, *results)):
            return ""
        key = _key(ctx, group, operands, results, free)
        tuned = self.known.get(key)
        if tuned is None or tuned.tried < self.count:
            tuned = self._try(ctx, group, operands, results, free)
            self.known[key] = tuned
            write_cache(self.path, {key: tuned})
        if tuned.plan:
            name = ctx.origin("").group
            rejected = Alternative("what the estimate prefers", "", {"cycles": tuned.first})
            other = (rejected,) if tuned.cycles < tuned.first else ()
            numbers = {"cycles": tuned.cycles, "tried": tuned.tried}
            ctx.explain.append(Decision("autotune", name, tuned.plan, "the fastest alone", numbers, other))
        return tuned.plan

    def _try(
        self, ctx: Lowering, group: Instruction, operands: Sequence[Array], results: Sequence[Array], free: int
    ) -> Tuned:
        found: list[tuple[int, int, str]] = []
        plans: Sequence[GemmPlan] = ()
        number = 0
        while number < max(1, min(self.count, len(plans))):
            self.stage(f"autotuning {group.name}: {number + 1} of {self.count}")
            picked = plans[number].signature if plans else ""
            program, plans = _alone(ctx, group, operands, results, free, picked)
            cycles = None if program is None else self.measure(program)
            if cycles is not None:
                found.append((cycles, number, plans[number].signature))
            number += 1
        if not found or found[0][1]:  # the estimate's own choice does not fit alone
            return Tuned("", self.count, 0, 0)
        best, _, plan = min(found)
        return Tuned(plan, self.count, best, found[0][0])


def _alone(
    ctx: Lowering, group: Instruction, operands: Sequence[Array], results: Sequence[Array], free: int, picked: str
) -> tuple[Program | None, Sequence[GemmPlan]]:
    """A program of one group, its arrays where they lie in the module (None: no place for its tiles), and its plans."""
    sub = Lowering(ctx.chip, ctx.module, replace(ctx.options, tuner=None), ctx.budget, group=group, picked=picked)
    moved: dict[Buf, Buf] = {}

    def same(array: Array) -> Array:
        if array.buf not in moved:
            moved[array.buf] = _like(sub, array.buf)
        return replace(array, buf=moved[array.buf])

    lower_output(sub, group, [same(a) for a in operands], [same(a) for a in results])
    fitted = schedule(sub, free)
    if fitted.plan.failed is not None:
        return None, sub.plans
    program, _ = assemble(group.name, fitted.block, sub.buffers, fitted.plan, sub.chip)
    return program, sub.plans


def _like(sub: Lowering, buf: Buf) -> Buf:
    """A buffer of the same size in the same memory."""
    if buf.space == Space.HBM:
        return sub.hbm(buf.name, Role.TEMP, dtype("u8"), (buf.bytes,))
    made = sub.vmem(buf.name, buf.bytes)
    sub.whole.add(made)
    return made


def _key(ctx: Lowering, group: Instruction, operands: Sequence[Array], results: Sequence[Array], free: int) -> str:
    """What the cycles of a group's plans depend on, as a digest: names do not count."""
    body = group.computation("calls")
    number = {i: n for n, i in enumerate(body.instructions)}
    operations = [(i.opcode, str(i.shape), [number[o] for o in i.operands], _attributes(i)) for i in body.instructions]
    arrays = [(int(a.buf.space), a.dtype.name, a.dims, a.strides, a.origin) for a in (*operands, *results)]
    machine = (ctx.chip.digest(), version("systolith"), ctx.options.precision, ctx.budget, free)
    return sha256(repr((operations, number[body.result], arrays, machine)).encode()).hexdigest()


def _attributes(i: Instruction) -> list[tuple[str, str]]:
    ignored = ("metadata", "calls", "to_apply")
    return sorted((name, repr(value)) for name, value in i.attributes.items() if name not in ignored)


# The memory.


def read_cache(path: Path) -> dict[str, Tuned]:
    """What is remembered; nothing, if there is no file yet.

    Raises:
        CompileError: the file is there, but is no memory of plans.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            key: Tuned(str(r["plan"]), int(r["tried"]), int(r["cycles"]), int(r["first"])) for key, r in rows.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompileError(f"{path}: not a file of autotuning results ({type(error).__name__}); remove it") from None


def write_cache(path: Path, found: dict[str, Tuned]) -> None:
    """Add results to the file, whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path.parent}: {error.strerror or error}") from None
    rows = {key: vars(t) for key, t in (read_cache(path) | found).items()}
    text = json.dumps(rows, indent=1, sort_keys=True) + "\n"
    write_atomic(path, lambda handle: handle.write(text.encode()))
