"""The oldest seed's tour of the client: axpy from parameters and from constants, moving data, and the builder."""

import logging

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.seeds.run import Array, check, constant

ALPHA, X, Y = 3.0, np.arange(10, dtype=np.float32) - 4, np.linspace(0, 1, 10, dtype=np.float32)
AXPY = (np.float32(ALPHA) * X + Y).astype(np.float32)


def _axpy(client: sl.Client, alpha: sl.Literal, x: sl.Literal, y: sl.Literal) -> tuple[sl.XlaBuilder, sl.XlaOp]:
    builder = sl.ComputationBuilder(client, "axpy")
    param_alpha = builder.Parameter(0, alpha.shape, "alpha")
    param_x = builder.Parameter(1, x.shape, "x")
    param_y = builder.Parameter(2, y.shape, "y")
    axpy = builder.Add(builder.Mul(param_alpha, param_x), param_y)
    return builder, axpy


def _literals() -> tuple[sl.Literal, sl.Literal, sl.Literal]:
    return sl.LiteralUtil.CreateR0(ALPHA), sl.LiteralUtil.CreateR1(X), sl.LiteralUtil.CreateR1(Y)


def test_axpy_graph_of_parameters() -> None:
    alpha, x, y = _literals()
    builder, root = _axpy(sl.ClientLibrary.ClientLibraryOrDie(), alpha, x, y)
    assert str(builder.GetShape(root)) == "f32[10]"
    check(builder, root, AXPY, arguments=[alpha.array, x.array, y.array])


def test_axpy_builds_a_computation() -> None:
    computation = _axpy(sl.ClientLibrary.ClientLibraryOrDie(), *_literals())[0].Build()
    assert isinstance(computation, sl.XlaComputation)
    assert [str(shape) for shape in computation.program_shape.parameters] == ["f32[]", "f32[10]", "f32[10]"]
    assert str(computation.program_shape.result) == "f32[10]"


def test_axpy_of_parameters_on_the_device() -> None:
    client = sl.ClientLibrary.ClientLibraryOrDie()
    literals = _literals()
    computation = _axpy(client, *literals)[0].Build()
    data = [client.TransferToServer(literal) for literal in literals]
    result = client.ExecuteAndTransfer(computation, data)
    assert result.near(sl.Literal.r1(AXPY), relative=1e-6)
    # The computation is compiled once, and takes other data.
    other = client.transfer_to_server(sl.Literal.r0(0.0))
    assert client.execute_and_transfer(computation, [other, *data[1:]]).near(sl.Literal.r1(Y), absolute=0.0)


def test_axpy_of_constants_on_the_device() -> None:
    client = sl.ClientLibrary.ClientLibraryOrDie()
    builder = sl.ComputationBuilder(client, "axpy")
    constant_alpha = builder.ConstantR0(ALPHA)
    constant_x, constant_y = builder.ConstantR1(X), builder.ConstantR1(Y)
    builder.Add(builder.Mul(constant_alpha, constant_x), constant_y)
    computation = builder.Build()
    assert computation.program_shape.parameters == ()
    assert client.ExecuteAndTransfer(computation, []).near(sl.Literal.r1(AXPY), relative=1e-6)


def test_literals_and_arrays_move_in_and_out() -> None:
    client = sl.ClientLibrary.ClientLibraryOrDie()
    for literal in (*_literals(), sl.Literal.r2([[1, 2], [3, 4]]), sl.Literal.create((1.5, np.array([1, 2], np.int8)))):
        assert client.Transfer(client.TransferToServer(literal)) == literal
    data = client.TransferInProcess(X)
    inside = client.TransferInProcess(data)
    np.testing.assert_array_equal(inside, X)
    assert not inside.flags.writeable
    builder = sl.ComputationBuilder(client, "twice")
    p = builder.Parameter(0, sl.make_shape(sl.F32, [10]), "p")
    builder.Tuple([builder.Add(p, p), p])
    result = client.Execute(builder.Build(), [data])
    assert str(result.shape) == "(f32[10], f32[10])"
    parts = [client.Transfer(part).array for part in result.deconstruct()]
    np.testing.assert_array_equal(parts, [2 * X, X])


def test_arguments_that_do_not_fit_are_refused() -> None:
    client = sl.ClientLibrary.ClientLibraryOrDie()
    computation = _axpy(client, *_literals())[0].Build()
    with pytest.raises(sl.SystolithError, match="takes 3 arguments, got 1"):
        client.ExecuteAndTransfer(computation, [client.TransferToServer(sl.Literal.r0(1.0))])


METHODS = """client name set_die_immediately_on_error Parameter GetShape CheckShape CheckSameShape ConstantLiteral
ConstantR0 ConstantR1 ConstantR2 ConstantR2FromArray2D ConstantR3FromArray3D ConstantR4FromArray4D Broadcast Pad Reshape
Collapse Slice ConcatInDim Trace Select Tuple GetTupleElement Eq Ne Ge Gt Lt Le Dot CreateDefaultConvDimensionNumbers
CreateConvDimensionNumbers Conv ConvWithGeneralPadding ConvWithGeneralDimensions ConvGeneral Infeed CustomCallOp Add Sub
Mul Div Rem Max Min Reduce ReduceWindow ReduceWindowWithGeneralPadding SelectAndScatter
SelectAndScatterWithGeneralPadding Exp Floor Ceil Log Tanh SqrtF32 SquareF32 Pow ConvertElementType ReciprocalF32 Neg
Trans Rev Sort Clamp Map RngNormal RngUniform RngBernoulli While ComputeConstant CreateSubBuilder SetReturnValue Build
BuildAndNoteError""".split()


@pytest.mark.parametrize("name", METHODS)
def test_the_builder_has_every_method_of_the_interface(name: str) -> None:
    builder = sl.ComputationBuilder(None, "interface")
    member = getattr(builder, name)
    assert callable(member) or name in ("client", "name")


@pytest.mark.parametrize(
    ("native", "primitive"),
    [(True, "pred"), (np.int32(1), "s32"), (np.int64(1), "s64"), (np.uint32(1), "u32"), (np.uint64(1), "u64"),
     (np.float32(1), "f32"), (np.float64(1), "f64"), (1, "s32"), (1.0, "f32")],
)  # fmt: skip
def test_constants_of_native_types(native: object, primitive: str) -> None:
    b = sl.XlaBuilder("constant")
    assert str(b.GetShape(b.ConstantR0(native))) == f"{primitive}[]"


def test_constants_of_every_rank() -> None:
    b = sl.XlaBuilder("constants")
    three: Array = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    four = three.reshape(2, 1, 2, 2)
    roots = [b.ConstantR1([1.0, 2.0]), b.ConstantR1(3, 7.5), b.ConstantR2([[1.0], [2.0]]),
             b.ConstantR2FromArray2D(three[0]), b.ConstantR3FromArray3D(three), b.ConstantR4FromArray4D(four),
             b.ConstantLiteral(sl.Literal.r1([True, False]))]  # fmt: skip
    check(b, b.Tuple(roots), [1, 2], [7.5] * 3, [[1], [2]], three[0], three, four, [True, False])


def test_convolution_dimension_numbers() -> None:
    b = sl.XlaBuilder("convolution")
    default = b.CreateDefaultConvDimensionNumbers()
    assert default == b.CreateConvDimensionNumbers(0, 1, 2, 3, 0, 1, 2, 3)
    assert tuple(default.kernel_spatial_dimensions) == (2, 3)
    assert (default.kernel_output_feature_dimension, default.kernel_input_feature_dimension) == (0, 1)
    with pytest.raises(HloError):
        b.CreateConvDimensionNumbers(0, 0, 2, 3, 0, 1, 2, 3)


def test_powers_with_implicit_exponents() -> None:
    b = sl.XlaBuilder("powers")
    x = constant(b, [0.25, 4.0])
    check(b, b.Tuple([b.SqrtF32(x), b.SquareF32(x), b.ReciprocalF32(x)]), [0.5, 2], [0.0625, 16], [4, 0.25])


def test_errors_wait_for_build_and_the_first_is_told() -> None:
    b = sl.XlaBuilder("errors")
    bad = b.Add(constant(b, [1, 2]), constant(b, [1, 2, 3]))
    b.Mul(bad, b.ConstantR0(2.0))
    with pytest.raises(HloError, match=r"(?s)Add.*f32\[2\].*f32\[3\]"):
        b.Build()


def test_errors_at_once_when_asked_for() -> None:
    b = sl.XlaBuilder("errors")
    b.set_die_immediately_on_error(True)
    with pytest.raises(HloError):
        b.Add(constant(b, [1, 2]), constant(b, [1, 2, 3]))
    sub = b.CreateSubBuilder("sub")
    with pytest.raises(HloError):
        sub.Add(constant(sub, [1, 2]), constant(sub, [1, 2, 3]))


def test_shapes_are_inferred_and_checked() -> None:
    b = sl.XlaBuilder("shapes")
    x = b.Add(constant(b, [1, 2]), b.ConstantR0(1.0))
    assert b.CheckShape(x, sl.make_shape("f32", [2])) is x
    b.CheckSameShape(x, constant(b, [3, 4]))
    with pytest.raises(HloError, match=r"expected f32\[3\], got f32\[2\]"):
        b.CheckShape(x, sl.make_shape("f32", [3]))
    with pytest.raises(HloError):
        b.CheckSameShape(x, b.ConstantR0(1.0))


def test_return_value_is_the_last_unless_set() -> None:
    b = sl.XlaBuilder("return")
    first = b.ConstantR0(1.0)
    b.Add(first, first)
    assert sl.evaluate(b.Build().module()) == [2.0]
    b = sl.XlaBuilder("return")
    first = b.ConstantR0(1.0)
    b.SetReturnValue(first)
    b.Add(first, first)
    assert sl.evaluate(b.Build().module()) == [1.0]


def test_constants_are_computed_and_parameters_are_not() -> None:
    b = sl.XlaBuilder("constants")
    size = b.Mul(constant(b, [2, 3], "s32"), b.ConstantR0(4, "s32"))
    p = b.Parameter(0, sl.make_shape("s32", [2]), "p")
    literal = b.ComputeConstant(size)
    np.testing.assert_array_equal(literal, [8, 12])
    with pytest.raises(HloError, match="parameter"):
        b.ComputeConstant(b.Add(size, p))


def test_constants_are_computed_in_a_layout() -> None:
    b = sl.XlaBuilder("constants")
    literal = b.ComputeConstant(constant(b, [[1, 2, 3], [4, 5, 6]]), sl.Layout((0, 1)))
    assert literal.elements_in_memory.tolist() == [1, 4, 2, 5, 3, 6]


def test_a_sub_builders_error_is_its_parents() -> None:
    parent = sl.XlaBuilder("parent")
    sub = parent.CreateSubBuilder("sub")
    sub.Add(constant(sub, [1, 2]), constant(sub, [1, 2, 3]))
    assert not sub.BuildAndNoteError()
    parent.ConstantR0(1.0)
    with pytest.raises(HloError):
        parent.Build()
    parent = sl.XlaBuilder("parent")
    sub = parent.CreateSubBuilder("sub")
    sub.ConstantR0(2.0)
    check(parent, parent.Call(sub.BuildAndNoteError(), []), 2.0)


def test_trace_logs_the_operand(caplog: pytest.LogCaptureFixture) -> None:
    b = sl.XlaBuilder("trace")
    x = constant(b, [1.0, 2.0])
    b.Trace("tag", x)
    b.Neg(x)
    with caplog.at_level(logging.INFO):
        b.Build().evaluate()
    assert any("tag" in message and "[1. 2.]" in message for message in caplog.messages)
