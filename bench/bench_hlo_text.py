"""Host time of the HLO text's parser and printer: many instructions, a real module, and large constants."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo

INSTRUCTIONS = 100_000
CORPUS = Path(__file__).resolve().parents[1] / "tests" / "corpus"
STEPS = (
    '%add.{i} = f32[128,256]{{1,0}} add(%{last}, %p), metadata={{op_name="jit(f)/add" source_line={i}}}',
    "%transpose.{i} = f32[256,128]{{1,0}} transpose(%{last}), dimensions={{1,0}}, metadata={{stack_frame_id={i}}}",
    "%transpose.{i} = f32[128,256]{{1,0}} transpose(%{last}), dimensions={{1,0}}",
    "%multiply.{i} = f32[128,256]{{1,0}} multiply(%{last}, %{last})",
)


def chain(count: int) -> str:
    lines = ["HloModule m", "", "%main (p: f32[128,256]) -> f32[128,256] {", "  %p = f32[128,256]{1,0} parameter(0)"]
    last = "p"
    for i in range(count - 1):
        line = STEPS[i % len(STEPS)].format(i=i, last=last)
        lines.append("  " + line)
        last = line[1 : line.index(" ")]
    return "\n".join([*lines, "}", ""])


def constant(element: str, values: np.ndarray) -> str:
    text = ", ".join(map(str, values.tolist()))
    return f"HloModule m\nENTRY e {{ ROOT c = {element}[{values.size}] constant({{{text}}}) }}"


def measure(name: str, text: str) -> None:
    started = process_time()
    module = parse_hlo(text)
    parsed = process_time()
    print_hlo(module)
    printed = process_time()
    count = sum(len(c.instructions) for c in module.computations)
    parse, show = parsed - started, printed - parsed
    print(f"{name}: {count} instructions, {len(text) / 1e6:.1f} MB; parse {parse:.2f} s, print {show:.2f} s")


def main() -> None:
    rng = np.random.default_rng(0)
    measure("a chain", chain(INSTRUCTIONS - INSTRUCTIONS % 4 + 1))
    measure("ResNet-50, optimized", (CORPUS / "resnet50_infer_224.opt.hlo").read_text())
    measure("a million f32", constant("f32", rng.standard_normal(1_000_000).astype(np.float32)))
    measure("a million s32", constant("s32", rng.integers(-1000, 1000, 1_000_000)))


if __name__ == "__main__":
    main()
