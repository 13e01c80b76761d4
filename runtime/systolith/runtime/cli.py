"""The command line.

A command returns its exit code, or nothing if all is good; `exits.py` has the codes, also of errors.  Imports
inside the commands keep the start quick.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from systolith.isa.collection import collection_paused
from systolith.runtime.commands.chip_options import chip_options, chosen, named_file
from systolith.runtime.commands.chips import chips
from systolith.runtime.commands.console import emit, log_to_stderr, output_console, progress, tell
from systolith.runtime.commands.exits import FAILED, GOOD, exit_code
from systolith.runtime.commands.explain import autotuning, explain, tell_unmet
from systolith.runtime.commands.hlo import cost, opt
from systolith.runtime.commands.man_page import man
from systolith.runtime.commands.ops import ops
from systolith.runtime.commands.options import FILE
from systolith.runtime.commands.refusals import listing_refusals
from systolith.runtime.commands.report import report, schema
from systolith.runtime.commands.serve import serve
from systolith.runtime.imports.command import import_command
from systolith.runtime.sweep.command import sweep

F = TypeVar("F", bound=Callable[..., Any])
ELIDED_HELP = "What constants are whose values the text leaves out ('{...}'); without it only `--mode time` takes them."
INFEED_HELP = (
    "Arrays that infeeds take, in order: npz of infeed0, infeed1, ..., the parts of a tuple one after the other; of"
    " modules with several infeed_configs CONFIG/infeed0, ...; `cycles`: when each arrives."
)
HOST_TIMES = click.option(
    "--host-times",
    type=FILE,
    help="When the host sends and takes bytes: JSON of (cycle, bytes) pairs by direction and config,"
    ' {"infeed": {"": [[0, 4096], [9000, 4096]]}, "outfeed": {"": [[5000, 1024]]}}.',
)


MAX_CYCLES = click.option(
    "--max-cycles",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give up a run that takes more cycles, and say in which HLO loop it is.  [default: no limit]",
)


def runs_on(default: str) -> Callable[[F], F]:
    """The chip of commands that run FILE: without `--chip` a binary or assembly runs on its own."""
    return chip_options(note=f"that of a binary or assembly; a module: {default}")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="systolith", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Log stages on standard error; -vv: passes of the compiler, too.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and of the log only errors.")
def cli(verbose: int, quiet: bool) -> None:
    """Compile XLA HLO for a TPU-style systolic chip, simulate it to the bit and the cycle, and explain the cycles."""
    click.get_current_context().with_resource(log_to_stderr(verbose, quiet))


@cli.command()
@click.argument("file", type=FILE)
@runs_on("tpu_v3")
@click.option("--args", type=FILE, help="Arguments: npz of arg0, arg1, ... (bf16 and fp8 as unsigned bits).")
@click.option("--random", type=click.IntRange(min=0), metavar="SEED", help="Random arguments from this seed instead.")
@click.option("--check", is_flag=True, help="Compare every fusion group with the reference evaluator.")
@click.option("--expect", type=FILE, help="Compare results with out0, out1, ... of this npz.")
@click.option("--out", type=FILE, help="Write results to this npz as out0, out1, ...")
@click.option("--infeed", type=FILE, help=INFEED_HELP)
@click.option("--outfeed", type=FILE, help="Write what the run puts out to this npz as outfeed0, outfeed1, ...")
@HOST_TIMES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@click.option(
    "--trace",
    type=FILE,
    help="Write a trace for Perfetto: its protobuf (.perfetto-trace, .pftrace), else Chrome's JSON.",
)
@click.option("--report", type=FILE, help="Write a self-contained HTML report.")
@click.option("--energy", type=FILE, help="Energies of actions (CSV, or YAML as Accelergy writes it) for the chip's.")
@click.option(
    "--mode",
    type=click.Choice(["full", "time", "values"]),
    default="full",
    show_default=True,
    help="full: values and cycles; time: cycles without data; values: no cycles.",
)
@click.option("--record-decisions", type=FILE, help="Write what control depended on, for --decisions.")
@click.option("--decisions", type=FILE, help="With --mode time: follow what an earlier run recorded.")
@MAX_CYCLES
@click.option("--hostile", is_flag=True, help="Memory starts as NaN, races are reported.")
@click.option(
    "--precision",
    type=click.Choice(["default", "high", "highest"]),
    help="Overrides the precision that the module's dots and convolutions ask for (f32: 1, 3, 6 bf16 passes); a dot's"
    " algorithm stays.",
)
@click.option("--elided", type=click.Choice(["zeros"]), help=ELIDED_HELP)
@click.option(
    "--what-if",
    multiple=True,
    metavar="NAME|FIELD=VALUE",
    help="Simulate the same program again under other times, such as hbm-bandwidth (unlimited), hbm-latency, weights,"
    " issue, all, or fields: hbm.gbps=900,hbm.latency=200; repeatable.",
)
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Groups in the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No summary, only what is wrong.")
@autotuning
@listing_refusals
@collection_paused()
def run(
    file: Path,
    trace: Path | None,
    report: Path | None,
    as_json: bool,
    what_if: tuple[str, ...],
    top: int,
    quiet: bool,
    **options: Any,
) -> int:
    """Run FILE on the simulated chip and check it: HLO, StableHLO, a binary (.slb) or assembly (.s)."""
    from systolith.isa.files import json_text
    from systolith.runtime.jobs.job import Request
    from systolith.runtime.jobs.job import run as run_job
    from systolith.runtime.jobs.what_if import suppositions

    request = Request(path=file, trace=trace, report=report, what_if=suppositions(what_if), **options)
    with progress(quiet=as_json or quiet) as stage:
        outcome = run_job(request, stage)
        record = outcome.record() if report or as_json or not quiet else {}
        if trace:
            from systolith.runtime.records.perfetto import write_any_trace

            stage("writing the trace")
            write_any_trace(outcome.result, trace, outcome.memory)
        if report:
            from systolith.reports.html import write_report

            stage("writing the report")
            write_report(record, report)
    if outcome.note:
        tell(outcome.note)
    tell_unmet(outcome.explain)
    if as_json:
        emit(json_text(record))
    elif not quiet:
        _print_summary(record, top, [path for path in request.outputs.values() if path])
    for line in outcome.failures[:20]:
        tell(f"check failed: {line}")
    return FAILED if outcome.failures else GOOD


def _print_summary(record: dict[str, Any], top: int, written: Sequence[Path]) -> None:
    from systolith.reports.terminal import render_summary

    console = output_console()
    for item in render_summary(record, top):
        console.print(item)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


@cli.command("compile")
@click.argument("file", type=FILE)
@chip_options("tpu_v3")
@click.option("-o", "--output", type=FILE, required=True, help="The binary to write (.slb).")
@click.option("--dump-dir", type=FILE, help="Write every stage of the compilation into this folder.")
@click.option(
    "--from",
    "stage",
    type=click.Choice(["hlo", "canonical", "grouped", "tile", "assembly"]),
    default="hlo",
    show_default=True,
    help="Go on from FILE as that stage of an earlier compilation: a file of its --dump-dir.",
)
@click.option("--precision", type=click.Choice(["default", "high", "highest"]), help="As for `run`.")
@click.option("--elided", type=click.Choice(["zeros"]), help=ELIDED_HELP)
@autotuning
@listing_refusals
def compile_command(
    file: Path,
    chip: str,
    changes: Mapping[str, str],
    output: Path,
    dump_dir: Path | None,
    stage: str,
    **options: Any,
) -> None:
    """Compile FILE to a self-contained binary."""
    from systolith.compiler.options import Options
    from systolith.compiler.plan import read_plan
    from systolith.isa.binary import to_bytes
    from systolith.isa.chip import load_chip
    from systolith.isa.files import make_folder, require_apart, write_all
    from systolith.runtime.inputs.stages import LOWERED, compile_from
    from systolith.runtime.tuning import with_tuner

    inputs = {"FILE": file, "--autotune-cache": options["autotune_cache"], "--plan": options["plan"]}
    inputs |= named_file(chip)
    require_apart({"-o": output}, inputs)
    with progress() as doing:
        doing("compiling")
        target = load_chip(chip, changes)
        options["plan"] = read_plan(options["plan"]) if options["plan"] else None
        compiled, note = compile_from(stage, file, target, with_tuner(Options(**options), target, doing))
        program = compiled.program
        binary = to_bytes(program)
        stages = compiled.dumps(dump_dir) if dump_dir else {}
        if dump_dir:
            make_folder(dump_dir)
        require_apart({"-o": output} | {f"--dump-dir's {path.name}": path for path in stages}, inputs)
        write_all({**stages, output: lambda handle: handle.write(binary)})
    if note:
        tell(note)
    tell_unmet(compiled.explain)
    for decision in compiled.explain if stage in LOWERED else ():  # `explain` is for modules
        tell(decision.lines()[0])
    tell(
        f"{output}: {len(program.code)} instructions, {len(program.patterns)} patterns, "
        f"{len(program.kernels)} kernels\n{compiled.memory}"
    )


@cli.command()
@click.argument("file", type=FILE)
def disasm(file: Path) -> None:
    """Print the assembly of a binary."""
    from systolith.isa.asm import disassemble
    from systolith.isa.binary import load

    emit(disassemble(load(file)), newline=False)


@cli.command()
@click.argument("file", type=FILE)
@chip_options(note="the preset that `.chip` names, else tiny")
@click.option("-o", "--output", type=FILE, required=True, help="The binary to write (.slb).")
def asm(file: Path, chip: str | None, changes: Mapping[str, str], output: Path) -> None:
    """Assemble FILE to a binary."""
    from systolith.isa.binary import save
    from systolith.isa.files import require_apart
    from systolith.runtime.inputs.sources import read_assembly

    require_apart({"-o": output}, {"FILE": file} | named_file(chip))
    save(read_assembly(file, chosen(chip, changes)), output)


@cli.command()
@click.argument("file", type=FILE)
@runs_on("tiny")
@click.option("--args", type=FILE, help="Arguments, as for `run`.")
@click.option("--random", type=click.IntRange(min=0), metavar="SEED", help="Random arguments from this seed instead.")
@click.option("--infeed", type=FILE, help="What infeeds take, as for `run`.")
@HOST_TIMES
@click.option("--precision", type=click.Choice(["default", "high", "highest"]), help="As for `run`.")
@MAX_CYCLES
@click.option(
    "--wave", type=FILE, help="Write waves of the RTL around the first difference, or of the whole run (.fst or .vcd)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@listing_refusals
def lockstep(file: Path, wave: Path | None, as_json: bool, **options: Any) -> int:
    """Run FILE (as `run` takes it) in the simulator and on the RTL, and compare every bit and cycle."""
    from systolith.isa.files import json_text
    from systolith.runtime.jobs.job import Request
    from systolith.runtime.jobs.lockstep import lockstep as run_lockstep
    from systolith.runtime.jobs.lockstep import record

    request = Request(path=file, default_chip="tiny", **options)
    with progress(quiet=as_json) as stage:
        result = run_lockstep(request, wave, stage)
    if as_json:
        emit(json_text(record(result, request)))
    else:
        emit(
            f"{result.name} on {result.chip.name}: {result.cycles} cycles, {result.instructions} instructions "
            f"({result.timed} with times), {result.words} words of memory: {'no' if result.ok else 'a'} difference; "
            f"RTL: {result.cycles_per_second:,.0f} cycles/s"
        )
    if result.difference:
        tell(str(result.difference))
    return GOOD if result.ok else FAILED


for command in (opt, ops, cost, man, explain, chips, report, schema, serve, sweep, import_command):
    cli.add_command(command)


def main() -> None:
    """Entry point of the command."""
    # Threads of numpy's OpenBLAS, which has one for each processor, are to sleep at once (2^4 ticks) where there is
    # nothing to multiply; by default each spins for some hundredths of a second at every start.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    # What is left at the end is the system's to free; Python would look through it all for cycles, several times.
    atexit.register(gc.freeze)
    sys.exit(exit_code(partial(cli.main, standalone_mode=False)))
