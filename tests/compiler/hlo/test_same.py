"""Modules that are the same: copies are; whatever is changed of one is seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.same import same
from systolith.compiler.hlo.text.parser import parse_hlo

TEXT = """HloModule t, frontend_attributes={a="b"}
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
sum { c = f32[] parameter(0)  d = f32[] parameter(1)  ROOT u = f32[] add(c, d) }
ENTRY e {
  x = f32[4,8] parameter(0)
  y = f32[4,8] parameter(1)
  k = f32[2] constant({0, nan})
  z = f32[] constant(0)
  m = f32[4,8] subtract(x, y), metadata={op_name="less"}
  ROOT r = f32[4] reduce(m, z), dimensions={1}, to_apply=add
}
"""


def _of(module: Module, name: str) -> Instruction:
    return next(i for c in module.computations for i in c.instructions if i.name == name)


def _called(module: Module) -> None:
    other = next(c for c in module.computations if c.name == "sum")
    _of(module, "r").attributes["to_apply"] = other


def _entry(module: Module) -> None:
    module.entry = module.computations[0]


def _more(module: Module) -> None:
    module.computations.append(Computation("more"))


CHANGES: dict[str, Callable[[Module], object]] = {
    "module's name": lambda m: setattr(m, "name", "other"),
    "module's attribute": lambda m: m.attributes.clear(),
    "entry": _entry,
    "computation": _more,
    "computation's name": lambda m: setattr(m.entry, "name", "other"),
    "root": lambda m: setattr(m.entry, "root", _of(m, "m")),
    "name": lambda m: setattr(_of(m, "m"), "name", "other"),
    "opcode": lambda m: setattr(_of(m, "m"), "opcode", "add"),
    "shape": lambda m: setattr(_of(m, "m"), "shape", parse_hlo(TEXT.replace("4,8", "8,4")).entry.parameters[0].shape),
    "operands": lambda m: _of(m, "m").operands.reverse(),
    "number": lambda m: setattr(_of(m, "x"), "number", 3),
    "line": lambda m: setattr(_of(m, "m"), "line", 0),
    "literal": lambda m: setattr(_of(m, "z"), "literal", np.array(-0.0, np.float32)),
    "type of literal": lambda m: setattr(_of(m, "z"), "literal", np.array(0, np.int32)),
    "no literal": lambda m: setattr(_of(m, "z"), "literal", None),
    "attribute": lambda m: _of(m, "r").attributes.update(dimensions=(0,)),
    "order of attributes": lambda m: _of(m, "r").attributes.update(dimensions=_of(m, "r").attributes.pop("dimensions")),
    "metadata": lambda m: _of(m, "m").metadata.update(op_name="more"),
    "called computation": _called,
    "order of instructions": lambda m: m.entry.instructions.insert(1, m.entry.instructions.pop(0)),
}


def test_a_copy_is_the_same() -> None:
    module = parse_hlo(TEXT)
    assert same(module, module)
    copy = clone(module)
    assert same(module, copy)
    literal = _of(copy, "k").literal
    assert isinstance(literal, np.ndarray)
    _of(copy, "k").literal = literal.copy()
    assert same(module, copy), "bits count, of NaN too"


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str) -> None:
    module = parse_hlo(TEXT)
    copy = clone(module)
    CHANGES[what](copy)
    assert not same(module, copy)
    assert not same(copy, module)
