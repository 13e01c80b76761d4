"""A module and Yosys: elaboration, checks, gates, and results of earlier runs.

A module is synthesized by itself, with black boxes for those in it.  Its result is kept under build/synth until a
source that it depends on changes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from systolith.hw.packages import packages
from systolith.isa.cache import cache_home

HW = Path(__file__).resolve().parent
CACHE = cache_home() / "synth"

Parameters = tuple[tuple[str, int], ...]
Netlist = dict[str, Any]


class SynthesisError(Exception):
    """Yosys refuses a module, or is not there."""


@dataclass(frozen=True)
class Source:
    """Where the RTL is: packages in the order of their use, and modules."""

    packages: tuple[Path, ...]
    modules: Mapping[str, Path]

    @classmethod
    def of(cls, files: Sequence[Path]) -> Source:
        first = packages(list(files))
        return cls(tuple(first), {path.stem: path for path in files if path not in first})

    def text(self, module: str) -> str:
        return self.modules[module].read_text()

    def children(self, module: str) -> set[str]:
        """Modules that are named in one."""
        return set(re.findall(r"\w+", self.text(module))) & set(self.modules) - {module}

    def digest(self, *modules: str) -> str:
        """Of the sources that modules depend on: their own, their children's, every package that these use."""
        files = {self.modules[m] for module in modules for m in (module, *self.children(module))}
        of_packages = {path.stem: path for path in self.packages}
        todo = list(files)
        while todo:
            used = re.findall(r"\b\w+_pkg\b", todo.pop().read_text())
            new = {of_packages[name] for name in used if name in of_packages} - files
            files |= new
            todo += new
        digest = hashlib.sha256()
        for path in sorted(files | set((HW / "rtl").glob("*.svh"))):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()


def rtl() -> Source:
    """The sources of the core."""
    return Source.of([*sorted((HW / "gen").glob("*.sv")), *sorted((HW / "rtl").glob("*.sv"))])


# Memories are black boxes.  Their bits, from their parameters and the widths of their ports.
MEMORIES: dict[str, Callable[[Mapping[str, int], Mapping[str, int]], int]] = {
    "imem": lambda p, _: 32 * p["Words"],
    "memory": lambda p, _: 8 * p["Bytes"],
    "acc_mem": lambda p, _: 32 * p["Words"],
    "pattern_table": lambda p, width: p["Entries"] * width["pattern_o"] // p["Ports"],
    "buffer_table": lambda p, width: p["Entries"] * width["base_o"] // p["Ports"],
    "vpu_kernels": lambda p, width: p["Kernels"] * width["kernel_o"],
    "vpu_control": lambda p, width: p["Rows"] * width["row_o"],
    "vpu_constants": lambda p, _: 32 * p["Constants"],
    "host_queues": lambda p, _: 16 * p["Queues"] * p["Bytes"],
}

# Cells of latches, and of flip-flops that are none.
FORBIDDEN = ("dlatch", "adlatch", "dlatchsr", "sr")

# A caller need not drive bits that a function leaves unused: those are cleaned first.
CHECKS = ["opt_clean", f"select -assert-none {' '.join(f't:${cell}' for cell in FORBIDDEN)}", "check -assert"]

# To simple gates; a register's enable is multiplexers in front of its flip-flops.
MAPPING = [
    *("memory_collect", "memory_map", "opt_expr", "opt_clean", "opt_merge", "opt_dff -nodffe -nosdff"),
    *("opt_expr", "opt_clean"),
    *("wreduce", "opt_clean", "techmap", "abc -g AND,OR,XOR,MUX -script +strash;&get,-n;&nf;&put", "opt_clean"),
]
GATES = {"$_AND_": "and", "$_OR_": "or", "$_XOR_": "xor", "$_MUX_": "mux", "$_NOT_": "not"}
FLIP_FLOP = re.compile(r"\$_(A?|S?|AL)?DFFE?(SR)?E?_\w*")


@cache
def yosys_version() -> str:
    """Of Yosys from PyPI.

    Raises:
        SynthesisError: it is not installed.
    """
    try:
        return importlib.metadata.version("pyosys")
    except importlib.metadata.PackageNotFoundError:
        raise SynthesisError("Yosys is not installed: pip install 'systolith[synth]'") from None


def has_yosys() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("pyosys") is not None


def yosys(what: str, commands: Sequence[str]) -> None:
    """Run commands in a process of their own: Yosys ends its process when it finds an error.

    Raises:
        SynthesisError: it found one.
    """
    yosys_version()
    deep = 'ulimit -s unlimited && exec "$@"'  # it follows long chains of cells by recursion
    program = "import sys; from pyosys import libyosys as y; d = y.Design()\nfor c in sys.argv[1:]: y.run_pass(c, d)"
    command = ["sh", "-c", deep, "sh", sys.executable, "-c", program, *commands]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        telling = [line for line in lines if re.search(r"Warning|ERROR|error:", line)]
        raise SynthesisError("\n    ".join([f"{what}:", *(telling[-12:] or lines[-12:])]))


def reading(source: Source, top: str, parameters: Parameters, boxes: set[str]) -> str:
    """The command that elaborates a module, with black boxes in it."""
    files = [str(path) for path in (*source.packages, *source.modules.values())]
    given = [f"-G {name}={_typed(source, top, name, value)}" for name, value in parameters]
    return " ".join(
        ["read_slang -j 1 --keep-hierarchy --ignore-assertions", f"--top {top}", *given]
        + [f"--blackboxed-module {box}" for box in sorted(boxes)]
        + [f"-I {HW / 'rtl'}", *files]
    )


def _declared(source: Source, module: str) -> dict[str, str]:
    """The parameters of a module, and their types."""
    header = source.text(module).split(");")[0]
    return {name: kind for kind, name in re.findall(r"^ *parameter +(.+?) +(\w+) *=", header, re.MULTILINE)}


def _typed(source: Source, module: str, name: str, value: int) -> str:
    kind = _declared(source, module)[name]
    if kind.endswith("_e"):
        return f"systolith_pkg::{kind}'({value})"
    return f"64'd{value}" if "longint" in kind else str(value)


@dataclass(frozen=True)
class Child:
    """A module in another one, `count` times."""

    module: str
    parameters: Parameters
    count: int
    bits: int  # of a memory


@dataclass(frozen=True)
class Unit:
    """The result of a module with its parameters, without the modules in it."""

    module: str
    parameters: Parameters
    gates: dict[str, int]
    flip_flops: int
    children: tuple[Child, ...]
    estimated: bool  # its gates are extrapolated
    seconds: float

    @classmethod
    def load(cls, path: Path) -> Unit:
        found = json.loads(path.read_text())
        found["parameters"] = _parameters(found["parameters"])
        found["children"] = tuple(
            Child(**(child | {"parameters": _parameters(child["parameters"])})) for child in found["children"]
        )
        return cls(**found)


def _parameters(pairs: Sequence[Sequence[Any]]) -> Parameters:
    return tuple((name, value) for name, value in pairs)


@dataclass(frozen=True)
class Chain:
    """A module that is too large to map, and is equal stages, behind or beside each other: its gates are extrapolated.

    Attributes:
        stages: the parameter that says how many.
        low, high: numbers of stages that are mapped instead.
        instead: a parameter that grows by so much for each stage that lacks, so that all stages are as wide.
    """

    stages: str
    low: int
    high: int
    instead: tuple[str, int] | None = None

    def parameters(self, given: Parameters, stages: int) -> Parameters:
        """With fewer stages."""
        values = dict(given)
        if self.instead:
            name, by = self.instead
            values[name] += by * (values[self.stages] - stages)
        values[self.stages] = stages
        return tuple(values.items())

    def at(self, stages: int, low: int, high: int) -> int:
        """Extrapolate a number, given as `low` and `high` for the numbers of stages that are mapped, to `stages`."""
        return high + (high - low) * (stages - self.high) // (self.high - self.low)


CHAINS = {
    "walker": Chain("E", 2, 4),
    "vpu_coordinate": Chain("Lanes", 1, 2),
    "vpu_streams": Chain("Ports", 1, 2),
    "token_counters": Chain("Slots", 2, 4, ("Max", 4)),
}


def synthesize(source: Source, module: str, parameters: Parameters = ()) -> Unit:
    """Check a module and map it to gates, or take the result of an earlier run.

    Raises:
        SynthesisError: there is a latch, a loop, a bit with no or several drivers, or the sources are faulty.
    """
    recipe = [module, parameters, CHECKS, MAPPING, str(CHAINS.get(module)), yosys_version(), source.digest(module)]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
    path = CACHE / "modules" / f"{module}-{key}.json"
    if not path.exists():
        unit = _synthesize(source, module, parameters)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(asdict(unit), file)
        Path(file.name).rename(path)
    return Unit.load(path)


def _synthesize(source: Source, module: str, parameters: Parameters) -> Unit:
    start = time.monotonic()
    chain = CHAINS.get(module)
    estimated = chain is not None and dict(parameters)[chain.stages] > chain.high
    inner = source.children(module)
    with tempfile.TemporaryDirectory() as name:
        netlist, cells = Path(name) / "netlist.json", Path(name) / "cells.json"
        # Modules in it, and the cells that slang puts where a variable has no driver.
        kept = " ".join(f"t:{cell}" for cell in ["$buf", *sorted(inner)])
        commands = [reading(source, module, parameters, set(source.modules) - {module}), "proc"]
        commands += [f"select {kept}", f"write_json -selected {netlist}", "select -clear", *CHECKS]
        if not estimated:
            commands += [*MAPPING, f"tee -q -o {cells} stat -json"]
        yosys(module, commands)
        found = json.loads(netlist.read_text())["modules"].get(module, {"cells": {}})["cells"].values()
        _refuse_undriven(module, found)
        children = _children(source, module, found)
        if chain and estimated:
            gates, flip_flops = _extrapolate(source, module, parameters, chain)
        else:
            mapped = json.loads(cells.read_text())["modules"][f"\\{module}"]["num_cells_by_type"]
            gates, flip_flops = _count(module, mapped, inner)
    return Unit(module, parameters, gates, flip_flops, children, estimated, round(time.monotonic() - start, 1))


def _extrapolate(source: Source, module: str, parameters: Parameters, chain: Chain) -> tuple[dict[str, int], int]:
    stages = dict(parameters)[chain.stages]
    low, high = (synthesize(source, module, chain.parameters(parameters, n)) for n in (chain.low, chain.high))
    gates = {gate: chain.at(stages, low.gates.get(gate, 0), count) for gate, count in high.gates.items()}
    return gates, chain.at(stages, low.flip_flops, high.flip_flops)


def _refuse_undriven(module: str, cells: Iterable[Netlist]) -> None:
    bits = sum(cell["connections"]["A"].count("x") for cell in cells if cell["type"] == "$buf")
    if bits:
        raise SynthesisError(f"{module}: {bits} bits have no driver")


def _count(module: str, cells: Mapping[str, int], inner: set[str]) -> tuple[dict[str, int], int]:
    """Gates and flip-flops of a mapped netlist, in which other modules are black boxes."""
    gates, flip_flops = Counter[str](), 0
    for cell, count in cells.items():
        if cell in GATES:
            gates[GATES[cell]] += count
        elif FLIP_FLOP.fullmatch(cell):
            flip_flops += count
        elif cell not in inner and cell != "$scopeinfo":
            raise SynthesisError(f"{module}: {count} cells {cell} are not mapped to gates")
    return dict(gates), flip_flops


def _children(source: Source, module: str, cells: Iterable[Netlist]) -> tuple[Child, ...]:
    counts = Counter[tuple[str, Parameters, int]]()
    for cell in cells:
        inner = cell["type"]
        if inner in source.modules:
            values = {name: int(value, 2) for name, value in cell["parameters"].items()}
            given = {name: values[name] for name in _declared(source, inner)}
            widths = {port: len(bits) for port, bits in cell["connections"].items()}
            bits = MEMORIES[inner](given, widths) if inner in MEMORIES else 0
            counts[inner, tuple(given.items()), bits] += 1
    return tuple(Child(name, given, count, bits) for (name, given, bits), count in counts.items())


def stand_in(text: str) -> str:
    """A module with the same ports as a module without state; every output depends on every input."""
    header = text.split(");")[0] + ");\n"
    inputs = ", ".join(re.findall(r"^ *input .*?(\w+),? *(?://.*)?$", header, re.MULTILINE))
    outputs = re.findall(r"^ *output .*?(\w+),? *(?://.*)?$", header, re.MULTILINE)
    return (
        header
        + "".join(f"assign {output} = {{$bits({output}){{^{{{inputs}}}}}}};\n" for output in outputs)
        + "endmodule\n"
    )


def check_whole(source: Source, top: str, parameters: Parameters, opaque: Sequence[str] = ()) -> None:
    """Look for loops, and bits with several drivers, through all modules; `opaque` ones have stand-ins.

    Raises:
        SynthesisError: there are some.
    """
    recipe = [top, parameters, opaque, CHECKS, yosys_version(), source.digest(*source.modules)]
    stamp = CACHE / f"{top}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]}.whole"
    if stamp.exists():
        return
    with tempfile.TemporaryDirectory() as name:
        modules = dict(source.modules)
        for module in opaque:
            modules[module] = Path(name) / f"{module}.sv"
            modules[module].write_text(stand_in(source.text(module)))
        whole = Source(source.packages, modules)
        yosys(f"{top}, flat", [reading(whole, top, parameters, set()), "proc", "flatten", "opt_clean", *CHECKS])
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
