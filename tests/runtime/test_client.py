"""The host's API: client, buffers, executables."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.isa.asm import assemble
from systolith.isa.binary import save
from systolith.isa.dtypes import dtype

DOT = """HloModule m
ENTRY main {
  a = f32[8,16] parameter(0)
  b = f32[16,8] parameter(1)
  d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  s = f32[8,8] add(d, d)
  ROOT t = (f32[8,8], f32[8,8]) tuple(d, s)
}
"""
LARGE = """HloModule m
ENTRY main {
  a = f32[1024,512] parameter(0)
  ROOT n = f32[1024,512] negate(a)
}
"""


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny", devices=2)


@pytest.fixture(scope="module")
def dot(client: sl.Client) -> sl.Executable:
    return client.compile(DOT)


def test_a_run_gives_buffers_with_the_results(client: sl.Client, dot: sl.Executable) -> None:
    a, b = draw(8, 16), draw(16, 8)
    x = client.put(a)
    first, second = dot(x, b)
    assert first.shape == (8, 8)
    np.testing.assert_allclose(first.numpy(), a @ b, rtol=1e-5, atol=1e-5)
    assert (second.numpy() == first.numpy() * 2).all()
    assert dot.last_run is not None
    assert dot.last_run.cycles
    np.testing.assert_array_equal(x.numpy(), a)


def test_buffers_without_elements(client: sl.Client) -> None:
    text = "HloModule m\nENTRY e {\n x = f32[0,3] parameter(0)\n y = f32[2] parameter(1)\n s = f32[0,3] add(x, x)\n"
    text += " ROOT t = (f32[0,3], f32[2]) tuple(s, y)\n}\n"
    nothing = client.put(np.zeros((0, 3), np.float32))
    first, second = client.compile(text)(nothing, draw(2))
    assert (nothing.numpy().shape, first.numpy().shape) == ((0, 3), (0, 3))
    np.testing.assert_array_equal(second.numpy(), draw(2))


def test_results_feed_the_next_run_without_waiting(client: sl.Client) -> None:
    twice = client.compile("HloModule m\nENTRY e {\n a = f32[64] parameter(0)\n ROOT s = f32[64] add(a, a)\n}\n")
    x = client.put(np.ones(64, np.float32))
    for _ in range(5):
        (x,) = twice(x)
    assert (x.numpy() == 32).all()


def test_each_device_has_its_own_memory(client: sl.Client, dot: sl.Executable) -> None:
    x = client.put(draw(8, 16), device=1)
    with pytest.raises(sl.SystolithError, match="the buffer is on tiny:1, the run on tiny:0"):
        dot(x, draw(16, 8), device=0)
    assert dot(x, draw(16, 8), device=1)[0].device is client.devices[1]


def test_a_deleted_buffer_frees_its_memory_and_cannot_be_read(client: sl.Client) -> None:
    hbm = client.devices[0].hbm
    before = hbm.in_use
    x = client.put(draw(100))
    assert hbm.in_use > before
    x.delete()
    x.delete()
    assert hbm.in_use == before
    with pytest.raises(sl.SystolithError, match="was deleted"):
        x.numpy()


def test_buffers_that_nothing_refers_to_give_their_memory_back(client: sl.Client, dot: sl.Executable) -> None:
    hbm = client.devices[0].hbm
    dot(draw(8, 16), draw(16, 8))[0].block()
    gc.collect()
    before = hbm.in_use
    for _ in range(3):
        dot(draw(8, 16), draw(16, 8))[0].block()
    client.devices[0].queue.submit(lambda: None).result()
    gc.collect()
    assert hbm.in_use <= before


def test_what_is_shown_of_clients_and_their_devices(client: sl.Client) -> None:
    assert repr(client) == f"<Client of {len(client.devices)} x tiny>"
    exe = client.compile("HloModule m\nENTRY e {\n a = f32[8] parameter(0)\n ROOT s = f32[8] add(a, a)\n}\n")
    assert repr(exe.memory) == "<MemoryUse: 64 bytes of HBM, 64 of VMEM>"
    elsewhere = sl.Client("tiny").put(np.zeros(8, np.float32))
    with pytest.raises(sl.SystolithError, match=r"argument 0 \(a\): the buffer is on another client's tiny:0, the run"):
        exe(elsewhere)


def test_host_queues_feed_a_program_and_take_its_results(client: sl.Client) -> None:
    text = (Path(__file__).parent.parent / "programs" / "host_queues.s").read_text()
    sums = client.load(assemble(text, client.chip))
    records = draw(3, 16)
    client.infeed(0).push(*records)
    sums()
    assert (client.outfeed(1).pop(dtype("f32"), (3, 16)) == np.cumsum(records, axis=0, dtype=np.float32)).all()
    with pytest.raises(sl.SystolithError, match="there are fewer"):
        client.outfeed(1).pop(dtype("f32"), (1,))
    with pytest.raises(sl.SystolithError, match="infeed queue 99: chip tiny has"):
        client.infeed(99)


def test_wrong_arguments_are_refused_at_the_call(client: sl.Client, dot: sl.Executable) -> None:
    with pytest.raises(sl.SystolithError, match="takes 2 arguments, got 1"):
        dot(draw(8, 16))
    with pytest.raises(sl.SystolithError, match=r"argument 1 \(b\): the module takes f32\[16,8\], got float32\[8,16\]"):
        dot(draw(8, 16), draw(8, 16))
    with pytest.raises(sl.SystolithError, match=r"argument 0 \(a\)"):
        dot(client.put(draw(8, 8)), draw(16, 8))


def test_memory_runs_out_with_a_message() -> None:
    client = sl.Client(chip="tiny")
    negate = client.compile(LARGE)
    kept = [client.put(draw(1024, 512)) for _ in range(6)]
    assert (negate(kept[0])[0].numpy() == -kept[0].numpy()).all()
    extra = [client.put(draw(1024, 512)) for _ in range(2)]
    with pytest.raises(sl.SystolithError, match="HBM is full"):
        extra.append(client.put(draw(1024, 512)))


def test_memory_and_cost(dot: sl.Executable) -> None:
    assert dot.memory.parameters == 2 * 8 * 16 * 4
    assert dot.memory.results == 2 * 8 * 8 * 4
    assert dot.cost_analysis()["flops"] == 2 * 8 * 8 * 16 + 8 * 8


def test_stages_as_text(dot: sl.Executable) -> None:
    assert "mxu.matmul" in dot.as_text()
    assert "fusion" in dot.as_text("grouped.hlo")
    with pytest.raises(sl.SystolithError, match="no stage 'none'; there are: "):
        dot.as_text("none")


def test_a_binary_loads_and_runs(client: sl.Client, dot: sl.Executable, tmp_path: Path) -> None:
    save(dot.program, tmp_path / "dot.slb")
    again = client.load(tmp_path / "dot.slb")
    a, b = draw(8, 16), draw(16, 8)
    assert (again(a, b)[0].numpy() == dot(a, b)[0].numpy()).all()
    with pytest.raises(sl.SystolithError, match=r"is for chip tiny .*mxu.rows 8 and not 32"):
        sl.Client(chip="small").load(tmp_path / "dot.slb")


def test_report_and_trace_of_a_run(dot: sl.Executable, tmp_path: Path) -> None:
    dot(draw(8, 16), draw(16, 8))[0].block()
    assert dot.last_run is not None
    assert dot.last_run.report(tmp_path / "r.html").read_text().startswith("<!")
    assert dot.last_run.trace["traceEvents"]


def test_an_error_of_a_run_surfaces_where_its_results_are_read(client: sl.Client, dot: sl.Executable) -> None:
    results = dot(draw(8, 16), draw(16, 8), max_cycles=1)
    with pytest.raises(sl.SystolithError, match="not done after 1 cycles"):
        results[0].numpy()


def test_a_client_needs_a_device() -> None:
    with pytest.raises(sl.SystolithError, match="a client has from 1 to"):
        sl.Client(chip="tiny", devices=0)
