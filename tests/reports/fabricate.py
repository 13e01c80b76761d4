"""A run's JSON without a simulator: a transformer layer on tpu_v3, made up but consistent, for tests of the reports."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from systolith.isa.chip import describe, load_chip

CHIP = load_chip("tpu_v3")
QUEUES = ("seq", "ld", "st", "w0", "s0", "w1", "s1", "vpu", "xlu")
PARTS = 100
# name, kind, opcodes, macs, other flops, transcendentals, bytes, cycles, busy by queue, bytes read and written
GROUPS: tuple[tuple[str, str, str, int, int, int, int, int, dict[str, int], tuple[int, int]], ...] = (
    ("dot_add_fusion", "kOutput", "dot add", 302_000_000, 400_000, 0, 4_700_000, 12_900,
     {"ld": 9_600, "w0": 2_400, "s0": 9_300, "w1": 2_400, "s1": 9_300, "vpu": 900}, (4_600_000, 0)),
    ("dot_scale_fusion.1", "kOutput", "dot multiply", 25_000_000, 200_000, 0, 1_300_000, 1_900,
     {"w0": 400, "s0": 1_500, "w1": 400, "s1": 1_500, "vpu": 600}, (0, 0)),
    ("softmax_fusion", "kInput", "reduce subtract exponential divide", 0, 1_000_000, 196_608, 1_600_000, 4_100,
     {"vpu": 3_900, "xlu": 800}, (0, 0)),
    ("dot_fusion.2", "kOutput", "dot", 25_000_000, 0, 0, 1_300_000, 1_700,
     {"w0": 400, "s0": 1_450, "w1": 400, "s1": 1_450}, (0, 0)),
    ("dot_add_fusion.3", "kOutput", "dot add add", 100_000_000, 300_000, 0, 3_100_000, 4_900,
     {"ld": 4_700, "w0": 800, "s0": 3_100, "w1": 800, "s1": 3_100, "vpu": 300}, (2_360_000, 0)),
    ("layer_norm_fusion", "kInput", "reduce rsqrt multiply add", 0, 800_000, 128, 780_000, 2_300,
     {"vpu": 1_400, "xlu": 300}, (0, 0)),
    ("dot_gelu_fusion", "kOutput", "dot add tanh multiply", 402_000_000, 2_400_000, 393_216, 6_500_000, 21_700,
     {"ld": 19_900, "w0": 3_200, "s0": 12_400, "w1": 3_200, "s1": 12_400, "vpu": 9_800}, (9_440_000, 0)),
    ("dot_add_fusion.4", "kOutput", "dot add add", 402_000_000, 200_000, 0, 6_500_000, 19_800,
     {"ld": 19_700, "w0": 3_200, "s0": 12_500, "w1": 3_200, "s1": 12_500, "vpu": 400}, (9_440_000, 0)),
    ("layer_norm_fusion.1", "kInput", "reduce rsqrt multiply add", 0, 800_000, 128, 780_000, 3_100,
     {"vpu": 1_400, "xlu": 300, "st": 900}, (0, 393_216)),
    ("transpose_fusion", "kLoop", "transpose copy", 0, 0, 0, 786_432, 0, {"xlu": 1_300}, (0, 0)),
)  # fmt: skip
STALLS = {
    "ld": {"hbm_latency": 3, "wait_s0": 2, "fifo_empty": 1},
    "st": {"wait_vpu": 9, "drain": 1},
    "w0": {"wait_ld": 5, "wait_s0": 3},
    "w1": {"wait_ld": 5, "wait_s1": 3},
    "s0": {"weight_shift": 1, "wait_ld": 4, "wait_w0": 2, "wait_vpu": 2},
    "s1": {"weight_shift": 1, "wait_ld": 4, "wait_w1": 2, "wait_vpu": 2},
    "vpu": {"wait_s0": 4, "wait_s1": 3, "wait_xlu": 1},
    "xlu": {"wait_vpu": 1, "fence": 0, "fifo_empty": 1},
}


def fabricate(scale: float = 1.0, chip: str = "tpu_v3", name: str = "bert_base_layer") -> dict[str, Any]:
    """A run's JSON object; `scale` multiplies the time of loads, and of groups that wait for them."""
    groups: list[dict[str, Any]] = []
    at = 0
    for title, kind, opcodes, macs, rest, trans, size, cycles, busy, (read, written) in GROUPS:
        if busy.get("ld", 0) > 0.7 * cycles:
            cycles = round(cycles * scale)
        busy = {q: round(n * scale) if q == "ld" else n for q, n in busy.items()}
        ops = opcodes.split()
        groups.append({
            "name": title, "cycles": cycles, "busy": busy, "instructions": 40 * len(busy), "macs": macs,
            "hbm_bytes": {"read": read, "written": written}, "first_start": max(0, at - 700),
            "last_retire": at + max(cycles, 500),
            "kind": kind, "hlo": [f"{op}.{len(groups)}" for op in ops], "opcodes": ops, "flops": 2 * macs + rest,
            "transcendentals": trans, "bytes": size, "executions": 1,
            "stalls": {"vpu": {"wait_xlu": 700}} if "norm" in title else {},
        })  # fmt: skip
        at += cycles
    total = at + 200
    for group in groups:
        group["last_retire"] = min(group["last_retire"], total)
    units = {q: _unit(q, groups, total) for q in QUEUES}
    macs = sum(g["macs"] for g in groups)
    m = CHIP.mxu
    return {
        "ok": True, "program": name, "source": f"models/{name}.hlo", "mode": "full", "precision": "default",
        "hostile": True,
        "command": f"systolith run models/{name}.hlo --chip {chip} --random 0 --check --hostile",
        "chip": chip, "chip_digest": CHIP.digest(), "chip_parameters": [row._asdict() for row in describe(CHIP)],
        "cycles": total, "seconds": total / (CHIP.clock_mhz * 1e6), "wall_seconds": {"compile": 2.31, "simulate": 0.84},
        "macs": macs, "mxu_utilization": macs / (m.rows * m.cols * m.count * total),
        "array_active": {"s0": 33_900, "s1": 33_900}, "vmem_high_water": 11_534_336, "instructions": 3_914,
        "hbm_bytes": {what: sum(g["hbm_bytes"][what] for g in groups) for what in ("read", "written")},
        "hbm_allocated": {"parameter": 28_745_728, "result": 393_216, "constant": 4_096, "temp": 0},
        "units": units, "groups": groups, "ops": [_op(g) for g in groups if g["cycles"]],
        "timeline": _timeline(groups, total),
        "hazards": [], "checks": {"groups": 10, "executions": 10, "expected": 0, "failures": []},
        "max_abs_error": 3.1e-06, "max_rel_error": 4.2e-07,
    }  # fmt: skip


def with_energy(raw: dict[str, Any]) -> dict[str, Any]:
    """The run on a chip that states energies: 12 mJ, half of them leakage."""
    edges = raw["timeline"]["edges"]
    watts = [40.0 + 60.0 * (i % 10) / 9 for i in range(len(edges) - 1)]
    energy = {
        "total_fj": 12 * 10**12, "dynamic_fj": 6 * 10**12, "host_fj": 0, "idle_fj": 0, "leakage_fj": 6 * 10**12,
        "joules": 0.012, "average_watts": 70.0, "peak_watts": 100.0, "tops_per_watt": 0.2,
        "by_unit": {"mxu": 4 * 10**12, "hbm": 2 * 10**12},
        "by_event": {"mxu_mac_bf16": 4 * 10**12, "hbm_byte": 2 * 10**12},
        "by_op": {"dot.0": 6 * 10**12}, "by_group": {"dot_add_fusion": 6 * 10**12},
        "tops_per_watt_by_unit": {"mxu": 0.6, "hbm": 1.2}, "tops_per_watt_by_op": {"dot.0": 0.4},
        "timeline": {"edges": edges, "watts": watts},
    }  # fmt: skip
    return raw | {"energy": energy}


def _unit(queue: str, groups: list[dict[str, Any]], total: int) -> dict[str, int]:
    if queue == "seq":
        causes = {"busy": 900, "fetch": 6_100, "branch": 24, "fifo_full_ld": 31_000, "fifo_full_s0": 9_000}
        return causes | {"idle": total - sum(causes.values())}
    occupied = sum(g["busy"].get(queue, 0) for g in groups)
    credit = round(occupied * 0.1) if queue in ("ld", "st") else 0
    causes = {"busy": occupied - credit} | ({"hbm_bandwidth": credit} if credit else {})
    causes |= {"self_conflict": 120, "fill": 260} if queue in ("s0", "s1") else {}
    left = int((total - sum(causes.values())) * 0.9)
    weights = STALLS[queue]
    causes |= {c: left * w // sum(weights.values()) for c, w in weights.items() if w}
    return causes | {"idle": total - sum(causes.values())}


def _op(group: dict[str, Any]) -> dict[str, Any]:
    keys = ("cycles", "busy", "instructions", "macs", "hbm_bytes", "first_start", "last_retire")
    return {"name": group["hlo"][0]} | {key: group[key] for key in keys}


def _timeline(groups: list[dict[str, Any]], total: int) -> dict[str, Any]:
    edges = [total * i // PARTS for i in range(PARTS + 1)]
    series: dict[str, list[float]] = {name: [0.0] * PARTS for name in ("read", "written", *QUEUES)}
    for group in groups:
        lo, hi = group["first_start"], group["last_retire"]
        amounts = {**group["busy"], **group["hbm_bytes"]}
        for i in range(PARTS):
            inside = max(0, min(hi, edges[i + 1]) - max(lo, edges[i])) / (hi - lo)
            for name, amount in amounts.items():
                series[name][i] += amount * inside
    # Overlapping groups may not occupy a queue, or the bandwidth, twice.
    limits = [hi - lo for lo, hi in pairwise(edges)]
    rate = CHIP.hbm.p / CHIP.hbm.q
    busy = {q: [min(float(n), v) for n, v in zip(limits, series[q], strict=True)] for q in QUEUES if any(series[q])}
    traffic = {
        w: [min(n * rate * (0.85 if w == "read" else 0.15), v) for n, v in zip(limits, series[w], strict=True)]
        for w in ("read", "written")
    }
    held = {"vmem": [11_534_336 * min(i, PARTS - i) * 2 // PARTS for i in range(PARTS)]}
    held["hbm"] = [28_749_824 + 393_216 * (i > 90) for i in range(PARTS)]
    return {"edges": edges, **traffic, "busy": busy, **held}
