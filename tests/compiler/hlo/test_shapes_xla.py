"""Every rule against XLA's own shape inference: the same shape, dynamic dimensions and all, or both refuse."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, parse_hlo, verify
from systolith.compiler.hlo.rules.shapes import READS_SHAPE, infer
from systolith.compiler.hlo.shape import TOKEN
from tests.compiler.hlo.shape_cases import OPERATIONS, Operation
from tests.compiler.hlo.xla_shapes import parse_with_xla
from tests.examples import examples

IMPLICIT = frozenset("add maximum subtract divide atan2 and power complex compare".split())


def broadcasts(operation: Operation) -> bool:
    """Whether an elementwise operation has operands of different sizes: inferred by XLA, refused by its verifier."""
    if operation.opcode not in IMPLICIT:
        return False
    texts = [operand.partition("[")[2].replace("<=", "")[:-1] for operand in operation.operands]
    first, second = (text.split(",") if text else [] for text in texts)
    assume("?" not in "".join(texts) or "1" not in first + second)  # where XLA's inference takes a 1 for any size
    return len(first) != len(second) or any(a != b and "?" not in (a, b) for a, b in zip(first, second, strict=True))


def check(operation: Operation) -> None:
    answer = parse_with_xla(operation.module())
    assume(not answer.ended)
    if answer.text is None or broadcasts(operation):
        with pytest.raises(HloError):
            infer(parse_hlo(operation.module("f32[]")).entry.result)
        return
    module = parse_hlo(answer.text)
    root = module.entry.result
    verify(module)
    expected = str(root.shape)
    if root.opcode not in READS_SHAPE:
        root.shape = TOKEN
    assert str(infer(root)) == expected


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@examples(4, 20)
def test_shapes_are_those_of_xla(name: str, data: st.DataObject) -> None:
    check(data.draw(OPERATIONS[name]()))


def test_a_kernel_without_elements_is_refused_as_xla_refuses_it() -> None:
    kernel = Operation(("f32[1,6,4]", "f32[0,4,2]"), "convolution", ", window={size=0}, dim_labels=b0f_0io->b0f")
    assert "non-positive dimension" in str(parse_with_xla(kernel.module()).error)
    with pytest.raises(HloError, match="a window has at least one element in each dimension"):
        infer(parse_hlo(kernel.module("f32[]")).entry.result)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@examples(330, 1000)
def test_many_shapes_are_those_of_xla(name: str, data: st.DataObject) -> None:
    check(data.draw(OPERATIONS[name]()))
