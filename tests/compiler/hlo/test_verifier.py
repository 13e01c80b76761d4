"""The verifier: which rule is broken, by which instruction, on which line."""

import pytest

from systolith.compiler.hlo import HloError, parse_hlo, verify

HEAD = """add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
pair { a = f32[] parameter(0) b = f32[] parameter(1) ROOT t = (f32[], f32[]) tuple(a, b) }
"""

BAD = [
    ("ROOT y = f32[3] add(x, x)", "add 'y' (f32[3]): is declared f32[3], its operands give f32[2,3]"),
    ("ROOT y = f32[2,3] add(x, v)", "operands have equal sizes, got f32[2,3], f32[3]"),
    ("ROOT y = f32[2,3] and(x, x)", "takes pred or signed or unsigned elements, got f32"),
    ("ROOT y = f32[2,3] add(x, i)", "operands have one element type, got f32[2,3], s32[2,3]"),
    ("ROOT y = f32[3,2] transpose(x), dimensions={1,1}", "dimensions {1,1} are unique numbers from 0 to 1"),
    ("ROOT y = f32[7] reshape(x)", "f32[2,3] has 6 elements, f32[7] has 7"),
    ("ROOT y = f32[2,4] broadcast(v), dimensions={1}", "dimension 0 of f32[3] has the size of dimension 1 of f32[2,4]"),
    ("ROOT y = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "contracting dimensions of f32[2,3] and f32[2,3] have equal sizes, got [3] and [2]"),
    ("ROOT y = f32[2] reduce(x, x), dimensions={1}, to_apply=add", "initial values are scalars, got f32[2,3]"),
    ("ROOT y = f32[2] reduce(x, z), dimensions={1}, to_apply=pair",
     "computation 'pair' gives (f32[]), got (f32[], f32[])"),
    ("ROOT y = f32[2] reduce(x, z), dimensions={2}, to_apply=add", "dimensions {2} are unique numbers from 0 to 1"),
    ("ROOT y = f32[2,3] call(x), to_apply=add", "computation 'add' takes (f32[], f32[]), is given (f32[2,3])"),
    ("ROOT y = f32[1,3] slice(x), slice={[1:3], [0:3]}", "slice [1:3:1] lies in dimension 0, of 2 elements"),
    ("ROOT y = f32[2,6] concatenate(x, x), dimensions={2}", "dimensions {2} are unique numbers from 0 to 1"),
    ("ROOT y = f32[2,5] concatenate(x, x), dimensions={1}", "is declared f32[2,5], its operands give f32[2,6]"),
    ("ROOT y = f32[2,3] pad(x, z), padding=0_0", "padding has 2 dimensions, got 1"),
    ("ROOT y = pred[2,3] compare(x, x), direction=LT, type=SIGNED", "type is FLOAT or TOTALORDER for f32, got SIGNED"),
    ("ROOT y = f32[2,3] select(x, x, x)", "the predicate is pred, got f32[2,3]"),
    ("ROOT y = f32[2] rng(z), distribution=rng_uniform", "takes the distribution's two parameters, got 1"),
    ("ROOT y = f32[2] get-tuple-element(x), index=0", "the operand is a tuple, got f32[2,3]"),
    ("ROOT y = f32[2,3] iota(), iota_dimension=2", "iota_dimension {2} are unique numbers from 0 to 1"),
    ("ROOT y = f32[1,3] dynamic-slice(x, z, z), dynamic_slice_sizes={1,3}",
     "one integer scalar per dimension of f32[2,3]"),
    ("ROOT y = f32[2,3] while(x), condition=add, body=add",
     "condition 'add' takes (f32[], f32[]), is given (f32[2,3])"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), BAD)
def test_broken_rules(line: str, message: str) -> None:
    text = f"""HloModule m
{HEAD}
ENTRY main {{
  x = f32[2,3] parameter(0)
  i = s32[2,3] parameter(1)
  v = f32[3] parameter(2)
  z = f32[] constant(0)
  {line}
}}
"""
    with pytest.raises(HloError) as caught:
        verify(parse_hlo(text, "m.hlo"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("m.hlo:10:3: ")
    assert "'y'" in str(caught.value)
    assert line in caught.value.detail


def test_a_missing_attribute() -> None:
    module = parse_hlo("""HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  ROOT y = f32[3,2] transpose(x), dimensions={1,0}
}
""")
    module.entry.result.attributes.clear()
    with pytest.raises(HloError, match="transpose 'y' has no attribute 'dimensions', which it needs"):
        verify(module)


def test_a_control_predecessor_stands_before() -> None:
    module = parse_hlo("""HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] negate(x)
  ROOT z = f32[2] negate(x), control-predecessors={y}
}
""")
    verify(module)
    module.entry.result.attributes["control-predecessors"] = ("z",)
    with pytest.raises(HloError, match="control predecessor 'z' is not defined before it"):
        verify(module)


CONV = """HloModule m
ENTRY main {{
  x = f32[1,8,8,6] parameter(0)
  w = f32[3,3,{features},{outputs}] parameter(1)
  ROOT y = f32[1,6,6,4] convolution(x, w), window={{size={size}}}, dim_labels=b01f_01io->b01f{more}
}}
"""


@pytest.mark.parametrize(
    ("features", "outputs", "size", "more", "message"),
    [
        (6, 4, "3x3", "", None),
        (3, 4, "3x3", ", feature_group_count=2", None),
        (3, 4, "3x3", "", "input features 6 are 1 group(s) of the kernel's 3"),
        (2, 4, "3x3", ", feature_group_count=3", "output features 4 are a multiple of the group count"),
        (6, 4, "3x2", "", "the window's size (3, 2) is the kernel's (3, 3)"),
        (6, 4, "3x3", ", batch_group_count=2", "the batch 1 is a multiple of batch_group_count 2"),
        (6, 5, "3x3", "", "is declared f32[1,6,6,4], its operands give f32[1,6,6,5]"),
    ],
)
def test_convolution(features: int, outputs: int, size: str, more: str, message: str | None) -> None:
    module = parse_hlo(CONV.format(features=features, outputs=outputs, size=size, more=more))
    if message is None:
        verify(module)
        return
    with pytest.raises(HloError, match=message.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")):
        verify(module)


def test_recursion() -> None:
    text = """HloModule m
a { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=b }
b { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=a }
ENTRY main { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=a }
"""
    with pytest.raises(HloError, match="calls itself"):
        verify(parse_hlo(text))


def test_parameters_are_numbered_without_gaps() -> None:
    text = "HloModule m\nENTRY e {\n a = f32[] parameter(0)\n b = f32[] parameter(2)\n ROOT c = f32[] add(a, b)\n}"
    with pytest.raises(HloError, match="parameters of 'e' are numbered from 0 without gaps, got 0, 2"):
        verify(parse_hlo(text))


def test_order_and_membership_after_a_pass() -> None:
    module = parse_hlo(
        "HloModule m\nENTRY e {\n a = f32[] parameter(0)\n b = f32[] negate(a)\n ROOT c = f32[] add(a, b)\n}"
    )
    a, b, c = module.entry.instructions
    module.entry.instructions = [a, c, b]
    with pytest.raises(HloError, match=r"operand 'b' is not defined before it"):
        verify(module)
    module.entry.instructions = [a, b]
    with pytest.raises(HloError, match=r"the root 'c' of 'e' is not one of its instructions"):
        verify(module)


def test_entry_layout_is_checked() -> None:
    text = "HloModule m, entry_computation_layout={(f32[3])->f32[]}\nENTRY e { ROOT a = f32[] parameter(0) }"
    with pytest.raises(HloError, match=r"entry_computation_layout states f32\[3\] for parameter 0, which has f32\[\]"):
        verify(parse_hlo(text))
