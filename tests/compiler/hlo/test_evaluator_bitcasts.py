"""`bitcast-convert` between every two element types, also of different widths, against XLA."""

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.values.bitcasts import bit_width
from systolith.compiler.hlo.values.convert import to_file
from systolith.isa.dtypes import Kind
from tests.compiler.hlo.oracle import by_emitters, run_xla
from tests.compiler.hlo.test_evaluator_types import each, values

pytest.importorskip("jax")

TYPES = [n for n, t in ELEMENT_TYPES.items() if t.kind not in (Kind.COMPLEX, Kind.PRED) and t.bits > 1]


@pytest.mark.parametrize("source", each(TYPES))
def test_every_pair(source: str) -> None:
    for lines in by_emitters([(target, "") for target in TYPES]):
        compare(source, [target for target, _ in lines])


def compare(source: str, targets: list[str]) -> None:
    """The bits of one type as those of others, in one module."""
    x = np.tile(values(source), 64)[:64]
    width = bit_width(ELEMENT_TYPES[source])
    lines, shapes = [f"p = {source}[64] parameter(0)"], []
    for target in targets:
        other = bit_width(ELEMENT_TYPES[target])
        operand, sizes = "p", "64" if width == other else f"64,{width // other}"
        if width < other:
            operand, sizes = f"s{target}", f"{64 * width // other}"
            lines.append(f"{operand} = {source}[{sizes},{other // width}] reshape(p)")
        lines.append(f"r{target} = {target}[{sizes}] bitcast-convert({operand})")
        shapes.append(f"{target}[{sizes}]")
    lines.append(f"ROOT t = ({', '.join(shapes)}) tuple({', '.join(f'r{t}' for t in targets)})")
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}"
    for target, a, b in zip(targets, evaluate(parse_hlo(text), x), run_xla(text, x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(to_file(a), to_file(b), err_msg=f"{source} to {target}")


def test_predicates_to_themselves() -> None:
    text = "HloModule m\nENTRY e { x = pred[3] parameter(0) ROOT y = pred[3] bitcast-convert(x) }"
    (result,) = evaluate(parse_hlo(text), np.array([True, False, True]))
    np.testing.assert_array_equal(result, [True, False, True])


def test_complex_numbers_have_no_other_type() -> None:
    text = "HloModule m\nENTRY e { x = c64[2] parameter(0) ROOT y = f32[2,2] bitcast-convert(x) }"
    with pytest.raises(HloError, match=r"bitcast-convert 'y' \(f32\[2,2\]\): bitcast-convert takes no complex type"):
        evaluate(parse_hlo(text), np.zeros(2, np.complex64))
