"""Custom calls of functions of the host: values, order, errors, transfers, cycles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import ELEMENT_TYPES, dtype
from systolith.isa.errors import ProgramError
from systolith.isa.host_functions import PYTHON, HostFunctionError, Signature, register, unregister
from systolith.isa.program import Role
from systolith.isa.verify import verify_program
from systolith.runtime.arrays import random_array
from systolith.sim.host_timeline import LAUNCH, host_slices
from tests.examples import examples

TINY = load_chip("tiny")
SPLIT = """HloModule split
ENTRY main {
 x = f32[4,6] parameter(0)
 y = s32[3] parameter(1)
 c = (f32[4,6], (s32[], f32[0])) custom-call(x, y), custom_call_target="test.split"
 a = f32[4,6] get-tuple-element(c), index=0
 p = (s32[], f32[0]) get-tuple-element(c), index=1
 s = s32[] get-tuple-element(p), index=0
 n = f32[4,6] negate(a)
 ROOT r = (f32[4,6], s32[]) tuple(n, s)
}"""
LOOP = """HloModule loop
body {
 p = (s32[], f32[3]) parameter(0)
 n = s32[] get-tuple-element(p), index=0
 x = f32[3] get-tuple-element(p), index=1
 y = f32[3] custom-call(x, n), custom_call_target="test.first"
 e = () custom-call(n), custom_call_target="test.second", custom_call_has_side_effect=true
 one = s32[] constant(1)
 m = s32[] add(n, one)
 ROOT r = (s32[], f32[3]) tuple(m, y)
}
more {
 p = (s32[], f32[3]) parameter(0)
 n = s32[] get-tuple-element(p), index=0
 ROOT c = pred[] custom-call(n), custom_call_target="test.more"
}
yes { v = f32[3] parameter(0)
 ROOT r = f32[3] custom-call(v), custom_call_target="test.yes" }
no { v = f32[3] parameter(0)
 ROOT r = f32[3] negate(v) }
ENTRY main {
 x = f32[3] parameter(0)
 b = pred[] parameter(1)
 zero = s32[] constant(0)
 s = (s32[], f32[3]) tuple(zero, x)
 w = (s32[], f32[3]) while(s), condition=more, body=body
 y = f32[3] get-tuple-element(w), index=1
 ROOT z = f32[3] conditional(b, y, y), true_computation=yes, false_computation=no
}"""


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny")


@pytest.fixture
def log() -> Iterator[list[Any]]:
    """Registers functions that note their calls here."""
    calls: list[Any] = []

    def noting(name: str, result: Any) -> Any:
        def function(*operands: np.ndarray[Any, Any]) -> Any:
            calls.append((name, *[x.tolist() for x in operands]))
            return result(*operands)

        return function

    functions = {
        "split": lambda x, y: (x * 2, y.sum(dtype=np.int32), np.zeros(0, np.float32)),
        "first": lambda x, n: x + n.astype(np.float32),
        "second": lambda n: None,
        "more": lambda n: n < 3,
        "yes": lambda v: v * 10,
    }
    for name, function in functions.items():
        register(f"test.{name}", noting(name, function))
    yield calls
    for name in functions:
        unregister(f"test.{name}")


def test_tuples_and_arrays_without_elements(client: sl.Client, log: list[Any]) -> None:
    x, y = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([1, -2, 9], np.int32)
    module = sl.parse_hlo(SPLIT)
    exe = client.compile(module)
    a, s = (r.numpy() for r in exe(x, y, hostile=True))
    np.testing.assert_array_equal(a, -2 * x)
    assert s == 8
    assert exe.last_run is not None
    assert not exe.last_run.result.hazards
    assert log == [("split", x.tolist(), [1, -2, 9])]
    for got, want in zip((a, s), sl.evaluate(module, x, y), strict=True):
        np.testing.assert_array_equal(got, want)
    canonical = sl.parse_hlo(exe.as_text("canonical.hlo"))
    np.testing.assert_array_equal(sl.evaluate(canonical, x, y)[0], a)


@pytest.mark.parametrize("taken", [True, False])
def test_calls_in_loops_conditions_and_branches_keep_their_order(
    client: sl.Client, log: list[Any], taken: bool
) -> None:
    x, module = np.array([1, 2, 3], np.float32), sl.parse_hlo(LOOP)
    (want,) = sl.evaluate(module, x, np.array(taken))
    evaluated = [*log]
    log.clear()
    exe = client.compile(module)
    (got,) = exe(x, np.array(taken), hostile=True)
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(want, (x + 3) * 10 if taken else -(x + 3))
    assert log == evaluated
    names = ["more", *["first", "second", "more"] * 3, *["yes"] * taken]
    assert [call[0] for call in log] == names


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type(client: sl.Client, name: str) -> None:
    text = f"""HloModule turn
    ENTRY main {{
     x = {name}[3,5] parameter(0)
     t = {name}[5,3] transpose(x), dimensions={{1,0}}
     c = {name}[3,5] custom-call(t), custom_call_target="test.turn"
     ROOT r = {name}[15] reshape(c)
    }}"""
    given: list[np.ndarray[Any, Any]] = []

    def turn(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        given.append(x)
        return x.T

    register("test.turn", turn)
    x = random_array(np.random.default_rng(1), dtype(name), (3, 5))
    (got,) = client.compile(sl.parse_hlo(text))(x)
    assert got.numpy().tobytes() == x.tobytes()
    assert given[0].dtype == dtype(name).stored
    assert given[0].tobytes() == np.ascontiguousarray(x.T).tobytes()


@examples(12, 25)
@given(st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=3), st.lists(st.integers(0, 40), max_size=2))
def test_any_shapes(operands: list[list[int]], result: list[int]) -> None:
    """Operands that are many, none, or have no elements."""
    rng = np.random.default_rng(len(operands))
    arrays = [rng.standard_normal(dims).astype(np.float32) for dims in operands]
    shape = f"f32[{','.join(map(str, result))}]"
    lines = [f"x{n} = f32[{','.join(map(str, dims))}] parameter({n})" for n, dims in enumerate(operands)]
    names = ", ".join(f"x{n}" for n in range(len(operands)))
    text = (
        "HloModule m\nENTRY e {\n" + "\n".join(lines) + f'\nc = {shape} custom-call({names}), custom_call_target="t.s"'
    )
    want = rng.standard_normal(result).astype(np.float32)
    seen: list[Any] = []

    def function(*given: Any) -> Any:
        seen.extend(given)
        return want

    register("t.s", function)
    (got,) = sl.Client("tiny").compile(sl.parse_hlo(text + f"\nROOT n = {shape} negate(c)\n}}"))(*arrays)
    np.testing.assert_array_equal(got.numpy(), -want)
    if want.size:
        for one, other in zip(seen, arrays, strict=True):
            np.testing.assert_array_equal(one, other)


def test_results_wait_for_operands_and_each_way_costs_a_transfer(client: sl.Client, log: list[Any]) -> None:
    """Time alone calls nothing, and takes as many cycles."""
    exe = client.compile(sl.parse_hlo(SPLIT))
    exe(mode="time")
    assert log == []
    assert exe.last_run is not None
    alone = exe.last_run.cycles
    exe(np.ones((4, 6), np.float32), np.ones(3, np.int32))[0].numpy()
    assert (exe.last_run.cycles, len(log)) == (alone, 1)
    host = TINY.host
    ways = [2 * host.setup + -(-size * host.q // host.p) + host.latency for size in (24 * 4 + 3 * 4, 24 * 4 + 4)]
    assert alone is not None
    assert alone >= sum(ways)
    trace = exe.last_run.result.trace
    assert trace is not None
    moved = [(s.track, s.start, s.end) for s in host_slices(exe.last_run.result, trace) if s.track != LAUNCH]
    assert [track for track, _, _ in moved] == ["call 1", "call 1", "return 1", "return 1"]
    assert moved[2][1] >= moved[1][2] + host.latency


def test_large_arrays_go_in_pieces(client: sl.Client) -> None:
    """Of more bytes than VMEM and than an outfeed queue holds."""
    register("test.large", lambda x: x[::-1])
    text = """HloModule m
    ENTRY e { x = f32[100000] parameter(0)
      ROOT c = f32[100000] custom-call(x), custom_call_target="test.large" }"""
    x = np.arange(100000, dtype=np.float32)
    (got,) = client.compile(sl.parse_hlo(text))(x)
    np.testing.assert_array_equal(got.numpy(), x[::-1])


SIMPLE = """HloModule m
ENTRY e { x = f32[3] parameter(0)
  ROOT c = f32[3] custom-call(x), custom_call_target="test.simple" }"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: [][1], r"custom call of 'test\.simple': IndexError: list index out of range"),
        (lambda x: x.astype(np.float64), r"result 0: gave float64\[3\], the call has f32\[3\]"),
        (lambda x: x[:2], r"result 0: gave float32\[2\], the call has f32\[3\]"),
        (lambda x: (x, x), r"gave 2 arrays, the call has 1 results"),
        (lambda: None, r"TypeError: .*0 positional arguments but 1 was given"),
    ],
)
def test_what_goes_wrong_in_a_function_reaches_the_user(client: sl.Client, function: Any, message: str) -> None:
    register("test.simple", function)
    module, x = sl.parse_hlo(SIMPLE), np.ones(3, np.float32)
    with pytest.raises(sl.SystolithError, match=message):
        client.compile(module)(x)[0].numpy()
    with pytest.raises(HostFunctionError, match=message):
        sl.evaluate(module, x)
    register("test.simple", lambda x: x)
    np.testing.assert_array_equal(client.compile(module)(x)[0].numpy(), x)


def test_a_binary_holds_the_target(client: sl.Client) -> None:
    register("test.simple", lambda x: x + 1)
    program = client.compile(sl.parse_hlo(SIMPLE)).program
    array = ("f32", (3,))
    for read in (from_bytes(to_bytes(program)), assemble(disassemble(program), TINY)):
        (call,) = (b for b in read.buffers if b.role is Role.CALL)
        assert Signature.from_bytes(call.data) == Signature("test.simple", (array,), (array,))
    data: bytes = Signature("test.simple", (array,), (array,)).to_bytes()
    text = disassemble(program).replace(data.hex(), "5b")
    with pytest.raises(ProgramError, match="must be the target, operands and results of a call"):
        verify_program(assemble(text, TINY), TINY)


def test_targets_that_nobody_registered_are_refused(client: sl.Client) -> None:
    unregister("test.simple")
    with pytest.raises(CompileError, match=r"'test\.simple' of these shapes; .* register a function of the host"):
        client.compile(sl.parse_hlo(SIMPLE))
    register("test.simple", lambda x: x)
    exe = client.compile(sl.parse_hlo(SIMPLE))
    unregister("test.simple")
    with pytest.raises(
        sl.SystolithError, match=r"'test\.simple': no function of the host is registered for it in this"
    ):
        exe(np.ones(3, np.float32))[0].numpy()
    with pytest.raises(sl.SystolithError, match="takes a name and a function"):
        sl.register_custom_call_target("", print)


def test_callbacks_of_jax_are_refused_outside_of_their_process(client: sl.Client) -> None:
    text, target = SIMPLE.replace("test.simple", f"{PYTHON}there.0"), f"{PYTHON}there.0"
    message = rf"custom-call target '{target}': is a callback of JAX, a Python function of the process that traced"
    with pytest.raises(CompileError, match=message):
        client.compile(sl.parse_hlo(text))
    register(target, lambda x: x)
    exe = client.compile(sl.parse_hlo(text))
    unregister(target)
    with pytest.raises(sl.SystolithError, match=message):
        exe(np.ones(3, np.float32))[0].numpy()


def test_a_package_registers_functions_by_entry_points(tmp_path: Path) -> None:
    """The command line, whose process has no other way to know them."""
    (tmp_path / "doubles.py").write_text("def double(x):\n    return 2 * x\n")
    info = tmp_path / "doubles-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doubles\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[systolith.host_functions]\ntest.simple = doubles:double\n")
    path = tmp_path / "m.hlo"
    path.write_text(SIMPLE)
    np.savez(tmp_path / "in.npz", arg0=np.array([1, 2, 3], np.float32))
    np.savez(tmp_path / "out.npz", out0=np.array([2, 4, 6], np.float32))
    command = [
        sys.executable,
        "-m",
        "systolith",
        "run",
        str(path),
        "--chip",
        "tiny",
        "--args",
        str(tmp_path / "in.npz"),
    ]

    def ran(**environment: str) -> subprocess.CompletedProcess[str]:
        words = [*command, "--expect", str(tmp_path / "out.npz"), "--check", "--json"]
        return subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)

    done = ran(PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    refused = ran()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'test.simple'" in refused.stderr
