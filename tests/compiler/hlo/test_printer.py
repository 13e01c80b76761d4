"""IR to HLO text: a parsed text prints back, to the letter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo import parse_hlo, print_hlo, verify
from systolith.compiler.hlo.builder import constant, emit, parameter
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Computation, Module, Style
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.text.codecs import escape, unescape
from systolith.isa.dtypes import DTYPES
from tests.corpus.load import HERE
from tests.examples import examples, with_slow

FILES = sorted(path.name for path in HERE.glob("*.hlo"))


@pytest.mark.parametrize("file", FILES)
def test_corpus_prints_back_to_the_letter(file: str) -> None:
    text = (HERE / file).read_text()
    module = parse_hlo(text, file)
    verify(module)
    assert print_hlo(module) == text


@pytest.mark.parametrize("file", with_slow(FILES[::5], [f for f in FILES if "resnet50" in f]))
def test_styles(file: str) -> None:
    module = parse_hlo((HERE / file).read_text(), file)
    for style in (Style(percent=True, signatures=True), Style(percent=False, signatures=False)):
        again = parse_hlo(print_hlo(module, style))
        verify(again)
        assert print_hlo(again, module.style) == print_hlo(module)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_constants_of_every_type_come_back(case: st.DataObject) -> None:
    dtype = DTYPES[case.draw(st.sampled_from(sorted(DTYPES)))]
    dims = case.draw(st.lists(st.integers(0, 3), max_size=4))
    count = int(np.prod(dims, dtype=int))
    raw = case.draw(st.binary(min_size=count * 16, max_size=count * 16))
    bits = np.frombuffer(raw, np.uint8)
    if dtype.name == "pred":
        value = bits[:count] % 2 == 1
    elif dtype.bits == 4:
        value = (bits[:count] % 8).astype(np.int8).astype(dtype.stored)
    else:
        value = bits[: count * dtype.size].view(dtype.stored)
    entry = Computation("main")
    made = constant(entry, value.reshape(dims), dtype)
    module = Module("m", [entry], entry)
    back = parse_hlo(print_hlo(module))
    verify(back)
    literal = back.entry.result.literal
    assert isinstance(literal, np.ndarray)
    assert isinstance(made.literal, np.ndarray)
    if dtype.is_float and dtype.bits >= 16:
        signalling = np.isnan(made.literal)  # quiet and signalling NaNs print alike but for their payload
        np.testing.assert_array_equal(np.isnan(literal), signalling)
        np.testing.assert_array_equal(np.signbit(literal)[~signalling], np.signbit(made.literal)[~signalling])
    np.testing.assert_array_equal(
        literal.astype(np.complex128 if literal.dtype.kind == "c" else np.float64),
        made.literal.astype(np.complex128 if literal.dtype.kind == "c" else np.float64),
    )
    assert print_hlo(back) == print_hlo(module)


@examples(30, 100)
@given(st.text(max_size=30))
def test_strings_come_back(text: str) -> None:
    assert unescape(escape(text)) == text
    assert escape(text).isascii()


def test_built_modules_print_and_parse() -> None:
    entry = Computation("main")
    x = parameter(entry, array(DTYPES["f32"], (2, 3)), "x")
    one = constant(entry, np.asarray(1, np.float32))
    ones = emit(entry, "broadcast", one, shape=array(DTYPES["f32"], (2, 3)), dimensions=())
    total = emit(entry, "add", x, ones, name="x")
    entry.root = emit(entry, "transpose", total, dimensions=(1, 0))
    module = Module("m", [entry], entry)
    verify(module)
    assert total.name == "x.1"
    assert entry.root.dims == (3, 2)
    assert print_hlo(parse_hlo(print_hlo(module))) == print_hlo(module)


@pytest.mark.parametrize("file", ["lstm_scan.hlo", "cond_switch.opt.hlo"])
def test_a_clone_is_equal_and_separate(file: str) -> None:
    text = (HERE / file).read_text()
    module = parse_hlo(text, file)
    copy = clone(module)
    verify(copy)
    assert print_hlo(copy) == text
    assert not set(copy.instructions()) & set(module.instructions())
    for instruction in copy.instructions():
        instruction.operands.clear()
        instruction.attributes.clear()
    copy.computations.clear()
    assert print_hlo(module) == text
