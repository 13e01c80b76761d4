"""The `.slb` file: a program as bytes.

    magic 8 bytes, version u32, CRC-32 u32 of everything after it, number of sections u32,
    then for each section: name 4 bytes, length in bytes u64; then the sections' bytes, one after another.

Sections: `CODE`, `PATT`, `KERN` (32-bit little-endian words), `DATA` (initial contents of constants, one after
another), `META` (JSON: chip with all its values, buffer table, tokens, kernel names, and the debug map).  Integers are
little-endian.  The bytes are a function of the program alone.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from systolith.isa.chip import Chip, chip_of, describe, load_chip, preset_names
from systolith.isa.chip_fields import Ge, Le
from systolith.isa.collection import collection_paused
from systolith.isa.decode import decode_code, decode_kernel, decode_pattern
from systolith.isa.encode import encode_code, encode_kernel, encode_pattern
from systolith.isa.errors import BinaryError, ConfigError, EncodingError
from systolith.isa.files import read_bytes, write_atomic
from systolith.isa.json_values import read_json
from systolith.isa.program import BufferDecl, GroupInfo, Origin, Probe, Program, Role, TokenDecl

MAGIC = b"SYSTOLTH"
VERSION = 2
_HEAD = struct.Struct("<8sIII")
_ENTRY = struct.Struct("<4sQ")
_SECTIONS = (b"CODE", b"PATT", b"KERN", b"DATA", b"META")
_CRC_FROM = 16  # the CRC covers everything after itself

T = TypeVar("T")
_Count = Annotated[int, Ge(0), Le(2**62 - 1)]


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
    for row in buffers:
        for key in ("sizes", "config"):
            if not row[key]:
                del row[key]
    origins = [asdict(o) for o in program.origins]
    for row in origins:
        if row["expected"] < 0:
            del row["expected"]
    meta = {
        "name": program.name,
        "chip": program.chip,
        "chip_digest": program.chip_digest,
        "target": {row.field: row.value for row in describe(program.target)} if program.target else None,
        "patterns": len(program.patterns),
        "kernels": [k.name for k in program.kernels],
        "buffers": buffers,
        "tokens": [[t.producer, t.consumer] for t in program.tokens],
        "origins": origins,
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
    code = encode_code(program.code)
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


@dataclass(frozen=True)
class _Buffer:
    """An entry of META's buffer table: `BufferDecl` with the length of its data."""

    name: str
    role: Role
    dtype: str
    dims: tuple[_Count, ...]
    bytes: _Count
    number: int
    data: _Count
    alias: int
    sizes: tuple[int, ...] = ()
    config: str = ""
    offset: _Count = 0
    stack: _Count = 1


@dataclass(frozen=True)
class _Meta:
    """The META section, as `_meta` writes it."""

    name: str
    chip: str
    chip_digest: str
    patterns: _Count
    kernels: list[str]
    buffers: list[_Buffer]
    tokens: list[tuple[str, str]]
    origins: list[Origin]
    debug: list[int]
    groups: list[GroupInfo]
    probes: list[Probe]
    vmem_high_water: _Count
    target: dict[str, int | float | bool | str] | None = None  # binaries of earlier versions have none


def _buffers(rows: list[_Buffer], data: bytes) -> list[BufferDecl]:
    out, at = [], 0
    for row in rows:
        end = at + row.data
        out.append(BufferDecl(**{**vars(row), "data": data[at:end]}))
        at = end
    if at != len(data):
        raise BinaryError(f"constants: {len(data)} bytes, the buffer table says {at}")
    return out


def _read_meta(text: bytes, what: str) -> _Meta:
    try:
        return read_json(text, _Meta)
    except BinaryError as e:
        raise BinaryError(f"{what}: the META section does not say what it must: {e}") from None


def _target(meta: _Meta, what: str) -> Chip | None:
    """The chip whose values META has: the preset of its name, if it is that one, which knows where they are from."""
    if meta.target is None:
        if meta.chip not in preset_names():
            return None
        chip = load_chip(meta.chip)
        return chip if chip.digest() == meta.chip_digest else None
    chip = chip_of(meta.target, what)
    if chip.digest() != meta.chip_digest or chip.name != meta.chip:
        raise BinaryError(f"{what}: holds chip {chip.name} {chip.digest()}, but is for {meta.chip} {meta.chip_digest}")
    preset = load_chip(chip.name) if chip.name in preset_names() else chip
    return preset if preset == chip else chip


@collection_paused()
def from_bytes(data: bytes, what: str = "binary") -> Program:
    """The program in the contents of a `.slb` file; `what` names it in errors.

    Raises:
        BinaryError: damaged, truncated, of another version, or holding words that do not decode.
    """
    sections = _sections(data, what)
    try:
        meta = _read_meta(sections[b"META"], what)
        names = meta.kernels
        kernels = _read_table(
            _words(sections[b"KERN"], what), len(names), lambda w, i: decode_kernel(w, names[i]), f"{what}: kernels"
        )
        patterns = _read_table(
            _words(sections[b"PATT"], what),
            meta.patterns,
            lambda w, i: decode_pattern(w, f"pattern {i}"),
            f"{what}: patterns",
        )
        code = decode_code(_words(sections[b"CODE"], what))
        if len(meta.debug) not in (0, len(code)):
            raise BinaryError(f"{what}: debug map of {len(meta.debug)} of {len(code)} instructions")
        return Program(
            meta.name,
            meta.chip,
            meta.chip_digest,
            code,
            patterns,
            kernels,
            _buffers(meta.buffers, sections[b"DATA"]),
            [TokenDecl(*t) for t in meta.tokens],
            meta.origins,
            meta.debug,
            meta.groups,
            meta.probes,
            meta.vmem_high_water,
            _target(meta, what),
        )
    except ConfigError as e:
        raise BinaryError(str(e)) from None
    except EncodingError as e:
        raise BinaryError(f"{what}: {e}") from None
    except ValueError as e:  # of a pattern or a kernel that decodes to an illegal one
        raise BinaryError(f"{what}: {e}") from None


def save(program: Program, path: str | Path) -> None:
    """Write a `.slb` file: the whole of it, or nothing.

    Raises:
        EncodingError: something does not fit the encoding.
        OutputError: the file cannot be written.
    """
    data = to_bytes(program)
    write_atomic(Path(path), lambda handle: handle.write(data))


def load(path: str | Path) -> Program:
    """Read a `.slb` file.

    Raises:
        BinaryError: it cannot be read, or is damaged, truncated, or of another version.
    """
    return from_bytes(read_bytes(path, BinaryError), str(path))
