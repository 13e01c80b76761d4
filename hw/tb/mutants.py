"""Planted errors: does the bench notice?

`plant` copies the RTL with every error in it, each behind the plusarg `+mutant=<number>`, so that one build serves all.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hw.tb.build import HW


@dataclass(frozen=True)
class Mutant:
    """An expression of a module, and what is put in its place."""

    name: str
    file: str
    good: str
    bad: str


MUTANTS = (
    Mutant("product_bit", "fma_bf16", "{normal, 8'b0}", "{normal[15:1], 9'b0}"),
    Mutant("ties_up", "f32_sum", "(top[Width-24] || top[Width-26:0] != '0)", "1'b1"),
    Mutant("no_sticky", "f32_sum", "|(c_mant & ~(24'hFF_FFFF << right[4:0]))", "1'b0"),
    Mutant("flush_subnormals", "f32_sum", "top[Width-2-:23]", "(top[Width-1] ? top[Width-2-:23] : 23'b0)"),
    Mutant("infinities_cancel", "f32_sum", "inf_i && c_inf && subtract", "1'b0"),
    Mutant("rounding_of_parts", "bf16_part", "round_bf16(rest1)", "rest1[31:16]"),
    Mutant("unsigned_integers", "mxu_pe", "$signed(x_i[8:0])", "$signed({1'b0, x_i[7:0]})"),
    Mutant("old_columns_stay", "mxu_pe", "(down_i.valid && down_i.clear)", "1'b0"),
    Mutant("old_rows_stay", "mxu_pe", "(right_i.valid && right_i.clear)", "1'b0"),
    Mutant("latch_lost", "row_reader", "start_i && command_i.op == OpLatch", "1'b0"),
    Mutant("no_forwarding", "acc_column", "forward_q ? written_q : read_q", "read_q"),
    Mutant("upper_bound", "mxu_pkg", "$signed(point.quotient[j]) < $signed(bounds.hi[j])", "1'b1"),
    Mutant("divisibility", "mxu_pkg", "point.remainder[j] == '0", "1'b1"),
    Mutant("bias", "walk_prepare", "pattern_i.use_bias[j][1]", "1'b0"),
    Mutant("broadcast_slow", "walk_prepare", "even && stride == '0", "1'b0"),
    Mutant("retire_late", "work_queue", "32'(Tail - 1)", "32'(Tail)"),
    Mutant("retire_out_of_order", "work_queue", "(alone || horizon == '0) ? 32'd1 : horizon", "32'd1"),
    Mutant("latch_in_order", "work_queue", "head.command.op == OpLatch", "1'b0"),
    Mutant("no_fence", "work_queue", "(!head.fence || (drained && !busy_i))", "1'b1"),
    Mutant("slot_late", "work_queue", "count_q < DepthBits'(Depth) || start_o", "count_q < DepthBits'(Depth)"),
    Mutant("start_early", "work_queue", "(!busy_i || last_i)", "1'b1"),
    Mutant("token_late", "token_counters", "sum[waits_i[q][w]] == '0", "count_q[waits_i[q][w]] == '0"),
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

# A conditional expression changes the width in which its parts are evaluated.
_WAIVERS = """`verilator_config
lint_off -rule WIDTHEXPAND -file "*/rtl/*"
lint_off -rule WIDTHTRUNC -file "*/rtl/*"
"""


def plant(folder: Path) -> Path:
    """Copy hw/gen, hw/rtl and hw/tb there, every mutant in place; mutant n of `MUTANTS` is number n + 1.

    Raises:
        ValueError: a mutant's expression is not, or more than once, in its file.
    """
    for part in ("gen", "rtl", "tb"):
        shutil.copytree(HW / part, folder / part, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for number, mutant in enumerate(MUTANTS, 1):
        path = folder / "rtl" / f"{mutant.file}.sv"
        text = path.read_text()
        if text.count(mutant.good) != 1:
            raise ValueError(f"{mutant.name}: {text.count(mutant.good)} times {mutant.good!r} in {path.name}")
        path.write_text(text.replace(mutant.good, f"((mutant_pkg::number == {number}) ? {mutant.bad} : {mutant.good})"))
    (folder / "rtl" / "mutant_pkg.sv").write_text(_PACKAGE)
    (folder / "rtl" / "mutants.vlt").write_text(_WAIVERS)
    return folder
