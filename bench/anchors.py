"""Published figures of TPUs beside ours: times, shares and power. No field of a chip is fitted to any of them.

Each row says its source. Where the published workload is not known in full (TPU v1's models, Google's production), ours
is named in the row, and the figures are compared for their range only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from bench.hlo_text import copy, int8_mlp, product, triad
from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import load_chip
from systolith.sim.energy import EnergyUse
from systolith.sim.simulate import RunResult, simulate

COCOSSIM = "polarbearsrock/cocossim, benchmarks/tpuv6e: device time on silicon"
V1 = "arXiv 1704.04760, table 3"
V1_POWER = "arXiv 1704.04760, table 2"
V1_SCALING = "arXiv 1704.04760, section 7: average of six models"
V4_POWER = "arXiv 2304.01433 (Jouppi et al., ISCA 2023), table 4: measured in production"
JAX = "jax docs/pallas/tpu/matmul.ipynb: wall time, with dispatch"

GEMMS = {
    (1024, 1024, 1024): 3.75, (2048, 2048, 2048): 23.71, (4096, 4096, 4096): 176.9, (8192, 8192, 8192): 1576.0,
    (2048, 8192, 8192): 331.6, (1, 4096, 1024): 7.7, (256, 4096, 1024): 8.6,
}  # fmt: skip
"""M x K x N in bf16 on v6e: microseconds."""
COPY_ELEMENTS = 1 << 24
MLPS = {"MLP0": ((2000,) * 6, 200), "MLP1": ((1120,) * 5, 168)}
"""Widths and batch of models with the published layers, weights (20 M, 5 M) and batch; shapes are not published."""


PRODUCTION = {"v3": (175.0, 220.0, 262.0), "v4": (121.0, 170.0, 192.0)}
"""Watts of a chip with its HBM, over production workloads: least, mean, most."""


@dataclass(frozen=True)
class Row:
    """A published figure and ours.

    Attributes:
        subject: the chip and the workload.
        figure: the quantity, with its unit.
        published: as published; a range is (least, mean, most).
        ours: the simulated figure.
        source: of the published one.
    """

    subject: str
    figure: str
    published: float | tuple[float, float, float]
    ours: float
    source: str

    @property
    def error(self) -> str:
        """Ours against the published figure, or against the mean of a range."""
        middle = self.published[1] if isinstance(self.published, tuple) else self.published
        inside = isinstance(self.published, tuple) and self.published[0] <= self.ours <= self.published[2]
        return f"{100 * (self.ours / middle - 1):+.0f} %{', in the range' if inside else ''}"


@cache
def _run(chip: str, text: str, changes: tuple[tuple[str, object], ...] = ()) -> RunResult:
    where = load_chip(chip, dict(changes))
    return simulate(compile_module(parse_hlo(text), where).program, where, mode="time")


def _seconds(chip: str, text: str, *changes: tuple[str, object]) -> float:
    found = _run(chip, text, changes).seconds
    assert found is not None
    return found


def _energy(chip: str, text: str) -> EnergyUse:
    found = _run(chip, text).energy
    assert found is not None
    return found


def v6e() -> Iterator[Row]:
    """Products and copies on v6e."""
    for (m, k, n), published in GEMMS.items():
        ours = 1e6 * _seconds("tpu_v6e", product(m, k, n))
        yield Row(f"v6e, bf16 {m} x {k} x {n}", "microseconds", published, ours, COCOSSIM)
    size = 4 * COPY_ELEMENTS
    for name, text, moved, published in (
        ("copy", copy(COPY_ELEMENTS), 2 * size, 1327.0),
        ("triad", triad(COPY_ELEMENTS), 3 * size, 1371.0),
    ):
        ours = moved / _seconds("tpu_v6e", text) / 1e9
        yield Row(f"v6e, {name}, f32[{COPY_ELEMENTS}]", "GB/s", published, ours, COCOSSIM)


def v5e() -> Iterator[Row]:
    """Utilisation on v5e: ratios of sizes, since the published times are of the host."""
    used = {n: 2 * n**3 / _seconds("tpu_v5e", product(n, n, n)) / 197e12 for n in (1024, 4096, 8192)}
    for n, published in ((1024, 9.1), (4096, 84.3)):
        yield Row(
            f"v5e, bf16 {n} cubed", "utilisation over that of 8192 cubed", published / 92.3, used[n] / used[8192], JAX
        )


def v1() -> Iterator[Row]:
    """Shares of the array's time on v1, and what more bandwidth and clock do."""
    for name, active, stall, shift in (("MLP0", 12.7, 53.9, 15.9), ("MLP1", 10.6, 44.2, 13.4)):
        widths, batch = MLPS[name]
        subject = f"v1, {name}: int8, batch {batch}, {len(widths) - 1} x {widths[0]} squared"
        result, matrix = _run("tpu_v1", int8_mlp(batch, widths)), active + stall + shift
        assert result.cycles is not None
        loads = result.units["w0"]["busy"] / result.cycles
        rows = result.array_active["s0"] / result.cycles
        yield Row(subject, "weight shift, % of active, stall and shift", 100 * shift / matrix, 100 * loads, V1)
        yield Row(subject, "array active, % of active, stall and shift", 100 * active / matrix, 100 * rows, V1)
    widths, batch = MLPS["MLP0"]
    text = int8_mlp(batch, widths)
    once = _seconds("tpu_v1", text)
    yield Row("v1, MLP0", "TOPS", 12.3, 2 * _run("tpu_v1", text).macs / once / 1e12, V1)
    for figure, change, published in (
        ("speed-up, 4 x bandwidth", ("hbm.gbps", 136), 3.0),
        ("speed-up, 4 x clock", ("clock_mhz", 2800), 1.0),
    ):
        yield Row("v1, MLP0", figure, published, once / _seconds("tpu_v1", text, change), V1_SCALING)


def power() -> Iterator[Row]:
    """Watts of whole chips: of those with two cores, twice ours."""
    for name, (widths, batch) in MLPS.items():
        use = _energy("tpu_v1", int8_mlp(batch, widths))
        yield Row(f"v1, {name}", "watts, busy", 40.0, use.average_watts, V1_POWER)
        above = use.average_watts * (1 - use.leakage / use.total)
        yield Row(f"v1, {name}", "watts above idle", 40.0 - 28.0, above, V1_POWER)
        speed = 2 * use.macs / use.seconds / 1e12
        yield Row(f"v1, {name}", "TOPS/W, our speed at 40 W", speed / 40.0, use.tops_per_watt, V1_POWER)
    for chip, published in PRODUCTION.items():
        for m in (4096, 8):
            use, subject = _energy(f"tpu_{chip}", product(m, 4096, 4096)), f"{chip}, bf16 {m} x 4096 x 4096"
            yield Row(subject, "watts of the chip, production", published, 2 * use.average_watts, V4_POWER)
            speed = 2 * 2 * use.macs / use.seconds / 1e12
            most, mean, least = (speed / watts for watts in published)
            figure = "TOPS/W, our speed at those watts"
            yield Row(subject, figure, (least, mean, most), use.tops_per_watt, V4_POWER)


PARTS: dict[str, Callable[[], Iterable[Row]]] = {"TPU v6e": v6e, "TPU v5e": v5e, "TPU v1": v1, "Power": power}


HEADS = ("workload", "figure", "published", "ours", "ours against it", "source")
NOTES = {
    "TPU v6e": """Ours begin and end in HBM; the measured ones are links of chains, whose operands may stay in VMEM: of
1024 cubed, HBM alone takes 3.8 microseconds. Of large products, silicon takes longer than ours, and of copies it
reaches 81 to 84 % of the bandwidth: DRAM's refresh, banks and turnarounds are not modelled, nor limits of power.""",
    "TPU v5e": """The measured ones hold the dispatch of the host, which 1024 cubed is most of.""",
    "TPU v1": """A starved tile takes 65,536 bytes at 34 GB/s, 1,349 cycles, of which 256 are its shift: 19.0 %. The
shapes of the published models are not known, and their speed-ups are averages over six models.""",
    "Power": """Production's workloads are not published, so ranges say only what a chip takes at all. On v1 ours has
less than the published 40 W: no wires, no weight FIFO, no PCIe. On v4, products that keep the whole array busy take
more than any workload of production. Idle power is published and an input (leakage), so the gap of power above
idle is larger than that of all power.""",
}


def report(found: dict[str, list[Row]]) -> str:
    """The page of all rows."""
    lines = ["# Published figures and ours", "", *(__doc__ or "").splitlines(), ""]
    lines += ["Written by `python -m bench anchors`. A range is least / mean / most; ours is set against the mean.", ""]
    for part, rows in found.items():
        lines += [f"## {part}", "", NOTES[part], "", f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
        for r in rows:
            cells = (r.subject, r.figure, _shown(r.published), _shown(r.ours), r.error, r.source)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _shown(value: float | tuple[float, float, float]) -> str:
    if isinstance(value, tuple):
        return " / ".join(map(_shown, value))
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
