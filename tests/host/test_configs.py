"""Queues by config: modules whose infeeds and outfeeds have several, compared with the evaluator."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Literal
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import ProgramError
from systolith.isa.program import Role
from systolith.isa.verify import verify_program
from systolith.runtime.arrays import Array
from systolith.runtime.commands.exits import BAD_INPUT, GOOD
from systolith.sim.host_times import HostTimes, HostTimesError
from tests.host.modules import ECHO, evaluated, fed_loop
from tests.reports.records import require_schema
from tests.runtime.command import systolith

TURNS = 5
TEXT = fed_loop(
    "classify",
    TURNS,
    """
 i = ((f32[64], f32[]), token[]) infeed(k), infeed_config="images"
 d = (f32[64], f32[]) get-tuple-element(i), index=0
 y = f32[64] get-tuple-element(d), index=0
 g = f32[] get-tuple-element(d), index=1
 b = f32[64] broadcast(g), dimensions={}
 t = token[] get-tuple-element(i), index=1
 j = (s32[64], token[]) infeed(t)
 l = s32[64] get-tuple-element(j), index=0
 u = token[] get-tuple-element(j), index=1
 f = f32[64] convert(l)
 m = f32[64] multiply(y, f)
 v = f32[64] add(m, b)
 z = f32[64] add(x, v)
 o = token[] outfeed(z, u), outfeed_shape=f32[64], outfeed_config="sums"
 q = token[] outfeed(l, o), outfeed_shape=s32[64], outfeed_config="seen"
""",
    "q",
)
START = np.arange(64, dtype=np.float32)
ITEMS: dict[str, list[Literal]] = {
    "images": [(np.full(64, n, np.float32), np.array(n / 2, np.float32)) for n in range(TURNS)],
    "": [np.arange(64, dtype=np.int32) - n for n in range(TURNS)],
}


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny")


@pytest.fixture(scope="module")
def classify(client: sl.Client) -> sl.Executable:
    return client.compile(TEXT)


def flat(value: Literal) -> list[Array]:
    return [np.asarray(a) for a in value] if isinstance(value, tuple) else [np.asarray(value)]


def test_each_config_is_a_queue_in_order_by_itself(client: sl.Client, classify: sl.Executable) -> None:
    want = evaluated(TEXT, ITEMS, START)

    def produce(config: str) -> None:
        for value in ITEMS[config]:
            client.infeed(config).push(*flat(value))

    producers = [Thread(target=produce, args=(config,)) for config in ITEMS]
    for producer in producers:
        producer.start()
    (y,) = classify(START, hostile=True)
    for config in ("seen", "sums"):
        for value in want.outfeeds[config]:
            (got,) = [client.outfeed(config).pop()]
            np.testing.assert_array_equal(got, np.asarray(value))
    np.testing.assert_array_equal(y.numpy(), want.values[0])
    for producer in producers:
        producer.join()
    assert not len(client.infeed())
    assert not len(client.outfeed())


def test_xla_s_client_interface_names_the_config(client: sl.Client, classify: sl.Executable) -> None:
    for config, values in ITEMS.items():
        for value in values:
            client.TransferToInfeed(sl.Literal.create(value), config=config)
    classify(START)
    got = [client.TransferFromOutfeed(sl.Shape.parse("s32[64]"), config="seen") for _ in range(TURNS)]
    for literal, item in zip(got, ITEMS[""], strict=True):
        np.testing.assert_array_equal(np.asarray(literal.value), item)
    assert client.outfeed("sums").clear() == TURNS


def test_a_queue_that_stays_empty_is_named(client: sl.Client, classify: sl.Executable) -> None:
    for value in ITEMS[""]:
        client.infeed().push(*flat(value))
    client.infeed("images").patience = 0.1
    (y,) = classify(START)
    with pytest.raises(sl.SystolithError, match=r"'i' takes f32\[64\] and the queue has .* push more") as error:
        y.block()
    assert "infeed queue 'images'" in str(error.value)
    client.infeed().clear()


def test_queues_of_a_config_are_the_same_for_all_programs(client: sl.Client, classify: sl.Executable) -> None:
    """Where the order of the text, and so the numbers of the queues, are other ones."""
    renamed = re.sub('infeed_config="images"', 'infeed_config="marks"', TEXT)
    swapped = client.compile(renamed.replace("infeed(t)", 'infeed(t), infeed_config="images"'))
    assert swapped.program.configs(Role.INFEED) == {0: "marks", 1: "images"}
    assert classify.program.configs(Role.INFEED) == {0: "", 1: "images"}
    for value in ITEMS["images"]:
        client.infeed("marks").push(*flat(value))
    for value in ITEMS[""]:
        client.infeed("images").push(*flat(value))
    (y,) = swapped(START)
    np.testing.assert_array_equal(y.numpy(), evaluated(TEXT, ITEMS, START).values[0])
    assert client.outfeed("sums").clear() == client.outfeed("seen").clear() == TURNS


def test_more_configs_than_queues_are_refused() -> None:
    with pytest.raises(
        CompileError,
        match=r"infeed 'i' .*the module has 2 configs of infeeds, chip 'tiny host.queues=1' a queue for 1: "
        r"set host.queues=2, or let infeeds share configs",
    ):
        sl.Client(chip=sl.chip("tiny", {"host.queues": 1})).compile(TEXT)


def test_binaries_and_assembly_keep_configs(classify: sl.Executable) -> None:
    program, chip = classify.program, load_chip("tiny")
    assert [b.config for b in program.buffers if b.role is Role.OUTFEED] == ["sums", "seen"]
    assert from_bytes(to_bytes(program)) == program
    assert to_bytes(assemble(disassemble(program), chip)) == to_bytes(program)


@pytest.mark.parametrize(("numbers", "configs"), [((0, 0), ("a", "b")), ((0, 1), ("a", "a")), ((1, 1), ("", "a"))])
def test_queues_of_two_configs_and_configs_of_two_queues_are_refused(
    numbers: tuple[int, int], configs: tuple[str, str]
) -> None:
    lines = [
        f'.buffer b{k} infeed f32 [4] bytes=0 number={n} config="{config}"'
        for k, (n, config) in enumerate(zip(numbers, configs, strict=True))
    ]
    with pytest.raises(ProgramError, match="a queue has one, of its own"):
        verify_program(assemble("\n".join([".program p", *lines, "    halt\n"]), load_chip("tiny")), load_chip("tiny"))


@pytest.mark.parametrize(("late", "size"), [("images", 260), ("", 256), (0, 256), (1, 260)])
def test_each_queue_has_its_own_times(classify: sl.Executable, late: int | str, size: int) -> None:
    times: dict[int | str, list[tuple[int, int]]] = {late: [(4000 * n, size) for n in range(TURNS)]}
    classify(mode="time", host=HostTimes(times))
    assert classify.last_run is not None
    cycles = classify.last_run.cycles
    assert cycles is not None
    assert 4000 * (TURNS - 1) < cycles < 4000 * TURNS
    assert classify.last_run.result.units["ld"]["host"] > 3000 * (TURNS - 1)


def test_times_of_queues_that_are_none_are_refused(classify: sl.Executable) -> None:
    classify(mode="time", host=HostTimes({"image": [(0, 1)]}))
    with pytest.raises(sl.SystolithError, match="no infeed has config 'image'; configs: 'images'"):
        classify.last_run  # noqa: B018
    classify(mode="time", host=HostTimes(outfeed={"": [(0, 1)]}))
    with pytest.raises(sl.SystolithError, match="no outfeed has config ''; configs: 'seen', 'sums'"):
        classify.last_run  # noqa: B018
    twice: dict[int | str, list[tuple[int, int]]] = {0: [(0, 1)], "": [(0, 1)]}
    classify(mode="time", host=HostTimes(twice))
    with pytest.raises(HostTimesError, match="infeed queue 0: has two lists of times, one as ''"):
        classify.last_run  # noqa: B018


# The command line.


def files(folder: Path, **more: object) -> tuple[Path, Path, Path]:
    """The module, its infeeds' arrays, its argument."""
    arrays: dict[str, object] = dict(more)
    for config, values in ITEMS.items():
        parts = [a for value in values for a in flat(value)]
        arrays |= {f"{config}/infeed{n}" if config else f"infeed{n}": a for n, a in enumerate(parts)}
    module, given, start = folder / "m.hlo", folder / "in.npz", folder / "args.npz"
    module.write_text(TEXT)
    np.savez(given, allow_pickle=False, **{name: np.asarray(a) for name, a in arrays.items()})
    np.savez(start, allow_pickle=False, arg0=START)
    return module, given, start


def test_files_name_arrays_by_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, given, start = files(tmp_path)
    out = tmp_path / "out.npz"
    ran = systolith(
        *(capsys, "run", module, "--chip", "tiny", "--args", start, "--infeed", given, "--outfeed", out, "--check")
    )
    assert ran.code == GOOD
    want = evaluated(TEXT, ITEMS, START)
    with np.load(out) as found:
        assert set(found.files) == {f"{config}/outfeed{n}" for config in ("sums", "seen") for n in range(TURNS)}
        for n in range(TURNS):
            np.testing.assert_array_equal(found[f"sums/outfeed{n}"], np.asarray(want.outfeeds["sums"][n]))


TIMES: list[tuple[Mapping[str, object], str, str]] = [
    ({"infeed": {"": [[4000 * n, 256] for n in range(TURNS)]}}, "ld", "host"),
    ({"outfeed": {"seen": [[4000 * n, 256] for n in range(2 * TURNS)]}}, "st", "host"),
]


@pytest.mark.parametrize(("times", "unit", "cause"), TIMES)
def test_times_of_the_host_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: Mapping[str, object], unit: str, cause: str
) -> None:
    module, given, start = files(tmp_path)
    path = tmp_path / "times.json"
    path.write_text(json.dumps(times))
    command = ["run", module, "--chip", "tiny", "--set", "host.room=256", "--host-times", path, "--json"]
    full = systolith(capsys, *command, "--args", start, "--infeed", given)
    timed = systolith(capsys, *command, "--mode", "time")
    assert (full.code, timed.code) == (GOOD, GOOD)
    one, other = json.loads(full.out), json.loads(timed.out)
    assert one["cycles"] == other["cycles"] > 4000 * (TURNS - 2)
    assert one["units"][unit][cause] > 2000 * (TURNS - 2)


def test_a_full_queue_holds_the_host_and_all_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, given, start = files(tmp_path)
    path, out = tmp_path / "times.json", tmp_path / "trace.json"
    sizes = {"": 256 * TURNS, "images": 512 * TURNS}
    path.write_text(json.dumps({"infeed": {config: [[0, size]] for config, size in sizes.items()}}))
    held = {}
    for room in (256, 1024, 65536):
        command = ["run", module, "--chip", "tiny", "--set", f"host.room={room}", "--host-times", path]
        command += ["--args", start, "--infeed", given, "--trace", out]
        ran = systolith(capsys, *command, "--json")
        assert ran.code == GOOD
        require_schema(json.loads(ran.out))
        held[room] = json.loads(ran.out)["host_held"]
        events = json.loads(out.read_text())["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        waits = [e for e in events if e["ph"] == "X" and e["name"].startswith("waits for credits")]
        assert sum(e["args"]["cycles"] for e in waits) == sum(held[room].values())
        assert {names[e["tid"]] for e in waits} == {f"host of infeed {n}" for n in range(2) if room < 65536}
        shown = re.search(r"Host held +([\d,]+) cycles", systolith(capsys, *command).out)
        assert shown is not None
        assert shown[1] == f"{max(held[room].values()):,}"
    assert held[256][""] > held[1024][""] > held[65536][""] == held[65536]["images"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "times.json: not times of the host: it: "),
        ('{"infeed": {"": [[0, -1]]}}', "times.json: not times of the host: infeed..0.1: must be "),
        ('{"infeed": {"": [[5, 1], [4, 1]]}}', "times.json: not times of the host: infeed queue '': must be (cycle"),
        ('{"infeed": {"marks": [[5, 1]]}}', "no infeed has config 'marks'; configs: 'images'"),
        ('{"outfeed": {"": [[5, 1]]}}', "no outfeed has config ''; configs: 'seen', 'sums'"),
        ('{"infeed": {"images": [[5, 1]]}}', "in.npz: images/cycles: "),
    ],
)
def test_times_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    module, given, start = files(tmp_path, **{"images/cycles": np.arange(2 * TURNS)})
    path = tmp_path / "times.json"
    path.write_text(text)
    ran = systolith(
        *(capsys, "run", module, "--chip", "tiny", "--args", start, "--infeed", given, "--host-times", path)
    )
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (BAD_INPUT, "", 1)
    assert message in ran.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("marks/infeed0", "in.npz: program classify: no infeed has config 'marks'; configs: 'images'"),
        ("images/infeed99", "in.npz: images: expected arrays infeed0 to infeed10, infeed10 is missing"),
    ],
)
def test_arrays_of_other_configs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    module, given, start = files(tmp_path, **{name: START})
    ran = systolith(capsys, "run", module, "--chip", "tiny", "--args", start, "--infeed", given)
    assert (ran.code, len(ran.err.splitlines())) == (BAD_INPUT, 1)
    assert message in ran.err


def test_one_config_is_the_default_queue_and_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    echo, given, out = tmp_path / "echo.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    echo.write_text(ECHO)
    x, y = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([1, -2, 3], np.int32)
    for prefix in ("", "first/"):
        np.savez(given, allow_pickle=False, **{f"{prefix}infeed0": x, f"{prefix}infeed1": y})
        ran = systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", given, "--outfeed", out)
        assert ran.code == GOOD
        with np.load(out) as found:
            assert found.files == ["outfeed0", "outfeed1"]
