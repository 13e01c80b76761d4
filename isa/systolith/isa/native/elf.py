"""Whether bytes are object code that LLVM can load: it takes any for such, and crashes on others.

Only the output of its code generator for a `Library` is known here: ELF relocatable objects of 64 bits, little-endian.
Everything that loading follows (offsets, sizes, indices, names, kinds of relocation) is checked, not the machine code.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_IDENT = b"\x7fELF\2\1\1"
_RELOCATABLE = 1
_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELA = range(5)
_FLAGS = 0x1000_0076  # sections loaded, executed, merged, of strings, with an `info`, large; not: written, of a thread
_FUNCTION = 0x12  # a global one
_REFERRED = (3, 0x10, _FUNCTION)  # kinds of symbols: a section, global ones
_NAMES = (0, 4)  # none, a file
_CODE = 6  # section flags: to be loaded, to be executed
_RELOCATED = 8  # bytes, at most

# Number and relocations of each machine; those that LLVM loads into memory by itself, that is, without tables.
_MACHINES = {
    "x86_64": (62, {1, 2, 4, 10, 11, 24}),
    "aarch64": (183, {257, 258, 260, 261, *range(263, 270), 275, 277, 278, *range(282, 287), 299}),
}


class _Section(NamedTuple):
    """Of the section table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


def is_object(data: bytes, functions: Iterable[str], known: Callable[[str], bool]) -> bool:
    """Whether it is object code for this machine that can be loaded and defines the functions.

    Args:
        data: the bytes.
        functions: names.
        known: whether the process has a symbol of this name.
    """
    try:
        _check(data, set(functions), known)
    except (struct.error, IndexError, ValueError):
        return False
    return True


def _require(good: bool) -> None:
    if not good:
        raise ValueError


def _check(data: bytes, functions: set[str], known: Callable[[str], bool]) -> None:
    ident, kind, machine, _, _, _, start, _, size, _, _, entry, count, names = _HEADER.unpack_from(data)
    number, relocations = _MACHINES.get(platform.machine(), (0, set()))
    _require(ident.startswith(_IDENT) and kind == _RELOCATABLE and machine == number)
    _require((size, entry) == (_HEADER.size, _SECTION.size) and start + entry * count <= len(data))
    sections = [_Section(*_SECTION.unpack_from(data, start + entry * i)) for i in range(count)]
    _require(sections[0].kind == _NULL and sections[names].kind == _STRTAB)
    for s in sections:
        _require(s.kind <= _RELA and s.offset + s.size <= len(data) and s.address == 0)
        _require(s.flags & ~_FLAGS == 0 and s.align <= 4096 and s.align & (s.align - 1) == 0)
        _require(s.kind != _STRTAB or (s.size > 0 and data[s.offset + s.size - 1] == 0))
        _require(_name(data, sections[names], s.name) != ".eh_frame")
    (table,) = (s for s in sections if s.kind == _SYMTAB)
    symbols = list(_symbols(data, sections, table, known))
    _require(functions <= {name for kind, name in symbols if kind == _FUNCTION})
    for s in sections:
        if s.kind == _RELA:
            _require(sections[s.link] is table and sections[s.info].kind == _PROGBITS)
            for offset, about, _ in _entries(_RELOCATION, data, s):
                _require(offset + _RELOCATED <= sections[s.info].size and about & 0xFFFFFFFF in relocations)
                _require(symbols[about >> 32][0] in _REFERRED)


def _symbols(
    data: bytes, sections: list[_Section], table: _Section, known: Callable[[str], bool]
) -> Iterator[tuple[int, str]]:
    """Check the symbols; give the kind and the name of each."""
    strings = sections[table.link]
    _require(strings.kind == _STRTAB and table.info <= table.size // _SYMBOL.size)
    for at, kind, visibility, index, value, size in _entries(_SYMBOL, data, table):
        name = _name(data, strings, at)
        _require(kind in _REFERRED + _NAMES and visibility == 0)
        if kind == _FUNCTION:
            _require(sections[index].flags & _CODE == _CODE)
        if kind in _REFERRED and index:
            _require(sections[index].kind == _PROGBITS and value + size <= sections[index].size)
        elif kind in _REFERRED:
            _require(known(name))
        yield kind, name


def _entries(form: struct.Struct, data: bytes, section: _Section) -> Iterable[tuple[int, ...]]:
    _require(section.entry == form.size and section.size % form.size == 0)
    return form.iter_unpack(data[section.offset : section.offset + section.size])


def _name(data: bytes, strings: _Section, at: int) -> str:
    _require(at < strings.size)
    text = data[strings.offset + at : strings.offset + strings.size]
    return text[: text.index(0)].decode("ascii")
