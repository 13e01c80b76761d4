"""The least cycles in records: of a run, its groups and operations."""

from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.jobs.job import Request, run
from systolith.sim.simulate import simulate

# 64 tiles of 128 x 128 on two MXUs, through each of which 256 rows stream; f32 over HBM.
GEMM = """HloModule gemm

ENTRY main {{
  x = f32[256,1024] parameter(0)
  y = f32[1024,1024] parameter(1)
  ROOT d = f32[256,1024] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    operand_precision={{{0},{0}}}
}}
"""
TILES, BYTES = 64 * 256 / 2, 4 * (2 * 256 * 1024 + 1024 * 1024) * 47 / 22500


@pytest.mark.parametrize(
    ("asked", "given", "passes"), [("default", None, 1), ("highest", None, 6), ("highest", "default", 1)]
)
def test_bounds_by_hand(asked: str, given: str | None, passes: int, tmp_path: Path) -> None:
    path = tmp_path / "gemm.hlo"
    path.write_text(GEMM.format(asked))
    record = run(Request(path, "tpu_v3", mode="time", precision=given)).record()
    assert record["bound"] == {"mxu": TILES * passes, "alu": 0, "trans": 0, "hbm": pytest.approx(BYTES)}
    (group,) = (g for g in record["groups"] if "d" in g.get("hlo", ()))
    (op,) = (o for o in record["ops"] if o["name"] == "d")
    assert group["bound"]["mxu"] == op["bound"]["mxu"] == TILES * passes
    assert group["bound"]["hbm"] == op["bound"]["hbm"] == pytest.approx(BYTES)
    assert record["cycles"] >= max(record["bound"].values())


def test_operations_of_a_loop_count_as_often_as_they_ran(tmp_path: Path) -> None:
    path = tmp_path / "loop.hlo"
    path.write_text("""HloModule loop

body {
  s = (s32[], f32[1024,1024]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[1024,1024] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  y = f32[1024,1024] multiply(x, x)
  ROOT t = (s32[], f32[1024,1024]) tuple(next, y)
}

test {
  s = (s32[], f32[1024,1024]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT less = pred[] compare(n, five), direction=LT
}

ENTRY main {
  x = f32[1024,1024] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[1024,1024]) tuple(zero, x)
  w = (s32[], f32[1024,1024]) while(s), condition=test, body=body
  ROOT r = f32[1024,1024] get-tuple-element(w), index=1
}
""")
    record = run(Request(path, "tpu_v3", mode="time")).record()
    (group,) = (g for g in record["groups"] if "y" in g.get("hlo", ()))
    # 2 x 1,024 slots a cycle, and the adders of the cross-lane unit's 128 lanes, whose help the bound grants.
    assert group["bound"]["alu"] == pytest.approx(5 * 1024 * 1024 / (2 * 1024 + 128))
    assert record["bound"]["alu"] >= group["bound"]["alu"]


def test_a_run_of_python_has_bounds_and_one_of_a_binary_has_none(tmp_path: Path) -> None:
    exe = sl.Client(chip="tpu_v3").compile(GEMM.format("default"))
    exe(np.ones((256, 1024), np.float32), np.ones((1024, 1024), np.float32))[0].block()
    assert exe.last_run is not None
    assert exe.last_run.record()["bound"]["mxu"] == TILES
    exe.save(tmp_path / "gemm.slb")
    record = run(Request(tmp_path / "gemm.slb", mode="time")).record()
    assert "bound" not in record
    assert all("bound" not in group for group in record["groups"])
    assert simulate(exe.program, exe.program.target or sl.load_chip("tpu_v3"), mode="time").cycles == record["cycles"]
