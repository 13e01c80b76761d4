"""Every command with files that it reads, for tests of properties of all commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from systolith.isa.binary import save
from systolith.isa.chip import PRESETS, load_chip
from systolith.runtime.client import Client

MODULE = """HloModule m
ENTRY e {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[8,8] add(d, a)
}
"""
ASSEMBLY = ".program p\nhalt\n"


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        words: with which it runs; names of files in braces.
        outputs: its options that name a file to write, or a folder.
    """

    words: str
    outputs: tuple[str, ...] = ()

    def fill(self, folder: Path) -> list[str]:
        """The words, with the paths of files in a folder."""
        return [str(folder / w[1:-1]) if w.startswith("{") else w for w in self.words.split()]

    def inputs(self, folder: Path) -> list[Path]:
        """The files that it reads."""
        return [folder / w[1:-1] for w in self.words.split() if w.startswith("{")]


COMMANDS = {
    "run": Command(
        "run {m.hlo} --chip {chip.toml} --args {args.npz} --expect {good.npz}",
        ("--out", "--trace", "--report", "--record-decisions"),
    ),
    "run a binary": Command("run {m.slb} --random 0", ("--out", "--trace")),
    "compile": Command("compile {m.hlo} --chip {chip.toml}", ("-o",)),
    "explain": Command("explain {m.hlo} --chip {chip.toml}"),
    "disasm": Command("disasm {m.slb}"),
    "asm": Command("asm {p.s} --chip {chip.toml}", ("-o",)),
    "report": Command("report {run.json}", ("-o",)),
    "compare": Command("report {run.json} {again.json}", ("-o",)),
    "opt": Command("opt {m.hlo} --passes algsimp --check 1", ("-o",)),
    "cost": Command("cost {m.hlo} --chip {chip.toml}"),
    "chips": Command("chips"),
    "chip": Command("chips {chip.toml}"),
}


def write_inputs(folder: Path) -> Path:
    """The files that commands read; the folder."""
    (folder / "m.hlo").write_text(MODULE)
    (folder / "p.s").write_text(ASSEMBLY)
    (folder / "chip.toml").write_text((PRESETS / "tiny.toml").read_text().replace('"tiny"', '"mine"', 1))
    a, b = np.arange(64, dtype=np.float32).reshape(8, 8), np.eye(8, dtype=np.float32)
    np.savez(folder / "args.npz", allow_pickle=False, arg0=a, arg1=b)
    np.savez(folder / "good.npz", allow_pickle=False, out0=a + a)
    np.savez(folder / "bad.npz", allow_pickle=False, out0=a)
    client = Client(load_chip(folder / "chip.toml"))
    program = client.compile(MODULE)
    save(program.program, folder / "m.slb")
    program(a, b)[0].block()
    assert program.last_run is not None
    for name in ("run.json", "again.json"):
        (folder / name).write_text(json.dumps(program.last_run.record()))
    return folder
