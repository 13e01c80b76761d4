"""`run --what-if`: the same program under other times: exact cycles, not estimates.

The program is not compiled again, so that the difference is that of the time alone: a compiler that knew of it may do
better (`--set` compiles for another chip).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from systolith.isa.chip import Chip, changes_of, describe, variant
from systolith.isa.chip_schema import TIME_FIELDS
from systolith.isa.errors import ConfigError
from systolith.isa.program import Program
from systolith.sim.simulate import RunResult, simulate

NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "hbm-bandwidth": ("unlimited HBM bandwidth (64 KiB a cycle)", {"hbm.p": 65536, "hbm.q": 1}),
    "hbm-latency": ("HBM latency of 1 cycle", {"hbm.latency": 1}),
    "weights": ("weight tiles at 64 segments a cycle, signalled at once", {"mxu.segments": 64, "mxu.load_latency": 1}),
    "issue": (
        "instructions fetched and branched at once, queues of 256",
        {"seq.fetch_words": 64, "seq.branch_penalty": 0, "fifo.depth": 256},
    ),
}


@dataclass(frozen=True)
class Supposition:
    """A supposition: its name for people, and the changes to the chip, by fields."""

    name: str
    changes: Mapping[str, Any]


def suppositions(texts: Sequence[str]) -> list[Supposition]:
    """Parse values of the option `--what-if`: `all`, a name of NAMED, or FIELD=VALUE,FIELD=VALUE; each once.

    Raises:
        ConfigError: a value is none of these.
    """
    found = []
    for text in texts:
        if "=" in text:
            found.append(Supposition(text, changes_of(text.split(","))))
        elif text == "all":
            found += [Supposition(*named) for named in NAMED.values()]
        elif text in NAMED:
            found.append(Supposition(*NAMED[text]))
        else:
            raise ConfigError(f"--what-if {text}: must be FIELD=VALUE, all, or one of {', '.join(NAMED)}")
    return list({one.name: one for one in found}.values())


def retimed(program: Program, chip: Chip, what: Supposition) -> tuple[Program, Chip]:
    """The program for the chip with the changes.

    Raises:
        ConfigError: they are not of times alone, or not possible.
    """
    other = variant(chip, what.changes)
    both = zip(describe(chip), describe(other), strict=True)
    moved = [a.field for a, b in both if a.value != b.value and a.field not in {*TIME_FIELDS, "name"}]
    if moved:
        raise ConfigError(
            f"--what-if {what.name}: {moved[0]} decides which programs there are, not only their times:"
            f" run again with --set, which compiles again; of times are {', '.join(sorted(TIME_FIELDS))}"
        )
    return replace(program, chip=other.name, chip_digest=other.digest(), target=other), other


def what_if(result: RunResult, wanted: Sequence[Supposition]) -> list[dict[str, Any]]:
    """For each supposition its name, the changes and the cycles, for the record; a replay of the run's decisions.

    Raises:
        ConfigError: a supposition is not of times alone, or not possible.
    """
    found = []
    for what in wanted:
        program, chip = retimed(result.program, result.chip, what)
        again = simulate(program, chip, mode="time", decisions=result.decisions or None)
        changes = {field: str(value) for field, value in what.changes.items()}
        found.append({"name": what.name, "changes": changes, "cycles": again.cycles, "seconds": again.seconds})
    return found
