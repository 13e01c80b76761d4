"""Planted errors: does the bench notice?

`plant` copies the RTL with every error in it, each behind the plusarg `+mutant=<number>`, so that one build serves all.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from systolith.hw.tb.build import HW


@dataclass(frozen=True)
class Mutant:
    """An expression of a module, and its replacement."""

    name: str
    file: str
    good: str
    bad: str


MUTANTS = (
    Mutant("product_bit", "bf16_pkg", "{product, 8'b0}", "{product[15:1], 9'b0}"),
    Mutant(
        "no_sticky",
        "bf16_pkg",
        "f32_pkg::shift_right({smaller.sig, 3'b0}, larger.exp - smaller.exp)",
        "({smaller.sig, 3'b0} >> (larger.exp - smaller.exp))",
    ),
    Mutant(
        "flush_subnormals",
        "bf16_pkg",
        "f32_pkg::normalised({a, 16'b0})",
        "f32_pkg::normalised({a & {16{|a[14:7]}}, 16'b0})",
    ),
    Mutant("infinities_cancel", "bf16_pkg", "f32_pkg::is_inf(c) && c != product", "1'b0"),
    Mutant("third_part", "bf16_pkg", "number >= 2'd2", "1'b0"),
    Mutant("unsigned_integers", "mxu_mac", "$signed(x_i[8:0])", "$signed({1'b0, x_i[7:0]})"),
    Mutant("old_columns_stay", "mxu_array", "down_number_q[r+c] == '0", "1'b0"),
    Mutant("old_rows_stay", "mxu_array", "right_number_q[r+c] == '0", "1'b0"),
    Mutant("latch_lost", "row_reader", "start_i && command.opcode == systolith_pkg::OpMxuLatch", "1'b0"),
    Mutant("row_number", "addr_gen", "row_q + 32'(row_last_o)", "row_q"),
    Mutant("no_forwarding", "mxu_acc", "write[c] && write_address[c] == read_address[c]", "1'b0"),
    Mutant("upper_bound", "walk_pkg", "$signed(point.quotient[j]) < $signed(bounds.hi[j])", "1'b1"),
    Mutant("divisibility", "walk_pkg", "point.remainder[j] == '0", "1'b1"),
    Mutant("bias", "walk_pkg", "pattern.use_bias[j][1]", "1'b0"),
    Mutant("uneven_segments", "mxu_pkg", "pattern.steps[Inner].remainder[j] == '0", "1'b1"),
    Mutant("broadcast_slow", "mxu_pkg", "even && pattern.steps[Inner].address == '0", "1'b0"),
    Mutant("retire_late", "unit_queue", "TimeBits'(tail_i)", "TimeBits'(tail_i + 1)"),
    Mutant("latch_in_order", "unit_queue", "head_o.alone || horizon == '0", "horizon == '0"),
    Mutant("no_fence", "unit_queue", "(!head_o.fence || drained)", "1'b1"),
    Mutant("slot_late", "unit_queue", "count_q < DepthBits'(Depth) || start_o", "count_q < DepthBits'(Depth)"),
    Mutant("start_early", "unit_queue", "(!is_busy || done_i)", "1'b1"),
    Mutant("token_late", "token_counters", "sum[waits_i[q][k]] == '0", "count_q[waits_i[q][k]] == '0"),
)

_PACKAGE = """package mutant_pkg;
  function automatic int unsigned asked_for();
    int unsigned number;
    if ($value$plusargs("mutant=%d", number) == 0) number = 0;
    return number;
  endfunction

  int unsigned number = asked_for();
endpackage
"""

# A conditional expression changes the width in which its parts are evaluated; the number never changes, so functions
# that are not inlined may read it.
_WAIVERS = """`verilator_config
lint_off -rule IMPURE -file "*/rtl/*"
lint_off -rule WIDTHEXPAND -file "*/rtl/*"
lint_off -rule WIDTHTRUNC -file "*/rtl/*"
"""


def plant(folder: Path, mutants: Sequence[Mutant] = MUTANTS) -> Path:
    """Copy hw/gen, hw/rtl and hw/tb there, every mutant in place; mutant n of `mutants` is number n + 1.

    Raises:
        ValueError: a mutant's expression is not, or more than once, in its file.
    """
    for part in ("gen", "rtl", "tb"):
        shutil.copytree(HW / part, folder / part, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for number, mutant in enumerate(mutants, 1):
        path = folder / "rtl" / f"{mutant.file}.sv"
        text = path.read_text()
        if text.count(mutant.good) != 1:
            raise ValueError(f"{mutant.name}: {text.count(mutant.good)} times {mutant.good!r} in {path.name}")
        path.write_text(text.replace(mutant.good, f"((mutant_pkg::number == {number}) ? {mutant.bad} : {mutant.good})"))
    (folder / "rtl" / "mutant_pkg.sv").write_text(_PACKAGE)
    (folder / "rtl" / "mutants.vlt").write_text(_WAIVERS)
    return folder
