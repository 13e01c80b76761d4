"""The manual of the instruction set, `docs/isa.md`: tables from the declarations, semantics from the code itself.

python -m systolith.isa.manual [path]
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from systolith.isa import (
    access,
    asm,
    asm_kernel,
    asm_routine,
    binary,
    chip,
    encode,
    geometry,
    instruction,
    kernel,
    opcodes,
    pattern,
    schedule,
    timing,
    verify,
    verify_kernel,
    verify_tokens,
)
from systolith.isa.chip_rules import DERIVED
from systolith.isa.chip_schema import FIELDS
from systolith.isa.chip_units import UNITS, units_of
from systolith.isa.dtypes import DTYPES, ELEMENT_TYPES
from systolith.isa.layout import Bits
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import OPCODES, Field, FieldKind, Opcode

COMMAND = "python -m systolith.isa.manual"
TARGET = Path(__file__).resolve().parents[3] / "docs" / "isa.md"
_HEADINGS = ("Attributes:", "Args:", "Raises:")
FORMULAS = (
    timing.issue_cycles,
    geometry.row_accesses,
    timing.row_cycles,
    timing.load_cost,
    timing.matmul_cost,
    timing.vector_cycles,
    timing.vpu_cost,
    geometry.side_accesses,
    timing.shuffle_cost,
    timing.reduce_cost,
    geometry.runs,
    timing.dma_cost,
)


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    columns = list(head)
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |"
    yield ""


def _doc(thing: ModuleType | type | Callable[..., object]) -> str:
    """Its docstring as Markdown: indented blocks are code there, too; attributes, arguments and errors become lists."""
    out = [f"### {thing.__name__}", ""] if inspect.isclass(thing) else []
    listing = False
    for line in inspect.cleandoc(thing.__doc__ or "").splitlines():
        if line in _HEADINGS:
            listing = True
            out += [f"{line}", ""]
        elif listing and line.startswith("        "):
            out[-1] += " " + line.strip()
        elif listing and line.startswith("    "):
            names, _, text = line.strip().partition(": ")
            out.append(f"- `{names}`: {text}")
        else:
            listing = listing and not line
            out.append(line)
    return "\n".join(_wrapped(line) if line.startswith("- ") else line for line in out) + "\n"


def _wrapped(text: str) -> str:
    """A paragraph, or an item of a list, in lines of at most 120 columns."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _codes(table: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` {code}" for name, code in table.items())


def _summary(thing: ModuleType | type | Callable[..., object]) -> str:
    """The first paragraph of its docstring, as one line."""
    return " ".join(_doc(thing).split("\n\n")[0].split())


def _source(thing: Callable[..., object]) -> str:
    return f"```python\n{inspect.getsource(thing).rstrip()}\n```\n"


def _place(b: Bits) -> str:
    if b.width == 32:
        return f"{b.word}"
    return f"{b.word} [{b.hi}]" if b.width == 1 else f"{b.word} [{b.hi}:{b.lo}]"


def _field_place(f: Field) -> str:
    if f.kind is FieldKind.STREAMS:
        text = f"{f.value.word}, six words each"
    elif f.words > 1:
        text = f"{f.value.word} to {f.value.word + f.words - 1}"
    else:
        text = _place(f.value)
    labels = {FieldKind.OPERAND: "register if", FieldKind.SCALARS: "registers", FieldKind.COUNTS: "how many"}
    return text + (f"; {labels.get(f.kind, 'how many')} {_place(f.aux)}" if f.aux else "")


def _instruction(o: Opcode) -> Iterator[str]:
    queue = {"w": "w_i", "s": "s_i", "arg": "named by its field"}.get(o.queue, o.queue)
    yield f"#### `{o.name}`\n"
    yield f"Code {o.code:#04x}, queue {queue}, {o.words} words.  {o.doc[0].upper()}{o.doc[1:]}.\n"
    if o.fields:
        yield from _table(
            ("field", "kind", "word [bits]", "what"),
            ((f"`{f.name}`", f.kind, _field_place(f), f.doc) for f in o.fields),
        )


def _bits(table: Iterable[Bits]) -> Iterator[str]:
    yield from _table(("field", "word [bits]"), ((f"`{b.name}`", _place(b)) for b in table))


def _instructions() -> Iterator[str]:
    yield "## Instructions\n"
    yield _doc(opcodes)
    yield "### Header\n"
    yield from _bits(opcodes.HEADER)
    yield _doc(instruction.Stream)
    yield from _table(("space", "code"), ((s.name, s.value) for s in instruction.Space))
    yield "Six words; words are counted from the stream's first.\n"
    yield from _bits(opcodes.STREAM)
    yield "Spaces that a port may name:\n"
    rows = ((f"`{op}`", f"`{arg}`", ", ".join(s.name for s in spaces)) for (op, arg), spaces in verify.SPACES.items())
    yield from _table(("instruction", "port", "spaces"), rows)
    yield "### Opcodes\n"
    for o in OPCODES.values():
        yield from _instruction(o)
    yield _wrapped(f"Functions of `xlu.reduce`: {_codes(opcodes.REDUCE_FUNCTIONS)}.") + "\n"
    yield _wrapped(f"Queues of `nop`: {_codes(opcodes.QUEUE_CODES)}.") + "\n"


def _patterns() -> Iterator[str]:
    yield "## Patterns\n"
    for thing in (pattern, pattern.Pattern, pattern.Coord, encode):
        yield _doc(thing)
    yield from _bits(encode.PATTERN_HEADER)
    yield "Each coordinate:\n"
    yield from _bits(encode.COORD_FIXED)


def _kernels() -> Iterator[str]:
    yield "## Kernels\n"
    for thing in (kernel, kernel.Kernel, kernel.MicroOp, verify_kernel, schedule):
        yield _doc(thing)
    yield from _bits(encode.KERNEL_HEADER)
    yield "A micro-operation:\n"
    yield from _bits(encode.MICROOP)
    yield "### Micro-operations\n"
    rows = ((f"`{m.name}`", m.code, m.slot, m.sources, m.doc) for m in MICROOPS.values())
    yield from _table(("name", "code", "slot", "operands", "what"), rows)


def _numerics() -> Iterator[str]:
    yield "## Numerics\n"
    yield from _table(
        ("type", "code", "bits", "bytes in memory"), ((t.name, t.code, t.bits, t.size) for t in DTYPES.values())
    )
    others = ", ".join(t.name for t in ELEMENT_TYPES.values() if t.code < 0)
    yield f"Buffers may also be of {others},\na byte an element.  Instructions move these as u8.\n"
    folder = Path(__file__).parent / "numerics"
    for path in sorted(folder.glob("*.py")):
        name = "systolith.isa.numerics" + ("" if path.stem == "__init__" else f".{path.stem}")
        module = importlib.import_module(name)
        if not module.__doc__:
            continue
        yield f"### {path.stem if path.stem != '__init__' else 'Rules'}\n"
        yield _doc(module)
        rows = [(f"`{n}`", _summary(f)) for n, f in _public(module)]
        if rows:
            yield from _table(("function", "what"), rows)


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions of a module that have docstrings, in the order of its text."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [(n, f) for n, f in found if f.__module__ == module.__name__ and not n.startswith("_") and f.__doc__]
    yield from sorted(own, key=lambda x: inspect.getsourcelines(x[1])[1])


def _timing() -> Iterator[str]:
    yield "## Times\n"
    yield _doc(timing)
    yield _doc(timing.Cost)
    yield "How instructions wait, start and retire is in [machine.md](machine.md); these are the durations.\n"
    for f in FORMULAS:
        yield f"### {f.__name__}\n"
        yield _source(f)


def _rest() -> Iterator[str]:
    for title, things in (
        ("Accesses", (access, access.Access, access.accesses)),
        ("Checks", (verify, verify_tokens)),
        ("Assembly", (asm, asm_kernel, asm_routine)),
        ("Binaries", (binary,)),
        ("Chips", (chip,)),
    ):
        yield f"## {title}\n"
        for thing in things:
            yield _doc(thing)
    rows = (
        (f"`{d.name}`", d.doc.unit, "" if d.lo is None else f"{d.lo:.10g} to {d.hi:.12g}", d.doc.text)
        for d in FIELDS.values()
    )
    yield from _table(("field", "unit", "limits", "what"), rows)
    yield "Fields that follow from others where they are left out, or where a variant no longer allows its base's:\n"
    derived = ((f"`{name}`", ", ".join(f"`{n}`" for n in d.needs), d.because) for name, d in DERIVED.items())
    yield from _table(("field", "follows from", "how"), derived)
    units = ((kind, ", ".join(f"`{u}`" for u in units_of(kind).split(", "))) for kind in UNITS)
    yield "Units that texts may have, by the unit of the field (`hbm.gbps`: GB/s):\n"
    yield from _table(("unit", "texts"), units)


def render() -> str:
    """The manual's text."""
    out = [
        "# The instruction set",
        "",
        f"<!-- Generated by `{COMMAND}`; do not edit. -->",
        "",
        "Every table and formula here is printed from the code that implements it.  How the machine behaves",
        "is in [machine.md](machine.md).",
        "",
    ]
    for part in (_instructions, _patterns, _kernels, _numerics, _timing, _rest):
        out += part()
    return "\n".join(out).rstrip() + "\n"


def main(argv: list[str]) -> int:
    """Write the manual."""
    path = Path(argv[0]) if argv else TARGET
    path.write_text(render(), encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
