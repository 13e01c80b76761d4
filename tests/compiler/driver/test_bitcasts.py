"""`bitcast` and `bitcast-convert` on the chip give the bits that memory holds, whatever types, widths and layouts."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.convert import from_file, to_file
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.simplify.layouts import NormaliseLayouts
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES
from tests.compiler.machine import Array, compiled, run
from tests.examples import examples

TINY = load_chip("tiny")
WIDTHS = {
    4: ("s4", "u4"),
    8: ("s8", "u8", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
    16: ("s16", "u16", "bf16", "f16"),
    32: ("s32", "u32", "f32"),
    64: ("s64", "u64"),
}
WIDTH = {name: width for width, names in WIDTHS.items() for name in names}
NAMES = st.sampled_from([name for width, names in WIDTHS.items() if width >= 8 for name in names])


def elements(raw: Array, name: str) -> Array:
    """Unsigned numbers as the bits of elements of a type."""
    dtype = DTYPES[name]
    narrow = raw.astype(f"u{dtype.size}")
    if dtype.is_integer and dtype.bits < 8:
        return narrow.astype(np.int8).astype(dtype.stored)
    return narrow.view(dtype.stored)


def assert_bits(text: str, x: Array, wanted: list[Array] | None = None) -> None:
    """The chip gives the evaluator's bits, and the expected ones."""
    found = evaluate(parse_hlo(text), x)
    for a, b in zip(found, wanted or found, strict=True):
        np.testing.assert_array_equal(to_file(a), to_file(b), err_msg=text)
    for a, b in zip(run(compiled(text).program, TINY, [x]), found, strict=True):
        np.testing.assert_array_equal(bytes_of(a), bytes_of(b), err_msg=text)


def bytes_of(x: Array) -> Array:
    return np.ascontiguousarray(to_file(x)).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("source", [*WIDTHS[4], *WIDTHS[8], *WIDTHS[16]])
def test_every_bit_pattern_to_every_type_of_the_same_width(source: str) -> None:
    width = WIDTH[source]
    count = 1 << width
    x = elements(np.arange(count), source)
    targets = WIDTHS[width]
    lines = [f"b{t} = {t}[{count}] bitcast-convert(x)" for t in targets]
    shapes = ", ".join(f"{t}[{count}]" for t in targets)
    lines += [f"ROOT r = ({shapes}) tuple({', '.join(f'b{t}' for t in targets)})"]
    text = "HloModule m\nENTRY e {\n" + "\n".join([f"x = {source}[{count}] parameter(0)", *lines]) + "\n}"
    assert_bits(text, x, [x.view(DTYPES[t].stored) for t in targets] if width >= 8 else None)


def arithmetic(draw: st.DrawFn, shape: str, is_float: bool, n: int) -> list[str]:
    """Value n + 1 from value n; the payload of a NaN that arithmetic gives is left open, so zeros stand for NaNs."""
    if not is_float:
        return [f"v{n + 1} = {shape} {draw(st.sampled_from(['not', 'popcnt', 'negate']))}(v{n})"]
    sizes, element = shape[shape.index("[") :], shape[: shape.index("[")]
    return [
        f"a{n} = {shape} {draw(st.sampled_from(['negate', 'abs', 'floor']))}(v{n})",
        f"f{n} = pred{sizes} is-finite(v{n})",
        f"c{n} = {element}[] constant(0)",
        f"z{n} = {shape} broadcast(c{n}), dimensions={{}}",
        f"v{n + 1} = {shape} select(f{n}, a{n}, z{n})",
    ]


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, Array]:
    """Bitcasts with arithmetic of their types between them, one of each type's own."""
    name = draw(NAMES)
    dims = [draw(st.integers(1, 4)), 2, 4]
    raw = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2**32, dims, np.uint64)
    lines = [f"v0 = {name}{dims} parameter(0)"]
    x = elements(raw, name)
    for n in range(draw(st.integers(2, 6))):
        now = name
        if n % 2:
            lines += arithmetic(draw, f"{now}{dims}", DTYPES[now].is_float, n)
            continue
        fitting = [t for t in WIDTH if 8 <= WIDTH[t] <= WIDTH[now] or WIDTH[t] == dims[-1] * WIDTH[now]]
        name = draw(st.sampled_from(fitting))
        if WIDTH[name] < WIDTH[now]:
            dims = [*dims, WIDTH[now] // WIDTH[name]]
        elif WIDTH[name] > WIDTH[now]:
            dims = dims[:-1]
        lines.append(f"v{n + 1} = {name}{dims} bitcast-convert(v{n})")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}", x


@examples(7, 15)
@given(chains())
def test_fused_with_arithmetic_and_across_widths(case: tuple[str, Array]) -> None:
    assert_bits(*case)


def test_a_bitcast_convert_that_has_no_lowering_is_refused_by_name() -> None:
    text = "HloModule m\nENTRY e { x = s8[2] parameter(0) ROOT y = pred[2,8] bitcast-convert(x) }"
    with pytest.raises(CompileError, match=r"bitcast-convert 'y' \(pred\[2,8\]\): from s8 to pred: .* convert to u8"):
        compiled(text)


def in_memory(x: Array, order: list[int]) -> Array:
    """The bytes of an array whose dimensions lie in an order, major to minor."""
    return bytes_of(x.transpose(order))


@st.composite
def layouts(draw: st.DrawFn, name: str, count: int) -> tuple[list[int], list[int], str]:
    """Sizes of an array, the order of its dimensions in memory, and its shape as text."""
    dims: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        dims.append(draw(st.sampled_from([n for n in range(1, 7) if count % (n * prod(dims)) == 0])))
    dims.append(count // prod(dims))
    order = draw(st.permutations(range(len(dims))))
    minor_to_major = ",".join(map(str, reversed(order)))
    return dims, order, f"{name}{dims}{{{minor_to_major}}}"


@st.composite
def bitcasts(draw: st.DrawFn) -> tuple[str, Array, Array]:
    """A module whose result is a `bitcast` of its parameter, with the argument and the result."""
    source, target = draw(NAMES), draw(NAMES)
    size = 8 * draw(st.sampled_from([1, 2, 3, 6, 30]))
    dims, order, before = draw(layouts(source, 8 * size // WIDTH[source]))
    sizes, back, after = draw(layouts(target, 8 * size // WIDTH[target]))
    raw = np.random.default_rng(size).integers(0, 2**32, dims, np.uint64)
    x = elements(raw, source)
    memory = in_memory(x, order).view(DTYPES[target].stored)
    wanted = memory.reshape([sizes[d] for d in back]).transpose(np.argsort(back))
    plain = f"{source}{dims}"
    where = draw(st.sampled_from(["entry", "call", "fusion", "copies"]))
    body = f"p = {before} parameter(0)\n ROOT b = {after} bitcast(p)"
    if where == "entry":
        return f"HloModule m\nENTRY e {{\n {body}\n}}", x, wanted
    if where == "copies":
        inside = body.replace(f"{before} parameter(0)", f"{before} copy(x)").replace("ROOT ", "")
        lines = f"x = {plain} parameter(0)\n {inside}\n ROOT r = {target}{sizes} copy(b)"
        return f"HloModule m\nENTRY e {{\n {lines}\n}}", x, wanted
    kind = "call(x), to_apply=f" if where == "call" else "fusion(x), kind=kLoop, calls=f"
    text = (
        f"HloModule m\nf {{\n {body}\n}}\nENTRY e {{\n x = {plain} parameter(0)\n ROOT y = {target}{sizes} {kind}\n}}"
    )
    return text, x, wanted


@examples(10, 20)
@given(bitcasts())
def test_a_bitcast_keeps_the_bytes_of_any_layouts(case: tuple[str, Array, Array]) -> None:
    text, x, wanted = case
    assert_bits(text, x, [wanted])


@pytest.mark.parametrize("sizes", ["4", "2,2", "1,4", "4,1"])
def test_a_parameter_given_back_as_parts_of_its_elements(sizes: str) -> None:
    x = np.array([0x1122334455667788, -5])
    text = f"HloModule m\nENTRY e {{\n x = s64[2] parameter(0)\n ROOT r = u32[{sizes}] bitcast(x)\n}}"
    assert_bits(text, x, [x.view(np.uint32).reshape([int(n) for n in sizes.split(",")])])


TILES = ["T(8,128)", "T(2,4)", "T(4)", "T(2,4)(2,1)", "T(*,4)", "T(2,1,4)S(1)"]


@given(st.data())
def test_a_bitcast_between_tiled_layouts_is_the_same_in_other_operations(data: st.DataObject) -> None:
    dims, _, before = data.draw(layouts("s32", 48))
    tile = data.draw(st.sampled_from(TILES))
    tiled = before.replace("}", f":{tile}}}")
    text = f"HloModule m\nENTRY e {{\n x = {tiled} parameter(0)\n ROOT b = {tiled} bitcast(x)\n}}"
    x = np.arange(48, dtype=np.int32).reshape(dims)
    module = parse_hlo(text)
    np.testing.assert_array_equal(evaluate(module, x)[0], x)
    NormaliseLayouts().run(module)
    np.testing.assert_array_equal(evaluate(module, x)[0], x)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s32[16,8]{1,0:T(8,4)}", "s32[2,2,8,4]{3,2,1,0}"),
        ("s32[16,8]{0,1:T(8,4)}", "s32[2,4,4,4]{3,2,1,0}"),
        ("s32[3,8]{1,0:T(2,4)}", "s32[2,2,2,4]{3,2,1,0}"),
        ("s16[4,8]{1,0:T(4,8)(2,1)}", "s32[2,8]{1,0}"),
        ("s32[5]{0:T(8)}", "s32[1,5]{1,0:T(1,8)}"),
    ],
)
def test_a_bitcast_takes_tiles_apart(before: str, after: str) -> None:
    text = f"HloModule m\nENTRY e {{\n x = {before} parameter(0)\n ROOT b = {after} bitcast(x)\n}}"
    shape = parse_hlo(text).entry.parameters[0].shape
    x = from_file(np.arange(1, 1 + shape.size, dtype=shape.dtype.stored).reshape(shape.dims), shape)
    assert_bits(text, x)


def test_a_bitcast_to_more_bytes_is_refused() -> None:
    text = "HloModule m\nENTRY e { x = s32[5]{0:T(8)} parameter(0) ROOT b = s32[5]{0} bitcast(x) }"
    match = r"bitcast 'b' \(s32\[5\]\): it has to keep the bits in memory, but s32\[5\]\{0:T\(8\)\} takes 256 and"
    with pytest.raises(CompileError, match=match):
        compiled(text)
