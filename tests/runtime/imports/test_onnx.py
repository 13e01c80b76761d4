"""ONNX models against ONNX's own reference evaluator: each operation of the table, and blocks on a chip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from systolith.compiler.hlo.values.evaluator import evaluate  # noqa: E402
from systolith.isa.errors import SystolithError  # noqa: E402
from systolith.runtime.imports.onnx.model import import_model, read_onnx  # noqa: E402
from systolith.runtime.imports.onnx.table import TABLE  # noqa: E402
from tests.runtime.command import systolith  # noqa: E402
from tests.runtime.imports.onnx_cases import CASES, Case, bert_block, model, model_of, resnet_block  # noqa: E402


def check(proto: Any, inputs: dict[str, Any], tolerance: float = 2e-5) -> None:
    expected = ReferenceEvaluator(proto).run(None, inputs)
    made = import_model(proto)
    got = evaluate(made.module, *inputs.values(), *made.weights, precision="highest")
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.shape == e.shape
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations_are_those_of_onnx(case: Case) -> None:
    check(*model_of(case))


def test_every_operation_of_the_table_has_a_case() -> None:
    assert {case.op for case in CASES} == set(TABLE)


@pytest.mark.parametrize("name", ["mlp", "attention", "convolutions", "encoder"])
def test_models_exported_from_jax_have_the_values_of_xla(name: str) -> None:
    """`from_jax` beside this file was written by `from_jax/export.py`: what jax2onnx makes, and XLA's results."""
    folder = Path(__file__).parent / "from_jax"
    made, kept = read_onnx(folder / f"{name}.onnx"), np.load(folder / f"{name}.npz")
    inputs = [kept[f"arr_{n}"] for n in range(len(kept) - 1)]
    (got,) = evaluate(made.module, *inputs, *made.weights, precision="highest")
    np.testing.assert_allclose(got, kept["y"], rtol=1e-5, atol=1e-5 * np.abs(kept["y"]).max())


@pytest.mark.parametrize("make", [resnet_block, bert_block])
def test_blocks_are_those_of_onnx(make: Any) -> None:
    proto, inputs = make()
    check(proto, inputs, tolerance=1e-4)


@pytest.mark.parametrize("make", [resnet_block, bert_block])
def test_blocks_run_from_file_to_cycles(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto, inputs = make()
    path, hlo, args, out = (tmp_path / name for name in ("m.onnx", "m.hlo", "args.npz", "out.npz"))
    onnx.save(proto, path)
    ran = systolith(capsys, "import", path, "-o", hlo, "--args", args, "--random", 3)
    assert ran.code == 0, ran
    given = np.load(args)
    fed = {name: given[f"arg{n}"] for n, name in enumerate(inputs)}
    if "ids" in fed:
        fed["ids"] = inputs["ids"]
        np.savez(args, **{**given, "arg0": inputs["ids"]})
    (expected,) = ReferenceEvaluator(proto).run(None, fed)
    np.savez(out, out0=expected)
    words = ("--chip", "tiny", "--args", args, "--expect", out, "--precision", "highest", "--json")
    ran = systolith(capsys, "run", hlo, *words)
    assert ran.code == 0, ran
    record = json.loads(ran.out)
    assert record["checks"]["expected"] == 1
    assert record["cycles"] > 0


def test_channels_go_last_and_come_back_where_their_order_is_seen() -> None:
    """Convolutions, pools and concatenations of images, between operations that see the order of their dimensions."""
    rng = np.random.default_rng(4)

    def weights(*dims: int) -> Any:
        return rng.standard_normal(dims).astype(np.float32)

    known = {
        "w1": weights(4, 3, 3, 3),
        "w2": weights(4, 4, 1, 1),
        "offset": weights(4, 1, 1),
        "scale": weights(1, 8, 1, 1),
    }
    known |= {"small": np.float32(0.5), "fc": weights(8 * 3 * 2, 5), "flat": np.array([1, -1], np.int64)}
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        n("Add", ["c", "offset"], ["o"]),
        n("Clip", ["o", "", "small"], ["k"]),
        n("Conv", ["k", "w2"], ["d"]),
        n("Mul", ["d", "small"], ["e"]),
        n("Concat", ["e", "c"], ["both"], axis=1),
        n("Mul", ["both", "scale"], ["s"]),
        n("AveragePool", ["s"], ["p"], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
        n("Softmax", ["p"], ["q"], axis=1),
        n("MaxPool", ["q"], ["m"], kernel_shape=[1, 2], strides=[1, 2]),
        n("Reshape", ["m", "flat"], ["r"]),
        n("MatMul", ["r", "fc"], ["y"]),
        n("Conv", ["x", "v"], ["z"]),
        n("Relu", ["z"], ["t"]),
        n("ReduceSum", ["t"], ["u"], keepdims=0),
    ]
    inputs = {"x": weights(1, 3, 6, 8), "v": weights(2, 3, 1, 2)}
    check(model(nodes, inputs, known, ["y", "t", "u"]), inputs, tolerance=1e-4)


def test_large_initializers_are_parameters_and_small_ones_constants() -> None:
    big, small = np.ones((64, 32), np.float32), np.ones(32, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    made = import_model(model(nodes, {"x": np.ones((4, 64), np.float32)}, {"w": big, "b": small}, ["y"]))
    assert [p.dims for p in made.module.entry.parameters] == [(4, 64), (64, 32)]
    assert len(made.weights) == 1


def test_older_operators_are_converted() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 1, 4)).astype(np.float32)
    proto = model([helper.make_node("Squeeze", ["x"], ["y"], axes=[0, 2])], {"x": x}, {}, ["y"], opset=11)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (3, 4)))
    made = import_model(proto)
    assert np.array_equal(evaluate(made.module, x)[0], x.reshape(3, 4))


def symbolic() -> Any:
    declared = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("batch", 4))
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("batch", 4))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [declared], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_symbolic_dimensions_are_asked_for() -> None:
    with pytest.raises(SystolithError, match=r"input 'x': dimension 0 is symbolic; give its size: --dim batch=N"):
        import_model(symbolic())
    assert import_model(symbolic(), sizes={"batch": 3}).module.entry.parameters[0].dims == (3, 4)


X = {"x": np.ones((1, 2, 6, 6), np.float32)}
REFUSED = [
    (helper.make_node("Det", ["x"], ["y"], name="d"), "Det 'd': no such operation in the table; there are Abs"),
    (
        helper.make_node("Foo", ["x"], ["y"], domain="com.me"),
        "Foo 'y' of domain com.me: no such operation in the table",
    ),
    (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1), "ceil_mode = 1: must be 0"),
    (helper.make_node("Pad", ["x", "p"], ["y"], mode="reflect"), "mode = reflect: must be constant"),
    (helper.make_node("Reshape", ["x", "x"], ["y"]), "'x': must be known before the run"),
    (helper.make_node("Relu", ["z"], ["y"]), "input 'z' is nowhere computed"),
    *(
        (helper.make_node("Einsum", names, ["y"], equation=equation), message)
        for names, equation, message in (
            (["x"], "abcc->ab", "the term 'abcc' of its equation has 'c' twice: diagonals are not there"),
            (["x"], "abc->a", "the term 'abc' of its equation does not fit 4 dimensions"),
            (["x"], "ab...cde->a", "the term 'ab...cde' of its equation does not fit 4 dimensions"),
            (["x"], "ab1d->a", "the term 'ab1d' of its equation does not fit 4 dimensions"),
            (["x", "x"], "abcd->a", "its equation has 1 terms for 2 operands"),
            (["x"], "abcd->ae", "no term of its equation has 'e' of the result"),
            (["x", "x"], "abcd,acbd->a", "sizes 6 and 2 of one label of its equation"),
        )
    ),
    (helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2]), "output 'i': only the first 1"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_is_not_in_the_table_is_named(node: Any, message: str) -> None:
    known = {"p": np.zeros(8, np.int64)}
    with pytest.raises(SystolithError, match=message):
        import_model(model([node], X, known, ["y"]))


def test_all_that_is_not_in_the_table_is_named_at_once() -> None:
    """Not what is known before the run: ONNX's evaluator computes it."""
    nodes = [
        helper.make_node("Det", ["x"], ["a"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Det", ["a"], ["b"], name="again"),
        helper.make_node("Unique", ["b"], ["c"], name="u"),
        helper.make_node("EyeLike", ["p"], ["known"]),
        helper.make_node("Foo", ["c"], ["d"], domain="com.me"),
    ]
    with pytest.raises(SystolithError, match=r"^model: Det 'a', Unique 'u', Foo 'd' of domain com\.me: no such oper"):
        import_model(model(nodes, X, {"p": np.zeros((2, 2), np.float32)}, ["y"]))


def test_a_file_that_is_no_model_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_text("this is no model")
    ran = systolith(capsys, "import", tmp_path / "m.onnx", "-o", tmp_path / "m.hlo")
    assert ran.code == 2
    assert "not an ONNX model" in ran.err
    assert not (tmp_path / "m.hlo").exists()
