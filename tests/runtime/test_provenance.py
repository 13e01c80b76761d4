"""Instructions are charged to the operations that they are for, under the names of the user's program."""

import pytest

from systolith.api import load_chip, parse_hlo
from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.stack_frames import source_lines
from systolith.reports.run_data import Group
from systolith.sim.simulate import RunResult, simulate
from tests.corpus.load import load

DOT = """HloModule m

FileNames
1 "model.py"
2 "nn.py"

FunctionNames
1 "main"
2 "dense"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=40 end_line=41 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}


ENTRY main {
  x = f32[64,128]{1,0} parameter(0)
  w = f32[128,64]{1,0} parameter(1)
  c = f32[64,64]{1,0} parameter(2)
  d = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/layer1/dot_general" stack_frame_id=2}
  s = f32[64,64]{1,0} add(d, c)
  z = f32[] constant(0)
  b = f32[64,64]{1,0} broadcast(z), dimensions={}
  ROOT r = f32[64,64]{1,0} maximum(s, b), metadata={op_name="jit(f)/layer1/relu" source_file="relu.py" source_line=7}
}
"""


def timed(text: str, chip: str) -> RunResult:
    target = load_chip(chip)
    return simulate(compile_module(parse_hlo(text), target).program, target, mode="time")


@pytest.fixture(scope="module")
def dot() -> RunResult:
    return timed(DOT, "small")


def test_operands_of_a_product_are_loaded_for_it(dot: RunResult) -> None:
    read = {op["name"]: op["hbm_bytes"]["read"] for op in dot.by("hlo")}
    assert read["d"] == 4 * (64 * 128 + 128 * 64)
    assert read["r"] == 4 * 64 * 64


def test_convolutions_pay_for_their_weights() -> None:
    result = timed(load("resnet18_infer_32_small").text, "tpu_v3")
    loads = {op["name"]: op["busy"].get("ld", 0) for op in result.by("hlo")}
    convolutions = sum(n for name, n in loads.items() if "conv" in name)
    assert convolutions > 0.9 * sum(loads.values())


def test_groups_and_operations_have_the_names_of_the_program(dot: RunResult) -> None:
    (group,) = (g for g in dot.groups() if g["name"])
    assert (group["root"], group["op_name"], group["source"]) == ("d", "jit(f)/layer1/dot_general", "nn.py:40")
    places = {op["name"]: (op.get("op_name"), op.get("source")) for op in dot.ops()}
    assert places == {
        "d": ("jit(f)/layer1/dot_general", "nn.py:40"), "r": ("jit(f)/layer1/relu", "relu.py:7"), "": (None, None),
    }  # fmt: skip


def test_titles() -> None:
    assert Group(name="max.1", root="conv.2").title == "conv.2 (max.1)"
    assert Group(name="max.1", root="conv.2", op_name="jit(f)/layer1/conv").title == "layer1/conv (max.1)"
    assert Group(name="add.1").title == "add.1"
    assert Group(name="").title == "(no group)"


def test_frames_without_tables() -> None:
    assert source_lines("") == {}
