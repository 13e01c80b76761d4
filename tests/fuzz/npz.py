"""Archives of arguments: their entries' headers and names, their bytes."""

from __future__ import annotations

import io
import struct
import zipfile
from functools import cache
from random import Random
from warnings import catch_warnings

import numpy as np

from systolith.isa.dtypes import dtype
from systolith.runtime.arrays import conform, load_numbered
from tests.fuzz.damage import damaged
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws

DECLARED = (("f32", (4, 8)), ("bf16", (3,)), ("s32", ()), ("pred", (2, 2)))
TYPES = (
    "'<f4'",
    "'>f4'",
    "'<f8'",
    "'|O'",
    "'|V4'",
    "'|b1'",
    "'<U3'",
    "'<M8[ns]'",
    "'<f99'",
    "[('a','<f4')]",
    "None",
    "1",
)
SHAPES = (
    "(4, 8)",
    "(8, 4)",
    "()",
    "(0,)",
    "(-4, -8)",
    "(4, 8.0)",
    "(1000000, 1000000, 1000)",
    "(2**62,)",
    "4",
    "[4, 8]",
    "None",
)
NAMES = (
    "arg0.npy",
    "arg1.npy",
    "arg2.npy",
    "arg3.npy",
    "arg4.npy",
    "arg",
    "../arg0.npy",
    "arg0",
    "",
    "é.npy",
    "out0.npy",
)


@cache
def sample() -> tuple[tuple[str, bytes], ...]:
    """Names and contents of the entries of an archive that is taken."""
    entries = []
    for number, (kind, dims) in enumerate(DECLARED):
        array = np.ones(dims, dtype(kind).stored)
        out = io.BytesIO()
        np.save(out, array.view("u2") if kind == "bf16" else array, allow_pickle=False)
        entries.append((f"arg{number}.npy", out.getvalue()))
    return tuple(entries)


class Npz(Fuzzer):
    name, suffix = "npz", ".npz"

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        entries = list(sample())
        if dice.random() < 0.7:
            at = dice.randrange(len(entries))
            entries[at : at + 1] = _changed(*entries[at], dice)
        out = io.BytesIO()
        method = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(out, "w", method) as archive:
            for name, data in entries:
                with catch_warnings(action="ignore"):  # of a name that is there already
                    archive.writestr(zipfile.ZipInfo(name), data, method)
        return damaged(out.getvalue(), dice) if dice.random() < 0.4 else out.getvalue()

    def check(self, case: bytes) -> None:
        for array, (kind, dims) in zip(load_numbered(file_of(case, self.suffix), "arg"), DECLARED, strict=False):
            conform(array, dtype(kind), dims, "argument")

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of an archive"


def _changed(name: str, data: bytes, dice: Random) -> list[tuple[str, bytes]]:
    """An entry changed, doubled or left out."""
    match dice.randrange(5):
        case 0:
            return []
        case 1:
            return [(name, data), (dice.choice(NAMES), data)]
        case 2:
            return [(dice.choice(NAMES), data)]
        case 3:
            return [(name, damaged(data, dice))]
        case _:
            order = dice.choice(["False", "True", "None"])
            kind, shape = dice.choice(TYPES), dice.choice(SHAPES)
            header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}}}\n".encode()
            return [(name, b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data[128:])]
