"""Synthesis of the core with Yosys: latches and loops are refused, gates are counted.

    python -m systolith.hw.synth [CHIP]     # tiny, unless another chip is named; `make synth` installs Yosys first

Each module is synthesized once for each set of parameters, by itself: the modules in it are black boxes, found in its
netlist, and synthesized next.  Latches, bits with several drivers or none, and combinational loops are errors.  Loops
that go through several modules are looked for in a flat netlist of the core with small parameters.  The result of a
module is kept under build/synth until a source that it depends on changes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from systolith.hw.model import core_parameters
from systolith.hw.yosys import (
    CACHE,
    GATES,
    MEMORIES,
    Parameters,
    Source,
    SynthesisError,
    Unit,
    check_whole,
    rtl,
    synthesize,
    yosys_version,
)
from systolith.isa.chip import load_chip

JOBS = 2

# The core in small, for checks of the whole.
SMALL = {
    "Rows": 2,
    "Cols": 2,
    "AccRows": 2,
    "Segments": 2,
    "SegmentBytes": 4,
    "Lanes": 2,
    "Sublanes": 2,
    "FifoDepth": 2,
    "Links": 1,
    "HostQueues": 1,
    "HbmBytes": 64,
    "HbmModelBytes": 64,
    "HbmChunk": 4,
    "HbmGranule": 4,
    "HbmLatency": 1,
    "DmaLocalLatency": 1,
    "VmemBytes": 64,
    "SmemBytes": 64,
    "HostBytes": 16,
    "HostTimes": 4,
    "ImemWords": 16,
    "Patterns": 2,
    "Buffers": 2,
    "Kernels": 2,
    "ControlRows": 4,
    "Constants": 4,
}
# Modules without state that would make the flat netlist large.
OPAQUE = ("mxu_mac", "vpu_lane_alu", "vpu_lane_divide", "vpu_trans_function", "walk_listed")


def hierarchy(source: Source, top: str, parameters: Parameters) -> dict[tuple[str, Parameters], Unit]:
    """A module and all modules below it; errors are raised when everything else is done.

    Raises:
        SynthesisError: some of them are refused.
    """
    units: dict[tuple[str, Parameters], Unit] = {}
    asked = {(top, parameters)}
    refused = []
    with ThreadPoolExecutor(JOBS) as pool:
        running: set[Future[Unit]] = {pool.submit(synthesize, source, top, parameters)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if error := future.exception():
                    refused.append(str(error))
                    continue
                unit = future.result()
                units[unit.module, unit.parameters] = unit
                mark = "~" if unit.estimated else " "
                print(
                    f"  {unit.module:20} {mark}{sum(unit.gates.values()):>9,} gates {unit.seconds:7.1f} s", flush=True
                )
                for child in unit.children:
                    key = (child.module, child.parameters)
                    if child.module not in MEMORIES and key not in asked:
                        asked.add(key)
                        running.add(pool.submit(synthesize, source, *key))
    if refused:
        raise SynthesisError("\n".join(refused))
    return units


# Units of the report, by the module that begins them; modules in none of them are the core's own.
CORE = "core: wiring, pattern table ports"
UNITS = {
    "core": CORE,
    "core_memories": "memory ports: which memory, which size",
    "seq": "SEQ",
    "core_queues": "queues and tokens",
    "mxu_array": "MXU: array",
    "mxu": "MXU: addresses, operands, accumulators",
    "vpu": "VPU: schedule, results under way",
    "vpu_regs": "VPU: register file",
    "vpu_ports": "VPU: address generators, formats",
    "vpu_lane_alu": "VPU: alu lanes",
    "vpu_lane_divide": "VPU: division lanes",
    "vpu_lane_trans": "VPU: transcendental lanes",
    "xlu": "XLU",
    "dma": "DMA: ld and st",
    "hbm_ctrl": "HBM controller",
}
TRANSCENDENTAL = (UNITS["vpu_lane_divide"], UNITS["vpu_lane_trans"])


@dataclass
class Area:
    """The cells of a unit."""

    gates: Counter[str]
    flip_flops: int = 0
    estimated: int = 0  # gates of modules that are extrapolated

    @property
    def total(self) -> int:
        return self.gates.total()


@dataclass
class Report:
    """The cells of the core.

    Attributes:
        areas: by unit.
        memories: bits, by module.
    """

    areas: dict[str, Area]
    memories: Counter[str]

    def share(self, prefix: str, without: Sequence[str] = ()) -> float:
        """Of the gates of units that begin with `prefix`, in those of all but `without`."""
        counted = {unit: area.total for unit, area in self.areas.items() if unit not in without}
        return sum(total for unit, total in counted.items() if unit.startswith(prefix)) / sum(counted.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "units": {
                unit: {
                    "gates": area.total,
                    "estimated": area.estimated,
                    "by_gate": dict(area.gates),
                    "flip_flops": area.flip_flops,
                }
                for unit, area in self.areas.items()
            },
            "gates": sum(area.total for area in self.areas.values()),
            "flip_flops": sum(area.flip_flops for area in self.areas.values()),
            "mxu_share": self.share("MXU"),
            "mxu_share_without_transcendental_lanes": self.share("MXU", TRANSCENDENTAL),
            "memory_bits": dict(self.memories),
        }

    def text(self) -> str:
        """A table of units."""
        head = f"{'unit':40} {'gates':>11} {'share':>7} " + " ".join(f"{g:>10}" for g in GATES.values())
        lines = [f"{head} {'flip-flops':>11} {'estimated':>11}"]
        for unit, area in [*self.areas.items(), ("all", self._sum())]:
            kinds = " ".join(f"{area.gates[gate]:>10,}" for gate in GATES.values())
            share = area.total / self._sum().total
            lines.append(
                f"{unit:40} {area.total:>11,} {share:>7.1%} {kinds} {area.flip_flops:>11,} {area.estimated:>11,}"
            )
        lines.append(f"MXU: {self.share('MXU'):.1%} of the gates, {self.share('MXU', TRANSCENDENTAL):.1%} of those ")
        lines[-1] += (
            "that are not in transcendental and division lanes; estimated: of modules whose gates are extrapolated"
        )
        bits = ", ".join(f"{module} {bits:,}" for module, bits in sorted(self.memories.items()))
        return "\n".join([*lines, f"memories, bits (black boxes): {bits}"])

    def _sum(self) -> Area:
        gates = Counter[str]()
        for area in self.areas.values():
            gates += area.gates
        areas = self.areas.values()
        return Area(gates, sum(area.flip_flops for area in areas), sum(area.estimated for area in areas))


def report(units: Mapping[tuple[str, Parameters], Unit], top: str, parameters: Parameters) -> Report:
    """Every module as often as it is there, in the unit that it belongs to."""
    found = Report({unit: Area(Counter()) for unit in UNITS.values()}, Counter())

    def add(module: str, given: Parameters, count: int, outer: str) -> None:
        unit, name = units[module, given], UNITS.get(module, outer)
        area = found.areas[name]
        area.flip_flops += count * unit.flip_flops
        area.estimated += count * sum(unit.gates.values()) * unit.estimated
        for gate, number in unit.gates.items():
            area.gates[gate] += count * number
        for child in unit.children:
            if child.module in MEMORIES:
                found.memories[child.module] += count * child.count * child.bits
            else:
                add(child.module, child.parameters, count * child.count, name)

    add(top, parameters, 1, CORE)
    return found


def main(name: str = "tiny") -> int:
    """Check the core, count its gates, print them and write them to build/synth."""
    chip = load_chip(name)
    source, parameters = rtl(), core_parameters(chip)
    given = tuple(parameters.items())
    try:
        print(f"Yosys {yosys_version()}: {name}, modules by themselves (what has not changed is not done again)")
        units = hierarchy(source, "core", given)
        print("the core in small, flat: loops, drivers", flush=True)
        check_whole(source, "core", tuple((parameters | SMALL).items()), OPAQUE)
    except SynthesisError as error:
        print(f"synthesis: {error}", file=sys.stderr)
        return 1
    found = report(units, "core", given)
    path = CACHE / f"{name}.json"
    path.write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    print(f"no latches, no combinational loops, every bit has one driver\n{found.text()}\n{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
