"""HLO text in, pass, HLO text out."""

from __future__ import annotations

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_computation
from systolith.compiler.passes.base import Pass


def module_of(body: str, before: str = "") -> Module:
    return parse_hlo(f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n")


def after(step: Pass, body: str, before: str = "") -> list[str]:
    """Lines of the entry computation after a pass, without layouts; the module still verifies."""
    module = module_of(body, before)
    changed = step.run(module)
    verify(module)
    lines = print_computation(module.entry, module.style, True).splitlines()[1:-1]
    assert changed or lines == print_computation(module_of(body, before).entry, module.style, True).splitlines()[1:-1]
    return [_plain(line.strip()) for line in lines]


def _plain(line: str) -> str:
    for layout in ("{0}", "{1,0}", "{2,1,0}", "{3,2,1,0}"):
        head, _, tail = line.partition(" = ")
        line = f"{head} = {tail.replace(layout, '', 1)}" if layout in tail.split("(")[0] else line
    return line
