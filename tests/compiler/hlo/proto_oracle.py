"""Serialized modules from XLA, and the text that XLA prints of them: the oracle of the reader of protos."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

_HEAD = """HloModule m

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[4,4] parameter(0)
  i = s32[] parameter(1)
  t = token[] parameter(2)
  c = pred[] parameter(3)
"""


def _hlo() -> Any:
    return importlib.import_module("jaxlib._hlo")  # its bindings have no types


def around(instruction: str) -> str:
    """A module whose root is this instruction; it may use p: f32[4,4], i: s32[], t: token[], c: pred[], add."""
    return f"{_HEAD}  ROOT r = {instruction}\n}}\n"


@cache
def serialized(text: str) -> bytes:
    """The HloModuleProto that XLA makes of a text."""
    data: bytes = _hlo().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return data


def text_of(data: bytes) -> str:
    """XLA's text of a serialized module."""
    hlo = _hlo()
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    text: str = hlo.HloModule.from_serialized_hlo_module_proto(data).to_string(options)
    return text
