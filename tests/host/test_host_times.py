"""Time of transfers with the host: the link, data that come late, an outfeed that the host does not empty."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith import api as sl
from systolith.isa.asm import assemble
from systolith.isa.chip import load_chip
from systolith.isa.errors import ProgramError
from systolith.isa.verify import verify_program
from systolith.reports.attribution import attribute_run
from systolith.reports.roofline import peaks
from systolith.reports.run_data import load_run
from systolith.runtime.commands.exits import BAD_INPUT, GOOD
from systolith.sim.host_times import HostTimes, HostTimesError
from systolith.sim.simulate import RunResult, simulate
from tests.examples import examples
from tests.host.modules import ECHO
from tests.host.test_feed_files import X, Y, feed
from tests.host.test_feeds import ITEM, LOOP, START, TURNS, item
from tests.runtime.command import systolith

TINY = load_chip("tiny")
ARRAY = 400
"""Bytes of a transfer."""

LINK = TINY.host.setup + -(-ARRAY * TINY.host.q // TINY.host.p)
"""Cycles of a transfer, once the host is ready."""

ALL = 1 << 20


def timed(count: int, out: bool, host: HostTimes) -> RunResult:
    """`count` transfers of `ARRAY` bytes in a row, from or to host queue 1."""
    streams = "vmem[0]:p, host(1)[0]:p" if out else "host(1)[0]:p, vmem[0]:p"
    code = f"    dma.{'store' if out else 'load'} {streams}\n" * count
    text = f".program t\n.pattern p u32 counts=({ARRAY // 4}) strides=(4)\n{code}    halt\n"
    return simulate(assemble(text, TINY), TINY, mode="time", host=host)


def starts(result: RunResult) -> list[tuple[int, int, int]]:
    """(start, end, retirement) of each transfer."""
    assert result.trace is not None
    t = result.trace
    return list(zip(t.start.tolist(), t.end.tolist(), t.retire.tolist(), strict=True))


@pytest.mark.parametrize("out", [False, True])
def test_the_link_takes_its_setup_its_bandwidth_and_its_latency(out: bool) -> None:
    (first, second) = starts(timed(2, out, HostTimes()))
    assert first[1] - first[0] == LINK
    assert first[2] - first[1] == TINY.host.latency
    assert second == (first[1], first[1] + LINK, first[2] + LINK)
    units = timed(2, out, HostTimes()).units["st" if out else "ld"]
    assert units["busy"] + units["host_link"] == 2 * LINK
    assert "host" not in units


def test_memories_slower_than_the_link_set_the_pace() -> None:
    text = """.program t
.pattern host u8 counts=(64) strides=(1)
.pattern far u8 counts=(64) strides=(100)
    dma.load host(0)[0]:host, vmem[0]:far
    halt
"""
    result = simulate(assemble(text, TINY), TINY, mode="time")
    (found,) = starts(result)
    pieces = -(-64 // TINY.dma.segments)
    assert pieces > 64 * TINY.host.q // TINY.host.p
    assert found[1] - found[0] == TINY.host.setup + pieces
    assert result.units["ld"]["self_conflict"] == pieces - 2


def test_late_data_make_the_chip_wait_and_are_a_cause() -> None:
    host = HostTimes({1: [(0, ARRAY), (1000, ARRAY // 2), (3000, ARRAY - ARRAY // 2)]})
    first, second = starts(timed(2, False, host))
    assert first[1] == first[0] + LINK
    assert second == (first[1], 3000 + LINK, 3000 + LINK + TINY.host.latency)
    assert timed(2, False, host).units["ld"]["host"] == 3000 - first[1]


def test_a_full_outfeed_waits_for_the_host() -> None:
    fits = TINY.host.room // ARRAY
    host = HostTimes({}, {1: [(5000, ARRAY), (5000, 1), (9000, ALL)]})
    found = starts(timed(fits + 3, True, host))
    assert [end - start for start, end, _ in found[:fits]] == [LINK] * fits
    over = (fits + 1) * ARRAY - TINY.host.room
    assert over <= ARRAY + 1 < over + ARRAY
    assert [end for _, end, _ in found[fits:]] == [5000 + LINK, 9000 + LINK, 9000 + 2 * LINK]


@settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 3 * ARRAY)), max_size=8),
)
def test_each_transfer_begins_as_soon_as_the_host_is_ready(out: bool, count: int, steps: list[tuple[int, int]]) -> None:
    """Cycle by cycle: what the host has given, or has left, at each."""
    steps = [*sorted(steps), (2500, ALL)]
    result = timed(count, out, HostTimes({}, {1: steps}) if out else HostTimes({1: steps}))
    moved = 0
    for start, end, _ in starts(result):
        moved += ARRAY
        ready = start
        while sum(size for cycle, size in steps if cycle <= ready) + (TINY.host.room if out else 0) < moved:
            ready += 1
        assert end == ready + LINK
    assert all(sum(causes.values()) == result.cycles for causes in result.units.values())


@examples(30, 60)
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2 * TINY.host.room)), max_size=8),
    st.integers(0, 2 * TINY.host.room),
)
def test_the_host_is_held_while_it_has_bytes_and_no_credits(
    count: int, steps: list[tuple[int, int]], more: int
) -> None:
    """Cycle by cycle: a host that spends its credits, and gets those of a transfer back when that ends."""
    steps = [*sorted(steps), (2500, count * ARRAY + more)]
    result = timed(count, False, HostTimes({1: steps}))
    ends = [end for _, end, _ in starts(result)]
    credit, waiting, held = TINY.host.room, 0, []
    assert result.cycles is not None
    for cycle in range(result.cycles):
        waiting += sum(size for at, size in steps if at == cycle)
        credit += ARRAY * ends.count(cycle)
        sent = min(waiting, credit)
        waiting, credit = waiting - sent, credit - sent
        if waiting:
            held.append(cycle)
    assert [cycle for start, end in result.held[1] for cycle in range(start, end)] == held
    assert result.host_held == {"1": len(held)}


def test_a_host_without_times_is_never_held() -> None:
    assert timed(8, False, HostTimes()).host_held == {}
    assert timed(8, True, HostTimes({}, {1: [(0, ALL)]})).host_held == {}


def test_numbers_beyond_64_bits_hold_the_host_too() -> None:
    result = timed(2, False, HostTimes({1: [(0, 1 << 80), (1 << 80, 1)]}))
    assert result.held == {1: [(0, result.cycles)]}


@pytest.mark.parametrize("out", [False, True])
def test_times_that_end_before_the_run_name_the_instruction(out: bool) -> None:
    host = HostTimes({}, {1: [(9, 1)]}) if out else HostTimes({1: [(9, ARRAY)]})
    with pytest.raises(
        HostTimesError, match=r"dma.*: (in|out)feed queue 1: the run moves \d+ bytes, the host's times end"
    ):
        timed(TINY.host.room // ARRAY + 2, out, host)


@pytest.mark.parametrize("steps", [[(5, 1), (4, 1)], [(-1, 1)], [(0, -1)], [(1, 2, 3)], 7, [("a", 1)], [(1.5, 2)]])
def test_times_that_are_none_are_refused(steps: object) -> None:
    with pytest.raises(HostTimesError, match=r"infeed queue 0: must be \(cycle, bytes\) pairs"):
        HostTimes({0: steps})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        ("load host(0)[0]:p, vmem[0]:p", r"src: 2052 bytes at once: an infeed queue holds 2048 \(host.room\)"),
        ("store vmem[0]:p, host(0)[0]:p", r"dst: 2052 bytes at once: an outfeed queue holds 2048 \(host.room\)"),
    ],
)
def test_more_than_a_queue_holds_is_refused(copy: str, message: str) -> None:
    text = f""".program t
.pattern p u32 counts=({TINY.host.room // 4 + 1}) strides=(4)
    dma.{copy}
    halt
"""
    with pytest.raises(ProgramError, match=message):
        verify_program(assemble(text, TINY), TINY)


def test_values_and_time_do_not_depend_on_each_other() -> None:
    client = sl.Client(chip="tiny")
    loop = client.compile(LOOP)
    arrivals = HostTimes({0: [(1000 * n, ITEM) for n in range(TURNS)]})
    cycles = {}
    for name, host in (("at once", HostTimes()), ("late", arrivals)):
        client.infeed().push(*map(item, range(TURNS)))
        (y,) = loop(START, host=host)
        assert y.numpy()[0] == sum(range(TURNS))
        loop(mode="time", host=host)
        assert loop.last_run is not None
        cycles[name] = loop.last_run.cycles
        client.outfeed().clear()
    assert cycles["at once"] is not None
    assert cycles["late"] is not None
    assert 1000 * (TURNS - 1) < cycles["late"] < 1000 * TURNS
    assert cycles["at once"] < 500 * TURNS


def test_cycles_of_arrival_come_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    echo, given = tmp_path / "echo.hlo", feed(tmp_path, X, Y)
    echo.write_text(ECHO)
    with np.load(given) as found:
        np.savez(given, **dict(found.items()), cycles=np.array([10, 5000]))
    ran = systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", given, "--json")
    assert ran.code == GOOD
    record = json.loads(ran.out)
    assert record["units"]["ld"]["host"] > 4500
    assert record["cycles"] > 5000
    for cycles in (np.array([1]), np.array([5, 4]), np.array([0.5, 1])):
        np.savez(given, infeed0=X, infeed1=Y, cycles=cycles)
        ran = systolith(capsys, "run", echo, "--chip", "tiny", "--infeed", given)
        assert (ran.code, len(ran.err.splitlines())) == (BAD_INPUT, 1)
        assert "in.npz: cycles: " in ran.err


def test_a_report_says_that_the_host_bounds_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop, given, start = tmp_path / "loop.hlo", tmp_path / "in.npz", tmp_path / "args.npz"
    loop.write_text(LOOP)
    items = {f"infeed{n}": item(n) for n in range(TURNS)}
    np.savez(start, arg0=START)
    for interval in (0, 2000):
        np.savez(given, allow_pickle=False, **items, cycles=interval * np.arange(TURNS))
        ran = systolith(capsys, "run", loop, "--chip", "tiny", "--args", start, "--infeed", given, "--json")
        (tmp_path / "run.json").write_text(ran.out)
        run = load_run(tmp_path / "run.json")
        why = attribute_run(run, peaks(run.chip_parameters))["i"]
        assert (why.bound == "host") == (interval > 0)
        assert ("waiting for the host to send data" in why.sentence) == (interval > 0)
