"""The user's choices: chip, number of devices, precision, a folder for records of runs.

Options of the plugin (`jax.config.update("jax_pjrt_client_create_options", {"chip": "small"})`) win over the
environment's `SYSTOLITH_CHIP`, `SYSTOLITH_SET`, `SYSTOLITH_DEVICES`, `SYSTOLITH_PRECISION` and `SYSTOLITH_REPORT`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from systolith.isa.chip import Chip, changes_of, load_chip, variant
from systolith.isa.errors import SystolithError
from systolith.runtime.device import MOST_DEVICES

_DEFAULTS = {"chip": "tpu_v3", "set": "", "devices": "1", "precision": "", "report": ""}


@dataclass(frozen=True)
class Settings:
    """The settings of a client.

    Attributes:
        chip: of every device.
        devices: how many.
        precision: default, high or highest for every dot and convolution; None: what the program asks for.
        report: folder for records of runs; None: none are written.
    """

    chip: Chip
    devices: int = 1
    precision: str | None = None
    report: Path | None = None

    @classmethod
    def read(cls, options: Mapping[str, str | int], environment: Mapping[str, str] = os.environ) -> Settings:
        """Settings from options, the environment and defaults.

        Raises:
            SystolithError: an option is unknown, or its value is none; names it.
        """
        if unknown := sorted(set(options) - set(_DEFAULTS)):
            raise SystolithError(f"option {unknown[0]!r}: must be one of {', '.join(_DEFAULTS)}")
        given = {name: _source(name, options, environment) for name in _DEFAULTS}
        precision, report = given["precision"][1] or None, given["report"][1]
        with _named(given["chip"][0]):
            chip = load_chip(given["chip"][1])
        with _named(given["set"][0]):
            if changes := changes_of(given["set"][1].split()):
                chip = variant(chip, changes)
        with _named(given["devices"][0]):
            devices = _count(given["devices"][1])
        if precision is not None:
            from systolith.compiler.options import Options  # late: it takes long to import

            with _named(given["precision"][0]):
                Options(precision=precision)
        return cls(chip, devices, precision, Path(report) if report else None)


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Say in errors where the value comes from."""
    try:
        yield
    except SystolithError as error:
        raise SystolithError(f"{source}: {error}") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_DEVICES):
        raise SystolithError(f"{text!r}: must be a number of devices from 1 to {MOST_DEVICES}")
    return int(text)


def _source(name: str, options: Mapping[str, str | int], environment: Mapping[str, str]) -> tuple[str, str]:
    """(what the user calls it, its value)."""
    if name in options:
        return f"option {name}", str(options[name])
    variable = f"SYSTOLITH_{name.upper()}"
    return variable, environment.get(variable) or _DEFAULTS[name]
