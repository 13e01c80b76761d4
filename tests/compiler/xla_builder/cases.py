"""One call of every operation that the seeds name, by its name there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from systolith import api as sl

Case: TypeAlias = Callable[[sl.XlaBuilder], sl.XlaOp]


def f32(b: sl.XlaBuilder, *dims: int, seed: int = 0) -> sl.XlaOp:
    """A constant of numbers that are all different."""
    values = np.random.default_rng(seed).permutation(int(np.prod(dims))).astype(np.float32)
    return b.constant((values / 4 - 1).reshape(dims))


def s32(b: sl.XlaBuilder, *dims: int) -> sl.XlaOp:
    return b.constant((np.arange(np.prod(dims), dtype=np.int32) * 7 - 5).reshape(dims))


def pred(b: sl.XlaBuilder, *dims: int) -> sl.XlaOp:
    return b.constant((np.arange(np.prod(dims)) % 3 > 0).reshape(dims))


def positive(b: sl.XlaBuilder, size: int) -> sl.XlaOp:
    """A positive definite matrix."""
    half = np.random.default_rng(1).standard_normal((size, size))
    return b.constant((half @ half.T + np.eye(size) * size).astype(np.float32))


def combine(name: str, dtype: str = "f32") -> sl.XlaComputation:
    """`name` of two scalars."""
    b = sl.XlaBuilder(name)
    getattr(b, name)(b.parameter(0, f"{dtype}[]", "x"), b.parameter(1, f"{dtype}[]", "y"))
    return b.build()


def of_state(name: str, shape: str, make: Callable[[sl.XlaBuilder, sl.XlaOp], object]) -> sl.XlaComputation:
    """A computation of one parameter."""
    b = sl.XlaBuilder(name)
    make(b, b.parameter(0, shape, "state"))
    return b.build()


def _unary(name: str, values: object = None, dtype: str = "f32") -> Case:
    given = [-1.5, -0.5, 0.0, 0.25, 2.5] if values is None else values
    return lambda b: getattr(b, name)(b.constant(given, dtype))


def _binary(name: str, dtype: str = "s32") -> Case:
    return lambda b: getattr(b, name)(b.constant([[5, -7, 9], [2, 3, -4]], dtype), b.constant([2, 3, 4], dtype), [1])


def _compared(name: str) -> Case:
    """Without NaN and -0, since XLA folds constants as if there were no total order."""
    return lambda b: getattr(b, name)(b.constant([1.0, -np.inf, 1.0, 3.0]), b.constant([1.0, np.inf, 2.0, 2.0]))


POSITIVE = [0.25, 0.5, 1.0, 2.5]
ELEMENTWISE: dict[str, Case] = {
    **{name: _binary(name) for name in "Add Sub Mul Div Rem Max Min And Or Xor".split()},
    **{name: _binary(name) for name in "ShiftLeft ShiftRightArithmetic ShiftRightLogical".split()},
    **{name: _binary(name, "f32") for name in "Pow Atan2 Complex".split()},
    "LogicalAnd": lambda b: b.LogicalAnd(pred(b, 4), b.constant([True, True, False, False])),
    "LogicalOr": lambda b: b.LogicalOr(pred(b, 4), b.constant([True, True, False, False])),
    **{name + order: _compared(name + order) for name in "Eq Ne Ge Gt Le Lt".split() for order in ("", "TotalOrder")},
    **{name: _unary(name) for name in "Abs Cbrt Ceil Cos Erf Exp Expm1 Floor Imag IsFinite Logistic Neg".split()},
    **{name: _unary(name) for name in "Real Round RoundNearestEven Sign Sin Tan Tanh".split()},
    **{name: _unary(name, POSITIVE) for name in "Log Log1p Rsqrt Sqrt SqrtF32 SquareF32 ReciprocalF32".split()},
    **{name: _unary(name, [1, 7, 1 << 30, 0], "s32") for name in "Clz Not PopulationCount".split()},
    "LogicalNot": _unary("LogicalNot", [True, False], "pred"),
    "Clamp": lambda b: b.Clamp(b.constant(0), s32(b, 3), b.constant(6)),
    "Select": lambda b: b.Select(pred(b, 4), s32(b, 4), b.constant([100, 200, 300, 400])),
    "ConvertElementType": lambda b: b.ConvertElementType(s32(b, 3), "f32"),
    "BitcastConvertType": lambda b: b.BitcastConvertType(s32(b, 3), sl.F32),
    "ReducePrecision": lambda b: b.ReducePrecision(b.constant([1.1, 3e9]), 5, 10),
}

CONSTANTS: dict[str, Case] = {
    "Parameter": lambda b: b.Neg(b.Parameter(0, "f32[2,3]", "x")),
    "ConstantLiteral": lambda b: b.ConstantLiteral(sl.Literal.create(np.array([1, 2], np.uint8))),
    "ConstantR0": lambda b: b.ConstantR0(2.5),
    "ConstantR1": lambda b: b.ConstantR1([1, 2, 3]),
    "ConstantR2": lambda b: b.ConstantR2([[1.0, 2.0], [3.0, 4.0]]),
    "ConstantR2FromArray2D": lambda b: b.ConstantR2FromArray2D(np.arange(6.0).reshape(2, 3), "f32"),
    "ConstantR3FromArray3D": lambda b: b.ConstantR3FromArray3D(np.arange(6.0).reshape(1, 2, 3), "f32"),
    "ConstantR4FromArray4D": lambda b: b.ConstantR4FromArray4D(np.arange(6.0).reshape(1, 2, 3, 1), "f32"),
    "Iota": lambda b: b.Iota("s32[4,8]", 1),
}

_GATHER = sl.GatherDimensionNumbers((1,), (0,), (0,), 1)
_SCATTER = sl.ScatterDimensionNumbers((1,), (0,), (0,), 1)

MOVEMENT: dict[str, Case] = {
    "Broadcast": lambda b: b.Broadcast(f32(b, 3), [2, 4]),
    "BroadcastInDim": lambda b: b.BroadcastInDim(f32(b, 3, 1), [2, 3, 4], [1, 2]),
    "Collapse": lambda b: b.Collapse(f32(b, 4, 2, 3), [1, 2]),
    "Concatenate": lambda b: b.Concatenate([f32(b, 2, 3), f32(b, 1, 3)], 0),
    "ConcatInDim": lambda b: b.ConcatInDim([f32(b, 2, 3), f32(b, 2, 1)], 1),
    "DynamicSlice": lambda b: b.DynamicSlice(f32(b, 4, 3), [b.constant(3), b.constant(1)], [2, 2]),
    "DynamicUpdateSlice": lambda b: b.DynamicUpdateSlice(f32(b, 4, 3), f32(b, 2, 2), b.constant([1, 2])),
    "Gather": lambda b: b.Gather(f32(b, 4, 3), b.constant([[2], [0], [9]]), _GATHER, [1, 3]),
    "GetDimensionSize": lambda b: b.GetDimensionSize(f32(b, 4, 3), 1),
    "GetTupleElement": lambda b: b.GetTupleElement(b.Tuple([f32(b, 2), s32(b, 3)]), 1),
    "OptimizationBarrier": lambda b: b.OptimizationBarrier(f32(b, 2)),
    "Pad": lambda b: b.Pad(f32(b, 2, 3), b.constant(9.0), [(1, -1, 2), (0, 2)]),
    "Reshape": lambda b: b.Reshape(f32(b, 4, 2, 3), [1, 2, 0], [2, 6, 2]),
    "Rev": lambda b: b.Rev(f32(b, 2, 3), [1]),
    "Slice": lambda b: b.Slice(f32(b, 4, 6), [1, 0], [4, 5], [2, 3]),
    "Trans": lambda b: b.Trans(f32(b, 2, 3)),
    "Transpose": lambda b: b.Transpose(f32(b, 2, 3, 4), [2, 0, 1]),
    "Tuple": lambda b: b.Tuple([f32(b, 2), b.Tuple([s32(b, 3)])]),
}

_DNUMS = sl.DotDimensionNumbers((2,), (1,), (0,), (0,))

CONTRACTION: dict[str, Case] = {
    "Conv": lambda b: b.Conv(f32(b, 1, 2, 5, 5), f32(b, 3, 2, 3, 3), [2, 1], "kSame"),
    "ConvWithGeneralPadding": lambda b: b.ConvWithGeneralPadding(f32(b, 1, 2, 6), f32(b, 3, 2, 3), [1], [(-1, 2)]),
    "ConvWithGeneralDimensions": lambda b: b.ConvWithGeneralDimensions(
        f32(b, 5, 4, 1, 2),
        f32(b, 3, 3, 2, 3),
        [1, 1],
        sl.Padding.VALID,
        sl.ConvolutionDimensionNumbers(2, 3, (0, 1), 2, 3, (0, 1), 0, 1, (2, 3)),
    ),
    "ConvGeneral": lambda b: b.ConvGeneral(
        f32(b, 1, 4, 6), f32(b, 2, 2, 3), [1], [(1, 1)], b.CreateDefaultConvDimensionNumbers(1), 2
    ),
    "Dot": lambda b: b.Dot(f32(b, 2, 3), f32(b, 3, 4), "highest"),
    "DotGeneral": lambda b: b.DotGeneral(f32(b, 2, 3, 4), f32(b, 2, 4, 5), _DNUMS, "highest"),
    "Map": lambda b: b.Map([f32(b, 2, 3), f32(b, 2, 3)], combine("Sub"), [0, 1]),
    "Reduce": lambda b: b.Reduce(f32(b, 4, 2, 3), b.constant(0.0), combine("Add"), [0, 2]),
    "ReduceWindow": lambda b: b.ReduceWindow(
        f32(b, 4, 6), b.ConstantLiteral(sl.LiteralUtil.MinValue("f32")), combine("Max"), [2, 3], [2, 3], "kValid"
    ),
    "ReduceWindowWithGeneralPadding": lambda b: b.ReduceWindowWithGeneralPadding(
        f32(b, 5), b.constant(0.0), combine("Add"), [3], [2], [(1, 1)]
    ),
    "Scatter": lambda b: b.Scatter(f32(b, 4, 3), b.constant([[2], [0], [2]]), f32(b, 3, 3), combine("Add"), _SCATTER),
    "SelectAndScatter": lambda b: b.SelectAndScatter(
        f32(b, 4, 6), combine("Ge"), [2, 3], [2, 3], "kValid", f32(b, 2, 2), b.constant(0.0), combine("Add")
    ),
    "SelectAndScatterWithGeneralPadding": lambda b: b.SelectAndScatterWithGeneralPadding(
        f32(b, 4), combine("Ge"), [2], [2], [(0, 0)], f32(b, 2), b.constant(0.0), combine("Add")
    ),
    "Sort": lambda b: b.Sort(f32(b, 3, 4), combine("Gt"), 0),
    "TopK": lambda b: b.TopK(f32(b, 3, 4), 2, True),
}

NUMERIC: dict[str, Case] = {
    "BatchNormTraining": lambda b: b.BatchNormTraining(f32(b, 4, 3), f32(b, 3), f32(b, 3), 0.001, 1),
    "BatchNormInference": lambda b: b.BatchNormInference(
        f32(b, 4, 3), f32(b, 3), f32(b, 3), f32(b, 3), b.constant([1.0, 2.0, 3.0]), 0.001, 1
    ),
    "BatchNormGrad": lambda b: b.BatchNormGrad(
        f32(b, 4, 3), f32(b, 3), f32(b, 3), b.constant([1.0, 2.0, 3.0]), f32(b, 4, 3, seed=2), 0.001, 1
    ),
    "Cholesky": lambda b: b.Mul(b.Cholesky(positive(b, 3), True), b.constant(np.tril(np.ones((3, 3), np.float32)))),
    "TriangularSolve": lambda b: b.TriangularSolve(positive(b, 3), f32(b, 3, 2), True, True, False, "TRANSPOSE"),
    "Fft": lambda b: b.Fft(f32(b, 2, 8), "RFFT", [8]),
    "RngBitGenerator": lambda b: b.RngBitGenerator("RNG_THREE_FRY", b.constant(np.array([1, 2], np.uint64)), "u32[5]"),
}

CONTROL: dict[str, Case] = {
    "Call": lambda b: b.Call(combine("Sub"), [b.constant(5.0), b.constant(2.0)]),
    "CompositeCall": lambda b: b.CompositeCall(
        combine("Add"), [b.constant(5.0), b.constant(2.0)], "foo.bar", "{n = 1 : i32}", 1
    ),
    "Conditional": lambda b: b.Conditional(
        b.constant(7),
        [of_state(f"branch{n}", "f32[]", lambda c, x, n=n: c.add(x, float(n))) for n in range(3)],  # type: ignore[misc]
        [b.constant(1.0)] * 3,
    ),
    "CustomCall": lambda b: b.GetTupleElement(b.CustomCall("TopK", [f32(b, 6)], "(f32[2], s32[2])"), 0),
    "While": lambda b: b.While(
        of_state("condition", "s32[]", lambda c, x: c.lt(x, 10)),
        of_state("body", "s32[]", lambda c, x: c.add(x, 3)),
        b.constant(0),
    ),
}

EVALUATED: dict[str, Case] = {**ELEMENTWISE, **CONSTANTS, **MOVEMENT, **CONTRACTION, **NUMERIC, **CONTROL}
"""Those whose result XLA's CPU backend gives, for one device."""

DEVICES: dict[str, Case] = {
    "AfterAll": lambda b: b.AfterAll([b.CreateToken(), b.CreateToken()]),
    "AllGather": lambda b: b.AllGather(f32(b, 2, 3), 1, 4, [[0, 1, 2, 3]], 1),
    "AllReduce": lambda b: b.AllReduce(b.Tuple([f32(b, 2), f32(b, 3)]), combine("Add"), [[0, 1], [2, 3]]),
    "AllToAll": lambda b: b.AllToAll(f32(b, 4, 16), 1, 0, 4),
    "CollectivePermute": lambda b: b.CollectivePermute(f32(b, 2), [(0, 1), (1, 0)]),
    "CrossReplicaSum": lambda b: b.CrossReplicaSum(f32(b, 2)),
    "Infeed": lambda b: b.Infeed("(f32[2], s32[])", "config"),
    "Outfeed": lambda b: b.Outfeed(f32(b, 2), "f32[2]{0}", "config"),
    "Recv": lambda b: b.Recv("f32[2]", 5),
    "ReduceScatter": lambda b: b.ReduceScatter(f32(b, 4, 3), combine("Add"), 0, 2, [[0, 1]]),
    "ReplicaId": lambda b: b.ReplicaId(),
    "RngBernoulli": lambda b: b.RngBernoulli(b.constant(0.5), "u32[4]"),
    "RngNormal": lambda b: b.RngNormal(b.constant(0.0), b.constant(1.0), "f32[4]"),
    "RngUniform": lambda b: b.RngUniform(b.constant(0), b.constant(9), "s32[4]"),
    "Send": lambda b: b.Send(f32(b, 2), 5),
    "SetDimensionSize": lambda b: b.SetDimensionSize(f32(b, 5), b.Add(b.constant(1), b.constant(2)), 0),
}
"""Those that take several devices, a host, or have a result that is random or of dynamic size."""

NEWER: dict[str, Case] = {
    "CollectiveBroadcast": lambda b: b.CollectiveBroadcast(f32(b, 2), [[0, 1]]),
    "RaggedAllToAll": lambda b: b.RaggedAllToAll(
        f32(b, 4), s32(b, 2), s32(b, 2), f32(b, 4), s32(b, 2), s32(b, 2), [[0, 1]]
    ),
    "AllToAllTuple": lambda b: b.AllToAllTuple([f32(b, 2), f32(b, 2)], [[0, 1]]),
    "DynamicReshape": lambda b: b.DynamicReshape(f32(b, 6), [b.constant(2), b.constant(3)], [2, 3], [True, False]),
    "InfeedWithToken": lambda b: b.InfeedWithToken(b.CreateToken(), "f32[2]"),
    "OutfeedWithToken": lambda b: b.OutfeedWithToken(f32(b, 2), b.CreateToken(), "f32[2]", ""),
    "SendToHost": lambda b: b.SendToHost(
        f32(b, 2), b.CreateToken(), "f32[2]", sl.ChannelHandle(7, sl.ChannelType.DEVICE_TO_HOST)
    ),
    "RecvFromHost": lambda b: b.RecvFromHost(
        b.CreateToken(), "f32[2]", sl.ChannelHandle(7, sl.ChannelType.HOST_TO_DEVICE)
    ),
    "RngGetAndUpdateState": lambda b: b.RngGetAndUpdateState(8, "u64[2]"),
    "RemoveDynamicDimension": lambda b: b.RemoveDynamicDimension(
        b.SetDimensionSize(f32(b, 5), b.Add(b.constant(1), b.constant(2)), 0), 0
    ),
    "CustomCallWithLayout": lambda b: b.CustomCallWithLayout("f", [f32(b, 2)], "f32[3]", ["f32[2]"], 'a "b"', True),
    "CustomCallWithComputation": lambda b: b.CustomCallWithComputation("f", [f32(b, 2)], combine("Add"), "f32[3]"),
    "Fusion": lambda b: b.Fusion([b.constant(1.0), b.constant(2.0)], "kLoop", combine("Add")),
    "AddDependency": lambda b: b.AddDependency(f32(b, 2), b.CreateToken()),
    "Bitcast": lambda b: b.Bitcast(f32(b, 2, 3), "f32[6]"),
    "PartitionId": lambda b: b.PartitionId(),
    "AsyncStart": lambda b: b.AsyncDone(
        b.AsyncUpdate(
            b.AsyncStart([b.constant(1.0), b.constant(2.0)], "", combine("Add"), "((f32[], f32[]), f32[], u32[])"),
            "((f32[], f32[]), f32[], u32[])",
        )
    ),
    "CopyStart": lambda b: b.CopyDone(b.CopyStart(f32(b, 2), 0)),
    "AllReduceStart": lambda b: b.AllReduceDone(b.AllReduceStart(f32(b, 2), combine("Add"), [[0, 1]])),
    "AllGatherStart": lambda b: b.AllGatherDone(b.AllGatherStart(f32(b, 2), 0, 2, [[0, 1]])),
    "CollectivePermuteStart": lambda b: b.CollectivePermuteDone(b.CollectivePermuteStart(f32(b, 2), [(0, 1)])),
    "StochasticConvertType": lambda b: b.StochasticConvertType(f32(b, 2), b.constant(np.ones(2, np.uint32)), "bf16"),
}
"""Of the newer generation's, some that the seeds do not name."""

WRAPPERS: dict[str, Case] = {
    "ReduceAll": lambda b: b.ReduceAll(f32(b, 2, 3), b.constant(0.0), combine("Add")),
    "PadInDim": lambda b: b.PadInDim(f32(b, 2, 3), b.constant(9.0), 1, 1, 2),
    "SliceInDim": lambda b: b.SliceInDim(f32(b, 4, 6), 1, 6, 2, 1),
    "ReshapeWithInferredDimension": lambda b: b.ReshapeWithInferredDimension(f32(b, 2, 3), [3, 2], 0),
    "ConstantFromArray": lambda b: b.ConstantFromArray(np.arange(3)),
    "ConstantFromArrayWithLayout": lambda b: b.ConstantFromArrayWithLayout([[1, 2, 3], [4, 5, 6]], sl.Layout((0, 1))),
    "ScalarLike": lambda b: b.ScalarLike(f32(b, 2), 3),
    "Zero": lambda b: b.Zero("s8"),
    "One": lambda b: b.One("bf16"),
    "MinValue": lambda b: b.MinValue("s8"),
    "MaxValue": lambda b: b.MaxValue("f32"),
    "Conj": lambda b: b.Conj(b.constant([1 + 2j, -3j])),
    "Square": lambda b: b.Square(b.constant([3, -4])),
    "Reciprocal": lambda b: b.Reciprocal(b.constant([4.0, 0.5])),
    "Compare": lambda b: b.Compare(s32(b, 3), 2, [], "GE"),
    "Copy": lambda b: b.Copy(s32(b, 3)),
    **{name: _unary(name, [0.25, 0.5]) for name in "Acos Asin Asinh Atanh Cosh Sinh".split()},
    "Acosh": _unary("Acosh", [1.5, 3.0]),
}
"""Short forms and others of the newer generation, of which XLA gives the result."""

BUILDER_ONLY = """Trace ComputeConstant CreateSubBuilder SetReturnValue GetShape CheckShape CheckSameShape Build
BuildAndNoteError""".split()
"""Those that make no instruction."""

# The left column of the list of operations that the seeds name, by row.
NAMED = """
Parameter ConstantLiteral ConstantR0 ConstantR1 ConstantR2 ConstantR2FromArray2D ConstantR3FromArray3D
ConstantR4FromArray4D AfterAll AllGather AllReduce AllToAll CollectivePermute ReduceScatter CrossReplicaSum
BatchNormTraining BatchNormInference BatchNormGrad BitcastConvertType Broadcast BroadcastInDim Call CompositeCall
Cholesky TriangularSolve Clamp Collapse Reshape Concatenate ConcatInDim Conditional Conv ConvWithGeneralPadding
ConvWithGeneralDimensions ConvGeneral ConvertElementType CustomCall Dot DotGeneral DynamicSlice DynamicUpdateSlice Add
Sub Mul Div Rem Max Min Pow And Or Xor LogicalAnd LogicalOr ShiftLeft ShiftRightArithmetic ShiftRightLogical Atan2
Complex Eq Ne Ge Gt Le Lt EqTotalOrder NeTotalOrder GeTotalOrder GtTotalOrder LeTotalOrder LtTotalOrder Abs Cbrt Ceil
Clz Cos Erf Exp Expm1 Floor Imag IsFinite Log Log1p LogicalNot Logistic Neg Not PopulationCount Real Round
RoundNearestEven Rsqrt Sign Sin Sqrt Tan Tanh SqrtF32 SquareF32 ReciprocalF32 Fft Gather Scatter GetDimensionSize
SetDimensionSize GetTupleElement Tuple Infeed Outfeed Iota Map OptimizationBarrier Pad Recv Send Reduce
ReducePrecision ReduceWindow ReduceWindowWithGeneralPadding ReplicaId Rev RngNormal RngUniform RngBernoulli
RngBitGenerator Select SelectAndScatter SelectAndScatterWithGeneralPadding Slice Sort TopK Transpose Trans While Trace
ComputeConstant CreateSubBuilder SetReturnValue GetShape CheckShape CheckSameShape Build BuildAndNoteError
""".split()
