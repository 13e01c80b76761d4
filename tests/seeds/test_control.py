"""Tuples, calls, composites, map, conditional, while, infeed, dynamic sizes, custom calls, tokens, barriers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo import parse_hlo, print_hlo, verify
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.values.custom_calls import CUSTOM_CALLS, CustomCall, register
from systolith.compiler.hlo.values.devices import Host
from systolith.compiler.hlo.values.evaluator import DeviceResult, evaluate_devices
from tests.seeds.run import check, constant, results, scalar_computation


def _function(name: str, shape: str, body: Any) -> sl.XlaComputation:
    """A computation of one parameter."""
    b = sl.XlaBuilder(name)
    return b.build(body(b, b.Parameter(0, sl.Shape.parse(shape), "x")))


def _pair(b: sl.XlaBuilder) -> sl.XlaOp:
    return b.tuple([constant(b, np.arange(10)), b.ConstantR0(5, "s32")])


def test_tuple_of_vector_and_scalar() -> None:
    b = sl.XlaBuilder("tuple")
    root = _pair(b)
    assert str(b.GetShape(root)) == "(f32[10], s32[])"
    check(b, root, np.arange(10), 5)


def test_get_tuple_element_has_its_shape() -> None:
    b = sl.XlaBuilder("tuple")
    element = b.GetTupleElement(_pair(b), 1)
    assert str(b.GetShape(element)) == "s32[]"
    check(b, element, 5)


def test_call_with_and_without_arguments() -> None:
    b = sl.XlaBuilder("five")
    five = b.Build(b.ConstantR0(5.0))
    b = sl.XlaBuilder("call")
    x = constant(b, [1, 2])
    double = _function("double", "f32[2]", lambda f, p: f.Add(p, p))
    check(b, b.Tuple([b.Call(five, []), b.Call(double, [x])]), 5, [2, 4])


@pytest.mark.parametrize("arguments", [[], [1.0, 2.0], [np.ones(3)]])
def test_call_with_other_arguments_is_refused(arguments: list[Any]) -> None:
    b = sl.XlaBuilder("call")
    b.Call(_function("same", "f32[]", lambda f, p: p), [constant(b, a) for a in arguments])
    with pytest.raises(HloError):
        b.Build()


COMPOSITE = """HloModule composite

%decomposition (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %double = f32[] add(%x, %x)
}

ENTRY %main (cst: f32[]) -> f32[] {
  %cst = f32[] parameter(0)
  ROOT %call = f32[] call(%cst), to_apply=%decomposition, is_composite=true, frontend_attributes={ATTRIBUTES}
}
"""
ATTRIBUTES = 'composite.name="foo.bar",composite.attributes={n = 1 : i32, tensor = dense<1> : tensor<i32>},'


def test_composite_call_in_text() -> None:
    module = parse_hlo(COMPOSITE.replace("ATTRIBUTES", ATTRIBUTES + 'composite.version="1"'))
    verify(module)
    text = print_hlo(module)
    assert all(part in text for part in ('composite.name="foo.bar"', 'composite.version="1"', "is_composite=true"))
    assert "{n = 1 : i32, tensor = dense<1> : tensor<i32>}" in text
    assert print_hlo(parse_hlo(text)) == text
    assert sl.evaluate(module, np.array(4.0, np.float32)) == [8.0]


@pytest.mark.parametrize("version", [None, 1])
def test_composite_call_is_a_call_with_attributes(version: int | None) -> None:
    b = sl.XlaBuilder("composite")
    double = _function("double", "f32[]", lambda f, p: f.Add(p, p))
    more = {} if version is None else {"version": version}
    root = b.CompositeCall(double, [b.ConstantR0(4.0)], "foo.bar", "{n = 1 : i32}", **more)
    check(b, root, 8.0)
    text = print_hlo(b.Build(root).module())
    assert "is_composite=true" in text
    assert all(part in text for part in ('"foo.bar"', "n = 1 : i32", f'composite.version="{version or 0}"'))


def test_map_applies_a_scalar_function() -> None:
    """Elem = f(elem1, elem2, elem3, par1): the last is the same for all, as a static operand was."""
    b = sl.XlaBuilder("f")
    p = [b.Parameter(n, sl.make_shape("f32", []), f"p{n}") for n in range(3)]
    function = b.Build(b.Add(b.Mul(p[0], p[1]), b.Sub(p[2], b.ConstantR0(2.0))))
    ops = np.arange(18).reshape(3, 2, 3)
    b = sl.XlaBuilder("map")
    root = b.Map([constant(b, op) for op in ops], function, [0, 1])
    check(b, root, ops[0] * ops[1] + (ops[2] - 2))


def test_map_with_a_static_operand() -> None:
    b = sl.XlaBuilder("f")
    p = [b.Parameter(n, sl.make_shape("f32", []), f"p{n}") for n in range(4)]
    function = b.Build(b.Add(b.Mul(p[0], p[1]), b.Sub(p[2], p[3])))
    ops = np.arange(18).reshape(3, 2, 3)
    b = sl.XlaBuilder("map")
    root = b.Map([constant(b, op) for op in ops], function, [0, 1], static_operands=[b.ConstantR0(2.0)])
    check(b, root, ops[0] * ops[1] + (ops[2] - 2))


def test_map_may_change_the_type() -> None:
    b = sl.XlaBuilder("map")
    root = b.Map([constant(b, [1, 5]), constant(b, [4, 2])], scalar_computation("Lt"), [0])
    check(b, root, [True, False])


@pytest.mark.parametrize("pred", [True, False])
def test_conditional_by_predicate(pred: bool) -> None:
    b = sl.XlaBuilder("conditional")
    one = _function("double", "f32[2]", lambda f, p: f.ReduceAll(p, f.ConstantR0(0.0), scalar_computation("Add")))
    other = _function("negate", "f32[]", lambda f, p: f.Neg(p))
    root = b.Conditional(b.ConstantR0(pred), constant(b, [3, 4]), one, b.ConstantR0(5.0), other)
    check(b, root, 7 if pred else -5)


@pytest.mark.parametrize("index", [-7, -1, 0, 1, 2, 3, 100])
def test_conditional_by_index_has_a_default(index: int) -> None:
    b = sl.XlaBuilder("conditional")
    branches = [_function(f"times{n}", "f32[]", lambda f, p, n=n: f.Mul(p, f.ConstantR0(float(n)))) for n in range(3)]
    operands = [b.ConstantR0(v) for v in (10.0, 20.0, 30.0)]
    root = b.Conditional(b.ConstantR0(index, "s32"), branches, operands)
    check(b, root, [0, 20, 60][index if 0 <= index < 3 else 2])


@pytest.mark.parametrize("pred", [True, False])
def test_only_one_branch_of_a_conditional_runs(pred: bool) -> None:
    """Each takes another number of items from the infeed."""
    b = sl.XlaBuilder("conditional")
    shape = sl.Shape.parse("f32[]")
    one = _function("one", "f32[]", lambda f, p: f.Infeed(shape))
    two = _function("two", "f32[]", lambda f, p: f.Sub(f.Infeed(shape), f.Infeed(shape)))
    root = b.Conditional(b.ConstantR0(pred), b.ConstantR0(0.0), one, b.ConstantR0(0.0), two)
    found = _fed(b, root, [1.0, 2.0])
    assert found.values == [1.0 if pred else -1.0]
    assert len(found.infeed_left) == (1 if pred else 0)


def _loop(limit: int, shape: sl.Shape, step: Any) -> tuple[sl.XlaComputation, sl.XlaComputation]:
    """Condition and body of a loop whose first element counts to a limit."""
    b = sl.XlaBuilder("condition")
    condition = b.Build(b.Lt(b.GetTupleElement(b.Parameter(0, shape, "p"), 0), b.ConstantR0(limit, "s32")))
    b = sl.XlaBuilder("body")
    p = b.Parameter(0, shape, "p")
    count = b.Add(b.GetTupleElement(p, 0), b.ConstantR0(1, "s32"))
    return condition, b.Build(b.Tuple([count, step(b, b.GetTupleElement(p, 1))]))


def test_while_adds_a_vector_a_thousand_times() -> None:
    constant_vector = np.arange(10) / 8
    shape = sl.Shape.parse("(s32[], f32[10])")
    condition, body = _loop(1000, shape, lambda b, vector: b.Add(vector, constant(b, constant_vector)))
    b = sl.XlaBuilder("while")
    init = b.Tuple([b.ConstantR0(0, "s32"), constant(b, np.zeros(10))])
    check(b, b.While(condition, body, init), 1000, 1000 * constant_vector)


def test_while_of_no_iterations_gives_its_init() -> None:
    condition, body = _loop(0, sl.Shape.parse("(s32[], f32[])"), lambda b, x: b.Neg(x))
    b = sl.XlaBuilder("while")
    check(b, b.While(condition, body, b.Tuple([b.ConstantR0(3, "s32"), b.ConstantR0(1.0)])), 3, 1)


def test_while_nests() -> None:
    """The oldest seeds do not allow it; later ones, and XLA, do."""
    shape = sl.Shape.parse("(s32[], f32[])")
    inner = _loop(3, shape, lambda b, x: b.Add(x, b.ConstantR0(1.0)))
    condition, body = _loop(
        4,
        shape,
        lambda b, x: b.GetTupleElement(b.While(*inner, b.Tuple([b.ConstantR0(0, "s32"), x])), 1),
    )
    b = sl.XlaBuilder("while")
    check(b, b.While(condition, body, b.Tuple([b.ConstantR0(0, "s32"), b.ConstantR0(0.0)])), 4, 12)


def _fed(b: sl.XlaBuilder, root: sl.XlaOp, items: Sequence[Any]) -> DeviceResult:
    """One device's run with items in its infeed."""
    module = b.Build(root).module()
    verify(module)
    assert print_hlo(parse_hlo(print_hlo(module))) == print_hlo(module)
    values: list[Literal] = [sl.Literal.create(item).value for item in items]
    (result,) = evaluate_devices(module, [[]], hosts=[Host(infeed=values)])
    return result


def test_infeed_in_two_loops_has_a_total_order() -> None:
    """Each loop runs while the item that it read is positive; the second starts with the first's result."""
    shape = sl.Shape.parse("f32[]")
    b = sl.XlaBuilder("condition")
    condition = b.Build(b.Gt(b.Parameter(0, shape, "last"), b.ConstantR0(0.0)))
    b = sl.XlaBuilder("body")
    b.Parameter(0, shape, "last")
    body = b.Build(b.Infeed(shape))
    b = sl.XlaBuilder("infeed")
    first = b.While(condition, body, b.ConstantR0(1.0))
    second = b.While(condition, body, b.Neg(first))
    found = _fed(b, b.Tuple([first, second]), [5.0, 3.0, -2.0, 4.0, 0.0, 9.0])
    assert found.values == [-2.0, 0.0]
    assert found.infeed_left == [9.0]


def test_infeed_of_a_tuple() -> None:
    b = sl.XlaBuilder("infeed")
    root = b.Infeed(sl.Shape.parse("(f32[2], s32[])"))
    found = _fed(b, root, [(np.array([1, 2], np.float32), np.int32(3))])
    np.testing.assert_array_equal(found.values[0], [1, 2])
    assert found.values[1] == 3


def test_infeed_of_an_empty_tuple_reads_nothing() -> None:
    b = sl.XlaBuilder("infeed")
    b.Infeed(sl.Shape.parse("()"))
    found = _fed(b, b.Infeed(sl.Shape.parse("f32[]")), [7.0])
    assert found.values == [7.0]


def test_infeed_of_a_nested_tuple_is_refused() -> None:
    b = sl.XlaBuilder("infeed")
    b.Infeed(sl.Shape.parse("((f32[]), s32[])"))
    with pytest.raises(HloError, match="nested"):
        b.Build()


def test_set_dimension_size_bounds_reductions() -> None:
    b = sl.XlaBuilder("set_dimension_size")
    v = constant(b, np.arange(1, 11))
    five, six = (b.SetDimensionSize(v, b.ConstantR0(n, "s32"), 0) for n in (5, 6))
    assert b.GetShape(five).dims == (10,)
    add, mul = scalar_computation("Add"), scalar_computation("Mul")
    zero, one = b.ConstantR0(0.0), b.ConstantR0(1.0)
    sums = [b.Reduce(five, zero, add, [0]), b.Reduce(five, one, mul, [0]), b.Reduce(six, zero, add, [0])]
    check(b, b.Tuple(sums), 1 + 2 + 3 + 4 + 5, 1 * 2 * 3 * 4 * 5, 1 + 2 + 3 + 4 + 5 + 6)


@given(st.integers(0, 10))
@settings(max_examples=5)
def test_get_dimension_size_gives_the_actual_size(size: int) -> None:
    b = sl.XlaBuilder("get_dimension_size")
    v = constant(b, np.zeros((10, 3)))
    bounded = b.SetDimensionSize(v, b.ConstantR0(size, "s32"), 0)
    sizes = [b.GetDimensionSize(x, d) for x, d in ((v, 0), (v, 1), (bounded, 0))]
    check(b, b.Tuple(sizes), 10, 3, size)


Register = Callable[[str, CustomCall], None]


@pytest.fixture
def registered() -> Iterator[Register]:
    """Registers functions for one test."""
    before = set(CUSTOM_CALLS)
    yield register
    for target in set(CUSTOM_CALLS) - before:
        del CUSTOM_CALLS[target]


def test_custom_call_of_a_registered_function(registered: Register) -> None:
    """Myfunc checks its inputs and writes one element of its output, as in the seeds."""

    def myfunc(_: Instruction, operands: list[Literal]) -> Literal:
        x, y = (np.asarray(o) for o in operands)
        np.testing.assert_array_equal(x, [1, 2])
        np.testing.assert_array_equal(y, [[10, 20, 30], [40, 50, 60]])
        z = np.zeros((3, 3), np.float32)
        z[0, 0] = x[1] + y[1, 0]
        return z

    registered("seeds.myfunc", myfunc)
    b = sl.XlaBuilder("custom_call")
    operands = [constant(b, [1, 2]), constant(b, [[10, 20, 30], [40, 50, 60]])]
    expected = np.zeros((3, 3))
    expected[0, 0] = 42
    check(b, b.CustomCall("seeds.myfunc", operands, sl.Shape.parse("f32[3,3]")), expected, xla=False)


def test_custom_call_passes_any_number_of_operands_of_any_type(registered: Register) -> None:
    def count(_: Instruction, operands: list[Literal]) -> Literal:
        return np.array(len(operands), np.int32)

    registered("seeds.count", count)
    b = sl.XlaBuilder("custom_call")
    lists: list[list[Any]] = [[], [b.ConstantR0(1.0)], [b.ConstantR0(True), _pair(b), constant(b, [1], "s8")]]
    roots = [b.CustomCall("seeds.count", operands, sl.Shape.parse("s32[]")) for operands in lists]
    check(b, b.Tuple(roots), 0, 1, 3, xla=False)


def test_custom_call_of_an_unknown_target_is_refused() -> None:
    b = sl.XlaBuilder("custom_call")
    root = b.CustomCall("seeds.unknown", [], sl.Shape.parse("f32[]"))
    with pytest.raises(HloError, match=r"seeds\.unknown"):
        results(b, root, xla=False)


def test_after_all_joins_tokens() -> None:
    b = sl.XlaBuilder("after_all")
    token = b.AfterAll([b.CreateToken(), b.CreateToken()])
    assert str(b.GetShape(token)) == "token[]"
    data = b.GetTupleElement(b.InfeedWithToken(token, sl.Shape.parse("f32[]")), 0)
    assert _fed(b, data, [4.0]).values == [4.0]


def test_optimization_barrier_passes_its_operand() -> None:
    b = sl.XlaBuilder("barrier")
    check(b, b.OptimizationBarrier(_pair(b)), np.arange(10), 5)
