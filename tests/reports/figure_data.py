"""The numbers of every chart of the fabricated run, compared with known ones: python -m tests.reports.figure_data."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from systolith.reports.attribution import attribute_run
from systolith.reports.charts import data
from systolith.reports.headline import shares
from systolith.reports.roofline import peaks
from systolith.reports.run_data import from_json
from tests.reports.fabricate import fabricate, with_energy

KNOWN = Path(__file__).with_suffix(".json")


def figure_data() -> dict[str, Any]:
    """Data of the charts by their names, numbers with nine digits."""
    run, slow = from_json(fabricate()), from_json(fabricate(2.0))
    chip = peaks(run.chip_parameters)
    power = data.power(from_json(with_energy(fabricate())), chip)
    assert power is not None
    why = attribute_run(run, chip)
    both = [{s.bound: s.cycles for s in shares(r, attribute_run(r, chip))} for r in (run, slow)]
    found: dict[str, Any] = {
        "roofline": asdict(data.roofline(run, chip, why)),
        "stalls": asdict(data.stalls(run)),
        "utilisation": [asdict(use) for use in data.utilisation(run, chip)],
        "traffic": asdict(data.traffic(run, chip)),
        "timeline": asdict(data.activity(run, chip)),
        "power": asdict(power),
        "memory": asdict(data.memory(run, chip)),
        "comparison": [asdict(c) for c in data.compared([run, slow], ["base", "slow"], [chip, chip], both)],
    }
    rounded: dict[str, Any] = json.loads(json.dumps(_rounded(found)))
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    KNOWN.write_text(json.dumps(figure_data(), separators=(",", ":")) + "\n")
