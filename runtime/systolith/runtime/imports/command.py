"""`systolith import`: models of other tools, as HLO."""

from __future__ import annotations

from pathlib import Path

import click

from systolith.runtime.commands.console import tell
from systolith.runtime.commands.exits import GOOD
from systolith.runtime.commands.options import FILE


@click.command("import")
@click.argument("file", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Write the module there, as HLO text.")
@click.option("--scale-sim", type=FILE, metavar="CFG", help="A configuration of SCALE-Sim, for --chip-file.")
@click.option("--chip-file", type=FILE, help="Write the chip of --scale-sim there (.toml), for `run --chip`.")
@click.option("--dtype", "element", default="bf16", show_default=True, help="Element type of a topology.")
@click.option("--dataflow", type=click.Choice(["ws"]), help="Take any dataflow of --scale-sim as weight-stationary.")
@click.option("--args", "arguments", type=FILE, help="Write arguments of an ONNX model: its weights, random inputs.")
@click.option("--random", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a symbolic dimension of an ONNX model.")
def import_command(
    file: Path,
    output: Path,
    scale_sim: Path | None,
    chip_file: Path | None,
    element: str,
    dataflow: str | None,
    arguments: Path | None,
    random: int,
    dims: tuple[str, ...],
) -> int:
    """Make HLO of FILE: a SCALE-Sim topology (.csv), or an ONNX model (.onnx)."""
    from systolith.compiler.hlo.text.printer import print_hlo
    from systolith.isa.chip import to_toml
    from systolith.isa.dtypes import ELEMENT_TYPES
    from systolith.isa.errors import SystolithError
    from systolith.isa.files import Fill, require_apart, text_fill, write_all
    from systolith.runtime.imports.scale_sim import read_configuration, read_topology

    outputs = {"-o": output, "--chip-file": chip_file, "--args": arguments}
    require_apart(outputs, {"FILE": file, "--scale-sim": scale_sim})
    if bool(scale_sim) != bool(chip_file):
        raise SystolithError("--scale-sim and --chip-file: give both: the configuration, and the chip to write")
    fills: dict[Path, Fill] = {}
    if file.suffix == ".onnx":
        from systolith.runtime.imports.onnx.model import read_onnx

        if scale_sim:
            raise SystolithError("--scale-sim is for topologies (.csv), not for ONNX models")
        model = read_onnx(file, dims)
        module = model.module
        if arguments:
            fills[arguments] = model.arguments(random)
    elif file.suffix == ".csv":
        if arguments or dims:
            raise SystolithError("--args and --dim are for ONNX models: a topology has no values")
        if element not in ELEMENT_TYPES:
            raise SystolithError(f"--dtype {element}: no such element type")
        module = read_topology(file, element)
    else:
        raise SystolithError(f"{file}: must be a SCALE-Sim topology (.csv) or an ONNX model (.onnx)")
    fills[output] = text_fill(print_hlo(module))
    if scale_sim and chip_file:
        fills[chip_file] = text_fill(to_toml(read_configuration(scale_sim, element, dataflow)))
    write_all(fills)
    tell("wrote " + ", ".join(str(path) for path in fills))
    return GOOD
