"""The `.slb` file: a program as bytes.

    magic 8 bytes, version u32, CRC-32 u32 of everything after it, number of sections u32,
    then for each section: name 4 bytes, length in bytes u64; then the sections' bytes, one after another.

Sections: `CODE`, `PATT`, `KERN` (32-bit little-endian words), `DATA` (initial contents of constants, one after
another), `META` (JSON: chip, buffer table, tokens, kernel names, and the debug map).  Integers are little-endian.  The
bytes are a function of the program alone.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from systolith.isa.decode import decode_code, decode_kernel, decode_pattern
from systolith.isa.encode import encode_instruction, encode_kernel, encode_pattern
from systolith.isa.errors import BinaryError, EncodingError
from systolith.isa.program import BufferDecl, GroupInfo, Location, Origin, Probe, Program, Role, TokenDecl

MAGIC = b"SYSTOLTH"
VERSION = 1
_HEAD = struct.Struct("<8sIII")
_ENTRY = struct.Struct("<4sQ")
_SECTIONS = (b"CODE", b"PATT", b"KERN", b"DATA", b"META")
_CRC_FROM = 16  # the CRC covers everything after itself

T = TypeVar("T")


def _bytes(words: list[int]) -> bytes:
    a = array("I", words)
    if sys.byteorder == "big":
        a.byteswap()
    return a.tobytes()


def _words(data: bytes, what: str) -> Sequence[int]:
    if len(data) % 4:
        raise BinaryError(f"{what}: {len(data)} bytes: must be whole 32-bit words")
    a = array("I", data)
    if sys.byteorder == "big":
        a.byteswap()
    return memoryview(a)  # slices of it are cheap


def _meta(program: Program) -> bytes:
    buffers = [{**asdict(b), "data": len(b.data)} for b in program.buffers]
    meta = {
        "name": program.name,
        "chip": program.chip,
        "chip_digest": program.chip_digest,
        "patterns": len(program.patterns),
        "kernels": [k.name for k in program.kernels],
        "buffers": buffers,
        "tokens": [[t.producer, t.consumer] for t in program.tokens],
        "origins": [asdict(o) for o in program.origins],
        "debug": program.debug,
        "groups": [asdict(g) for g in program.groups],
        "probes": [asdict(p) for p in program.probes],
        "vmem_high_water": program.vmem_high_water,
    }
    return json.dumps(meta, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def to_bytes(program: Program) -> bytes:
    """The program as the contents of a `.slb` file.

    Raises:
        EncodingError: something does not fit the encoding.
    """
    code = [w for instr in program.code for w in encode_instruction(instr)]
    patterns = [w for i, p in enumerate(program.patterns) for w in encode_pattern(p, f"pattern {i}")]
    kernels = [w for k in program.kernels for w in encode_kernel(k)]
    data = b"".join(b.data for b in program.buffers)
    bodies = (_bytes(code), _bytes(patterns), _bytes(kernels), data, _meta(program))
    table = b"".join(_ENTRY.pack(name, len(body)) for name, body in zip(_SECTIONS, bodies, strict=True))
    rest = struct.pack("<I", len(bodies)) + table + b"".join(bodies)
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(rest), len(bodies)) + rest[4:]


def _sections(data: bytes, what: str) -> dict[bytes, bytes]:
    if len(data) < _HEAD.size:
        raise BinaryError(f"{what}: {len(data)} bytes: too short for a systolith binary")
    magic, version, crc, count = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BinaryError(f"{what}: not a systolith binary")
    if version != VERSION:
        raise BinaryError(f"{what}: version {version}: this systolith reads version {VERSION}")
    if zlib.crc32(data[_CRC_FROM:]) != crc:
        raise BinaryError(f"{what}: checksum is wrong: the file is damaged or truncated")
    at = _HEAD.size + _ENTRY.size * count
    entries = [_ENTRY.unpack_from(data, _HEAD.size + _ENTRY.size * i) for i in range(count)] if at <= len(data) else []
    out: dict[bytes, bytes] = {}
    for name, length in entries:
        out[name] = data[at : at + length]
        at += length
    if set(out) != set(_SECTIONS) or at != len(data):
        raise BinaryError(f"{what}: sections {sorted(out)} do not make up the file")
    return out


def _read_table(
    words: Sequence[int], count: int, decode: Callable[[Sequence[int], int], tuple[T, int]], what: str
) -> list[T]:
    out, at = [], 0
    for i in range(count):
        item, size = decode(words[at:], i)
        out.append(item)
        at += size
    if at != len(words):
        raise BinaryError(f"{what}: {len(words) - at} words are left over")
    return out


def _buffers(rows: list[dict[str, Any]], data: bytes) -> list[BufferDecl]:
    out, at = [], 0
    for row in rows:
        end = at + row["data"]
        fields = {**row, "data": data[at:end], "role": Role(row["role"]), "dims": tuple(row["dims"])}
        out.append(BufferDecl(**fields))
        at = end
    if at != len(data):
        raise BinaryError(f"constants: {len(data)} bytes, the buffer table says {at}")
    return out


def _location(row: dict[str, Any]) -> Location:
    return Location(**{**row, "dims": tuple(row["dims"]), "strides": tuple(row["strides"])})


def group_of(row: dict[str, Any]) -> GroupInfo:
    """The group in a JSON object."""
    return GroupInfo(**{**row, "hlo": tuple(row["hlo"]), "opcodes": tuple(row["opcodes"])})


def probe_of(row: dict[str, Any]) -> Probe:
    """The probe in a JSON object."""
    inputs, outputs = (tuple(_location(x) for x in row[k]) for k in ("inputs", "outputs"))
    return Probe(row["group"], row["first"], row["last"], inputs, outputs)


def from_bytes(data: bytes, what: str = "binary") -> Program:
    """The program in the contents of a `.slb` file; `what` names it in errors.

    Raises:
        BinaryError: damaged, truncated, of another version, or holding what does not decode.
    """
    sections = _sections(data, what)
    try:
        meta = json.loads(sections[b"META"])
        names = meta["kernels"]
        kernels = _read_table(
            _words(sections[b"KERN"], what), len(names), lambda w, i: decode_kernel(w, names[i]), f"{what}: kernels"
        )
        patterns = _read_table(
            _words(sections[b"PATT"], what),
            meta["patterns"],
            lambda w, i: decode_pattern(w, f"pattern {i}"),
            f"{what}: patterns",
        )
        return Program(
            meta["name"],
            meta["chip"],
            meta["chip_digest"],
            decode_code(_words(sections[b"CODE"], what)),
            patterns,
            kernels,
            _buffers(meta["buffers"], sections[b"DATA"]),
            [TokenDecl(*t) for t in meta["tokens"]],
            [Origin(**o) for o in meta["origins"]],
            meta["debug"],
            [group_of(g) for g in meta["groups"]],
            [probe_of(p) for p in meta["probes"]],
            meta["vmem_high_water"],
        )
    except EncodingError as e:
        raise BinaryError(f"{what}: {e}") from None
    except (ValueError, KeyError, TypeError) as e:
        raise BinaryError(f"{what}: the META section does not say what it must: {e}") from None


def save(program: Program, path: str | Path) -> None:
    """Write a `.slb` file: the whole of it, or nothing.

    Raises:
        EncodingError: something does not fit the encoding.
        BinaryError: the file cannot be written.
    """
    data, path = to_bytes(program), Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise BinaryError(f"{path}: {e.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as e:
        raise BinaryError(f"{path}: {e.strerror}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def load(path: str | Path) -> Program:
    """Read a `.slb` file.

    Raises:
        BinaryError: it cannot be read, or is damaged, truncated, or of another version.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise BinaryError(f"{path}: {e.strerror}") from None
    return from_bytes(data, str(path))
