"""Whatever a public function is given, it works or raises a SystolithError."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith import api as sl

TEXT = "HloModule m\nENTRY e {\n a = f32[2] parameter(0)\n ROOT b = f32[2] add(a, a)\n}\n"
JUNK: list[Any] = [
    None, 0, -1, 9, 1.5, True, 10**30, float("nan"), float("inf"), 1j, "", "x", "a\0b", "f32[2]", b"x", [], [1], [None],
    [[1], [2, 3]], {}, {"a": 1}, set(), (1, 2), ("x",), object(), int, len, Path("x"), Path("/"),
    np.zeros(2, np.float32), np.array("x"), np.array([None]), np.zeros((1,) * 32), np.int64(1),
    np.datetime64("2000-01-01"),
]  # fmt: skip
# Made by functions, not by users, or by Python's own constructors of enumerations and errors.
MADE = set("Buffer Device Executable Run GlobalData XlaComputation ChannelType Padding SystolithError".split())
INTERNAL = {"Device.attach_queues", "Device.expect_run", "Device.end_run", "Shape.text"}


@cache
def things() -> dict[str, Any]:
    """An object of each class that has methods, and results for good arguments."""
    client = sl.Client("tiny")
    executable = client.compile(TEXT)
    executable(np.zeros(2, np.float32))[0].block()
    literal = sl.Literal.create(np.zeros(2, np.float32))
    builder = sl.XlaBuilder("t")
    builder.constant(np.ones(2, np.float32))
    return {
        "Client": client,
        "Executable": executable,
        "Run": executable.last_run,
        "Buffer": client.put(np.zeros(2, np.float32)),
        "Device": client.devices[0],
        "GlobalData": client.transfer_to_server(literal),
        "Literal": literal,
        "Shape": literal.shape,
        "Layout": sl.Layout((0,)),
        "XlaComputation": builder.build(),
        "Module": sl.parse_hlo(TEXT),
        "Chip": client.chip,
        "Infeed": client.infeed() if client.chip.host.queues else None,
    }


def functions() -> dict[str, Callable[..., Any]]:
    found = {n: f for n in sl.__all__ if n not in MADE and callable(f := getattr(sl, n))}
    owners = things() | {"LiteralUtil": sl.LiteralUtil, "ShapeUtil": sl.ShapeUtil, "ClientLibrary": sl.ClientLibrary}
    for owner, thing in owners.items():
        names = [n for n in dir(thing) if not n.startswith("_")] + ["__call__"] * (owner == "Executable")
        found |= {f"{owner}.{n}": f for n in names if callable(f := getattr(thing, n, None))}
    return {name: f for name, f in found.items() if name not in INTERNAL}


FUNCTIONS = functions()
GOOD = {
    "module": [things()["Module"], TEXT],
    "literal": [things()["Literal"]],
    "computation": [things()["XlaComputation"]],
    "data": [things()["GlobalData"]],
    "arguments": [(), [things()["GlobalData"]]],
    "options": [sl.Options(), None],
    "program": [things()["Executable"].program],
    "function": [lambda *x: x],
    "shape": [things()["Shape"], (2,)],
    "element": [sl.F32],
}


def drawn(function: Callable[..., Any], dice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and name: some good, some junk."""
    every = inspect.signature(function).parameters.values()
    by_place = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in by_place)

    def value(name: str) -> Any:
        return dice.choice(GOOD[name]) if name in GOOD and dice.random() < 0.5 else dice.choice(JUNK)

    args = [value(p.name) for p in by_place[: dice.randint(needed, len(by_place))]]
    if any(p.kind is p.VAR_POSITIONAL for p in every) and len(args) == len(by_place):
        args += dice.choices([*JUNK, np.zeros(2, np.float32), things()["Buffer"]], k=dice.randint(0, 2))
    return args, {p.name: value(p.name) for p in every if p.kind is p.KEYWORD_ONLY and dice.random() < 0.3}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_but_a_systolith_error_comes_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(name)
    for _ in range(40):
        args, named = drawn(FUNCTIONS[name], dice)
        try:
            result = FUNCTIONS[name](*args, **named)
            for one in result if isinstance(result, list) else []:
                if isinstance(one, sl.Buffer):
                    one.numpy()
        except sl.SystolithError:
            pass


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "device": (lambda: things()["Executable"](np.zeros(2, np.float32), device=9), "device 9: the client has 1"),
    "mode": (lambda: things()["Executable"](np.zeros(2, np.float32), mode="fast"), "mode 'fast': must be one of full"),
    "module": (lambda: things()["Client"].compile(None), "module: expected Module or str or bytes, got NoneType"),
    "options": (
        lambda: things()["Client"].compile(TEXT, {"autotune": 3}),
        "options: expected Options or None, got dict",
    ),
    "autotune": (lambda: sl.Options(autotune=-3), "autotune -3: must be"),
    "precision": (lambda: sl.Options(precision="best"), "precision 'best': must be one of default"),
    "devices": (lambda: sl.Client("tiny", 0), "devices: 0"),
    "chip": (lambda: sl.Client(3), "chip: expected str or Path or Chip, got int"),  # type: ignore[arg-type]
    "changes": (lambda: sl.load_chip("tiny", 5), "changes: expected Mapping or None, got int"),  # type: ignore[arg-type]
    "a NUL": (lambda: sl.Client("a\0b.toml"), "null byte"),
    "a program's NUL": (lambda: things()["Client"].load("a\0b.slb"), "null byte"),
    "a report's NUL": (lambda: things()["Run"].report("a\0b.html"), "null byte"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(sl.SystolithError, match=message):
        call()


def test_a_chip_may_be_a_path(tmp_path: Path) -> None:
    from systolith.isa.chip import PRESETS

    path = tmp_path / "mine.toml"
    path.write_text((PRESETS / "tiny.toml").read_text())
    assert sl.Client(path).chip == sl.load_chip("tiny")


def test_numbers_of_numpy_are_as_good_as_those_of_python() -> None:
    assert things()["Client"].device(np.int64(0)) is things()["Client"].devices[0]


def test_names_that_are_imported_late_are_listed() -> None:
    assert set(sl.__all__) <= set(dir(sl))
