"""The tables of docs/operations.md that are measured: element types of operations, cycles, errors of functions.

`python -m tests.operations` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.ops.table import OPS
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, DType, Kind
from systolith.sim.simulate import simulate
from tests.operations.accuracy import accuracy
from tests.operations.probes import bodies, compiled, legal, text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
START, END = "<!-- measured: python -m tests.operations -->\n", "<!-- end of what is measured -->\n"

WHERE = load_chip("tiny")
FAST = load_chip("tpu_v3")
TIMED = ("f32", "bf16", "s32", "s64", "f64", "c64")
MANY = 1024
"""Rows and columns of the arrays whose cycles are measured."""

_KINDS = {
    "pred": (Kind.PRED,),
    "signed": (Kind.SIGNED,),
    "unsigned": (Kind.UNSIGNED,),
    "floats": (Kind.FLOAT,),
    "complex": (Kind.COMPLEX,),
}


def named(types: Collection[DType]) -> str:
    """Element types in few words: kinds that are there as a whole by their names, then single types."""
    found, left = [], list(types)
    for name, kinds in _KINDS.items():
        whole = [t for t in DTYPES.values() if t.kind in kinds]
        if all(t in left for t in whole):
            found.append(name)
            left = [t for t in left if t not in whole]
    if len(found) == len(_KINDS):
        return "all"
    return ", ".join(found + [t.name for t in left])


def row(opcode: str) -> str:
    """The line of an opcode: how it runs, and in which element types it does and does not."""
    exists = [t for t in DTYPES.values() if legal(opcode, t)]
    runs = [t for t in exists if compiled(opcode, t, WHERE) is not None]
    refused = [t for t in exists if t not in runs]
    entry = OPS[opcode]
    how = entry.family.value
    how = f"{how}; `{entry.expander}`" if entry.expander else how
    return f"| {opcode} | {how} | {named(runs)} | {named(refused)} |"


def cycles(opcode: str, t: DType) -> str:
    """Cycles an element of an elementwise operation on `FAST`, whose operands come from HBM; empty: it does not run."""
    if not legal(opcode, t):
        return ""
    large = text(opcode, t).replace("4,6]", f"{MANY},{MANY}]")
    try:
        program = compile_module(parse_hlo(large), FAST).program
    except CompileError:
        return ""
    took = simulate(program, FAST, mode="time").cycles
    assert took is not None
    return f"{took / MANY**2:.3f}"


def timed(opcode: str) -> str:
    """The line of an elementwise opcode: cycles an element."""
    return f"| {opcode} | {' | '.join(cycles(opcode, DTYPES[t]) for t in TIMED)} |"


def tables(progress: Callable[[Sequence[str]], Iterator[str]] = iter) -> str:
    """All tables."""
    lines = ["| opcode | carried out by | runs in | refused in |", "|---|---|---|---|"]
    lines += [row(opcode) for opcode in progress(list(bodies()))]
    lines += ["", f"Cycles an element, of elementwise operations on {MANY} x {MANY} in HBM, on `{FAST.name}`:", ""]
    lines += [f"| opcode | {' | '.join(TIMED)} |", "|---" * (len(TIMED) + 1) + "|"]
    lines += [timed(opcode) for opcode in progress(sorted(ELEMENTWISE))]
    lines += ["", *accuracy(progress)]
    return "\n".join(lines) + "\n"


def stated() -> list[str]:
    """The lines of the tables on the page."""
    return PAGE.read_text().partition(START)[2].partition(END)[0].splitlines()


def write(made: str) -> None:
    """Put tables on the page."""
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n{made}\n{END}{after}")
