"""From a builder to a module: names, results, shared computations, metadata of instructions, constants, size."""

import logging
import time

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.xla_builder.cases import combine, f32, of_state, pred, s32


def _instructions(b: sl.XlaBuilder) -> dict[str, Instruction]:
    return {i.name: i for i in b.build().module().entry.instructions}


def test_axpy() -> None:
    b = sl.ComputationBuilder(sl.Client("tiny"), "axpy")
    alpha, x, y = (b.Parameter(n, s, t) for n, (s, t) in enumerate([("f32[]", "a"), ("f32[3]", "x"), ("f32[3]", "y")]))
    b.Add(b.Mul(alpha, x), y)
    assert b.Build().hlo_text() == (
        "HloModule axpy, entry_computation_layout={(f32[], f32[3]{0}, f32[3]{0})->f32[3]{0}}\n\n"
        "ENTRY %axpy (a: f32[], x: f32[3], y: f32[3]) -> f32[3] {\n"
        "  %a = f32[] parameter(0)\n"
        "  %x = f32[3]{0} parameter(1)\n"
        "  %y = f32[3]{0} parameter(2)\n"
        "  %broadcast = f32[3]{0} broadcast(%a), dimensions={}\n"
        "  %multiply = f32[3]{0} multiply(%broadcast, %x)\n"
        "  ROOT %add = f32[3]{0} add(%multiply, %y)\n"
        "}\n\n"
    )


def test_a_builder_keeps_the_client_that_it_is_given() -> None:
    client = sl.Client("tiny")
    assert sl.ComputationBuilder(client, "of a client").client is client
    assert sl.XlaBuilder("alone").client is None


def test_the_result_is_the_last_operation_unless_it_is_said() -> None:
    b = sl.XlaBuilder("result")
    x = b.constant(1.0)
    first, last = b.neg(x), b.exp(x)
    assert b.build().module().entry.result.opcode == "exponential"
    assert str(b.get_program_shape(x).result) == "f32[]"
    b.SetReturnValue(first)
    assert b.build().module().entry.result.opcode == "negate"
    assert b.build(last).module().entry.result.opcode == "exponential"
    b.tanh(last)
    assert b.build().evaluate() == [-1]


def test_program_shape() -> None:
    b = sl.XlaBuilder("shapes")
    b.tuple([b.parameter(0, "f32[2]", "x"), b.parameter(1, "s32[]", "n")])
    found = b.get_program_shape()
    assert [str(p) for p in found.parameters] == ["f32[2]", "s32[]"]
    assert str(found.result) == "(f32[2], s32[])"
    assert b.build().program_shape == found


def test_parameters_in_any_order() -> None:
    b = sl.XlaBuilder("order")
    y, x = b.parameter(1, "s32[]", "y"), b.parameter(0, "s32[]", "x")
    b.sub(x, y)
    assert b.build().evaluate(np.array(5, np.int32), np.array(3, np.int32)) == [2]


def test_a_missing_parameter_is_refused() -> None:
    b = sl.XlaBuilder("gap")
    b.parameter(1, "s32[]", "y")
    with pytest.raises(HloError, match="numbered from 0"):
        b.build()


def test_names_are_unique_and_clean() -> None:
    b = sl.XlaBuilder("9 lives")
    b.parameter(0, "f32[]", "add.1")
    x = b.parameter(1, "f32[]", "a b/c")
    b.parameter(2, "f32[]", "add.1")
    _ = x + x, x + x, x + x
    built = b.build()
    names = [i.name for i in built.module().entry.instructions]
    assert names == ["add.1", "a_b_c", "add.1.1", "add", "add.2", "add.3"]
    assert built.module().entry.name == "_9_lives"
    run_xla(built.hlo_text(), *[np.ones((), np.float32)] * 3)


def test_a_shared_computation_is_in_the_module_once() -> None:
    inner = combine("Add")
    both = sl.XlaBuilder("both")
    both.call(inner, [both.call(inner, [both.parameter(0, "f32[]"), both.constant(1.0)]), both.constant(2.0)])
    outer = both.build()
    b = sl.XlaBuilder("Add")
    b.call(inner, [b.call(outer, [b.constant(3.0)]), b.reduce(f32(b, 4), b.constant(0.0), inner, [0])])
    b.call(combine("Add"), [b.constant(1.0), b.constant(1.0)])
    module = b.build().module()
    assert [c.name for c in module.computations] == ["Add.1", "both", "Add.2", "Add"]
    assert module.entry.name == "Add"


def test_building_goes_on_after_build_without_changing_what_was_built() -> None:
    b = sl.XlaBuilder("snapshot")
    x = b.constant(2.0)
    before = b.build()
    _ = x * x
    assert len(before.module().entry.instructions) == 1
    assert b.build().evaluate() == [4]


def test_modules_are_copies() -> None:
    b = sl.XlaBuilder("copies")
    b.constant(2.0)
    built = b.build()
    built.module().entry.instructions.clear()
    assert len(built.module().entry.instructions) == 1


def test_a_module_from_text_is_a_computation() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT n = f32[] negate(x)\n}\n"
    b = sl.XlaBuilder("calls")
    b.call(sl.parse_hlo(text), [b.constant(2.0)])
    assert b.build().evaluate() == [-2]


def test_instructions_carry_metadata_sharding_and_frontend_attributes() -> None:
    b = sl.XlaBuilder("carries")
    x = b.parameter(0, "f32[4]", "x")
    b.set_op_metadata(op_type="Neg", op_name="layer/neg", source_file="model.py", source_line=7)
    b.neg(x)
    b.set_one_shot_op_metadata(op_name="once")
    b.abs(x)
    b.clear_op_metadata()
    with b.name_scope("outer"), b.name_scope("inner"):
        b.exp(x)
    b.set_sharding("{devices=[2]<=[2]}")
    b.set_frontend_attributes({"key": 'a "b"', "dictionary": "{n = 1}"})
    b.tanh(x)
    with b.scoped_sharding("{replicated}"):
        b.sin(x)
    assert (b.sharding, b.frontend_attributes["dictionary"]) == ("{devices=[2]<=[2]}", "{n = 1}")
    b.clear_sharding()
    b.clear_frontend_attributes()
    last = b.cos(x)
    b.set_instruction_frontend_attribute(last, "own", "1")
    b.set_instruction_sharding(last, "{maximal device=1}")
    found = _instructions(b)
    assert found["negate"].metadata == {
        "op_type": "Neg", "op_name": "layer/neg", "source_file": "model.py", "source_line": 7,
    }  # fmt: skip
    assert found["abs"].metadata == {"op_name": "once"}
    assert found["exponential"].metadata == {"op_name": "outer/inner/exponential"}
    assert str(found["tanh"].attributes["sharding"]) == "{devices=[2]<=[2]}"
    assert str(found["sine"].attributes["sharding"]) == "{replicated}"
    assert str(found["cosine"].attributes["sharding"]) == "{maximal device=1}"
    assert found["cosine"].attributes["frontend_attributes"] == {"own": "1"}
    text = b.build().hlo_text()
    assert r'frontend_attributes={key="a \"b\"",dictionary={n = 1}}' in text
    assert sl.print_hlo(sl.parse_hlo(text)) == text


def test_aliases_and_donors() -> None:
    b = sl.XlaBuilder("aliases")
    x = b.parameter(0, "f32[4]", "x")
    b.tuple([b.neg(x), b.parameter(1, "f32[2]", "y")])
    b.set_up_alias([0], 0, [], "must-alias")
    b.add_buffer_donor(1, [])
    head = b.build().hlo_text().splitlines()[0]
    assert "input_output_alias={ {0}: (0, {}, must-alias) }" in head
    assert "buffer_donor={ (1, {}) }" in head


def test_traced_values_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    b = sl.XlaBuilder("traced")
    doubled = b.constant(21) * 2
    b.Trace("doubled", doubled)
    b.neg(doubled)
    with caplog.at_level(logging.INFO, "systolith.trace"):
        assert b.build().evaluate() == [-42]
    assert caplog.messages == ["doubled = 42"]


def test_constants_are_computed_while_building() -> None:
    b = sl.XlaBuilder("constants")
    x = b.parameter(0, "f32[3]", "x")
    known = b.reduce(b.constant([1.0, 2.0, 3.0]), b.constant(0.0), combine("Add"), [0]) * 2
    unknown = known + x
    assert b.is_constant(known)
    assert not b.is_constant(unknown)
    assert b.ComputeConstant(known) == sl.Literal.create(12.0)
    with pytest.raises(HloError, match=r"add is no constant: it depends on parameter 'x' \(f32\[3\]\)"):
        b.ComputeConstant(unknown)
    matrix = b.compute_constant(b.iota("s32[2,3]", 1), sl.Layout((0, 1)))
    assert str(matrix.shape.layout) == "{0,1}"
    assert matrix[1, 2] == 2
    assert b.is_constant(b.rng_uniform(b.constant(0.0), b.constant(1.0), "f32[2]"))
    assert b.build().program_shape.parameters


def test_a_loop_with_an_infeed_is_no_constant() -> None:
    b = sl.XlaBuilder("infeed")
    body = of_state("body", "s32[]", lambda c, x: c.infeed("s32[]"))
    condition = of_state("condition", "s32[]", lambda c, x: c.lt(x, 3))
    assert not b.is_constant(b.while_(condition, body, b.constant(0)))
    assert b.is_constant(b.while_(condition, of_state("next", "s32[]", lambda c, x: x + 1), b.constant(0)))


def test_infeeds_and_outfeeds_follow_each_other() -> None:
    b = sl.XlaBuilder("feeds")
    first, second = b.infeed("f32[]"), b.infeed("f32[]")
    b.outfeed(first)
    b.outfeed(second)
    found = _instructions(b)
    assert found["infeed.1"].operands == [found["get-tuple-element"]]
    assert found["get-tuple-element"].operands == [found["infeed"]]
    assert found["outfeed.1"].operands[1] is found["outfeed"]


def test_splat_constants_are_broadcasts() -> None:
    b = sl.XlaBuilder("splat")
    for value in (np.zeros((2, 3)), np.array([0.0, -0.0]), np.full(4, np.nan), np.ones((1, 1)), np.zeros((0, 3))):
        b.constant(value)
    b.constant_r1(1000, 7)
    opcodes = [i.opcode for i in b.build().module().entry.instructions]
    assert opcodes == ["constant", "broadcast"] + ["constant"] + ["constant", "broadcast"] + ["constant"] * 2 + [
        "constant", "broadcast",
    ]  # fmt: skip


def test_selecting_between_tuples() -> None:
    b = sl.XlaBuilder("tuples")
    p = b.parameter(0, "pred[]", "p")
    b.select(p, b.tuple([f32(b, 3), b.tuple([s32(b, 2)])]), b.tuple([f32(b, 3) * 2, b.tuple([s32(b, 2) + 1])]))
    built = b.build()
    for held in (True, False):
        ours, theirs = built.evaluate(np.array(held)), run_xla(built.hlo_text(), np.array(held))
        for a, e in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, e, strict=True)


def test_map_with_static_operands() -> None:
    f = sl.XlaBuilder("weighted")
    x, weights, shift = f.parameter(0, "f32[]"), f.parameter(1, "f32[3]"), f.parameter(2, "f32[]")
    f.reduce(f.pow(weights, x), shift, combine("Add"), [0])
    b = sl.XlaBuilder("map")
    x, weights = b.parameter(0, "f32[2,2]", "x"), b.parameter(1, "f32[3]", "w")
    b.Map([x], f.build(), [weights, b.constant(0.5)])
    values, w = np.array([[1, 2], [3, 0]], np.float32), np.array([1, 2, 3], np.float32)
    built = b.build()
    (found,) = built.evaluate(values, w)
    np.testing.assert_allclose(found, (w ** values[..., None]).sum(-1) + 0.5, rtol=1e-6)
    np.testing.assert_allclose(found, run_xla(built.hlo_text(), values, w)[0], rtol=1e-6)


def test_operators() -> None:
    b = sl.XlaBuilder("operators")
    x, n, u, p = b.constant([4.0, 9.0]), b.constant([-8, 5]), b.constant([8, 5], "u32"), pred(b, 2)
    results = [
        -x, x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, x % 3, 30 % x, x**2, 2**x, abs(-x),
        n & 3, 3 & n, n | 1, 1 | n, n ^ 1, 1 ^ n, n << 1, 1 << u, n >> 1, u >> 1, -16 >> b.constant([1, 2]), ~p, ~n,
        x @ x, x.eq(4), x.ne(4), x.ge(4), x.gt(4), x.le(4), x.lt(4), np.array([1, 2], np.float32) + x,
    ]  # fmt: skip
    found = b.build(b.tuple(results)).evaluate()
    f, i, s = np.array([4, 9], np.float32), np.array([-8, 5], np.int32), np.array([8, 5], np.uint32)
    expected = [
        -f, f + 1, 1 + f, f - 1, 1 - f, f * 2, 2 * f, f / 2, 2 / f, f % 3, 30 % f, f**2, 2**f, f,
        i & 3, i & 3, i | 1, i | 1, i ^ 1, i ^ 1, i << 1, np.uint32(1) << s, i >> 1, s >> 1, np.array([-8, -4]),
        ~np.array([False, True]), ~i,
        f @ f, f == 4, f != 4, f >= 4, f > 4, f <= 4, f < 4, f + np.array([1, 2]),
    ]  # fmt: skip
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, np.asarray(e).astype(a.dtype), strict=True)
    assert x == x
    assert x != b.constant([4.0, 9.0])


def test_padding_by_name_is_jax_s() -> None:
    from jax import lax

    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes, window, strides = rng.integers(1, 9, (3, 2)).tolist()
        for name in ("SAME", "VALID"):
            found = sl.make_padding(sizes, window, strides, name)
            assert list(found) == lax.padtype_to_pads(sizes, window, strides, name)


def test_thirty_thousand_operations_take_seconds() -> None:
    b = sl.XlaBuilder("large")
    x = b.parameter(0, "f32[8]", "x")
    start = time.process_time()
    for _ in range(30_000):
        x = b.add(x, x)
    built = b.build()
    assert time.process_time() - start < 9
    assert len(built.module().entry.instructions) == 30_001


def test_dot_of_more_dimensions_is_numpys() -> None:
    b = sl.XlaBuilder("dot")
    left, right = np.arange(24.0).reshape(2, 3, 4), np.arange(40.0).reshape(2, 4, 5)
    b.Dot(b.constant(left), b.constant(right))
    np.testing.assert_array_equal(b.build().evaluate()[0], np.dot(left, right))


def test_vectors_of_constants() -> None:
    b = sl.XlaBuilder("vectors")
    shapes = [str(op.shape) for op in (b.ConstantR1([1, 2], "u8"), b.ConstantR1(3, 2.0), b.ConstantR1(3, 2.0, "f64"))]
    assert shapes == ["u8[2]", "f32[3]", "f64[3]"]


def test_both_forms_of_conditional() -> None:
    twice, negated = (of_state(name, "f32[]", make) for name, make in (
        ("twice", lambda c, x: x * 2), ("negated", lambda c, x: -x),
    ))  # fmt: skip
    b = sl.XlaBuilder("conditional")
    p, i, x = b.parameter(0, "pred[]"), b.parameter(1, "s32[]"), b.constant(3.0)
    results = [
        b.conditional(p, x, twice, x, negated),
        b.conditional(p, true_operand=x, true_computation=twice, false_operand=x, false_computation=negated),
        b.conditional(p, [twice, negated], [x, x]),
        b.conditional(i, branch_computations=[twice, negated], branch_operands=[x, x]),
    ]
    built = b.build(b.tuple(results))
    for held in (True, False):
        for index in (-1, 0, 1, 2):
            arguments = np.array(held), np.array(index, np.int32)
            expected = [6 if held else -3] * 3 + [6 if index == 0 else -3]
            assert built.evaluate(*arguments) == expected
            assert run_xla(built.hlo_text(), *arguments) == expected


def test_an_invalid_value_raises_the_error_wherever_it_goes() -> None:
    b = sl.XlaBuilder("bad")
    bad = b.add(f32(b, 2), f32(b, 3))
    for use in (
        lambda: b.set_instruction_sharding(bad, None),
        lambda: b.set_instruction_frontend_attribute(bad, "key", "value"),
        lambda: b.is_constant(bad),
        lambda: b.compute_constant(bad),
        lambda: b.check_shape(bad, "f32[2]"),
    ):
        with pytest.raises(HloError, match="incompatible"):
            use()
