"""A module of each HLO operation in an element type.

`probes.hlo` has one for each opcode that is not elementwise; those of elementwise operations have one form.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Template

from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.opcodes import ELEMENTWISE, ELEMENTWISE_UNARY
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES, DType, Kind

FILE = Path(__file__).with_name("probes.hlo")

ELSEWHERE = frozenset({"send", "send-done", "recv", "recv-done"})
"""Opcodes without a probe: several devices."""

FED = frozenset({"infeed", "outfeed"})
"""Opcodes whose probes need a host."""

COMPUTATIONS = """add {
 a = $t[] parameter(0)
 b = $t[] parameter(1)
 ROOT s = $t[] $sum(a, b)
}
later {
 a = $t[] parameter(0)
 b = $t[] parameter(1)
 ROOT s = $t[] $sum(b, a)
}
larger {
 a = $t[] parameter(0)
 b = $t[] parameter(1)
 ROOT s = pred[] compare(a, b), direction=GE
}
less {
 a = $t[] parameter(0)
 b = $t[] parameter(1)
 ROOT s = pred[] compare(a, b), direction=LT
}
"""


@cache
def bodies() -> dict[str, str]:
    """The lines of each opcode's probe."""
    found: dict[str, str] = {}
    for section in FILE.read_text().split("\n== ")[1:]:
        names, _, body = section.partition("\n")
        found |= dict.fromkeys(names.split(), body.strip())
    for opcode in ELEMENTWISE - found.keys():
        operands = "x" if opcode in ELEMENTWISE_UNARY else "x, y"
        found[opcode] = f"ROOT r = $t[4,6] {opcode}({operands})"
    return dict(sorted(found.items()))


def text(opcode: str, t: DType) -> str:
    """The module of an opcode, in an element type."""
    unsigned = {k.bits: k.name for k in DTYPES.values() if k.kind is Kind.UNSIGNED}
    words = {
        "t": t.name,
        "sum": "or" if t.kind is Kind.PRED else "add",
        "wide": "s32" if t.is_integer and t.bits < 32 else t.name,
        "bits": unsigned.get(t.bits, "u8"),
        "pair": "c128" if t.name == "f64" else "c64",
        "part": t.part.name,
    }
    lines = bodies()[opcode].split("\n")
    start = next((n for n, line in enumerate(lines) if re.match(r"\w+ \{", line)), len(lines))
    entry = [f"x = {t}[4,6] parameter(0)", f"y = {t}[4,6] parameter(1)", "number = s32[] parameter(2)", *lines[:start]]
    own = "\n".join(lines[start:])
    shared = [c for c in re.split(r"(?<=^\}\n)", COMPUTATIONS, flags=re.MULTILINE) if c]
    named = [c for c in shared if re.search(rf"={c.partition(' ')[0]}\b", bodies()[opcode])]
    body = "\n ".join(entry)
    return Template(f"HloModule probe\n\n{''.join(named)}{own}\nENTRY main {{\n {body}\n}}\n").substitute(words)


def legal(opcode: str, t: DType) -> bool:
    """Whether the operation exists in an element type."""
    try:
        verify(parse_hlo(text(opcode, t)))
    except HloError:
        return False
    return True


def compiled(opcode: str, t: DType, chip: Chip) -> Compiled | None:
    """The probe, compiled; None: it is refused."""
    try:
        return compile_module(parse_hlo(text(opcode, t)), chip, Options(precision="highest"))
    except CompileError:
        return None
