"""The engine against times computed by hand, and against the clocked reference on random programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.errors import ProgramError
from systolith.isa.program import TokenDecl
from systolith.sim.deadlock import DeadlockError
from systolith.sim.engine import Engine, TokenOverflowError
from systolith.sim.queues import Limits, Work
from tests.sim_time import reference

QUEUES = ("ld", "st", "w0", "s0", "vpu", "xlu")
LIMITS = Limits(fifo_depth=4, token_max=15, branch_penalty=2, p=32, q=1, chunk=32)
Stream = list[Work | bool]
Row = tuple[int, int, int, int]  # issue, start, end, retire


def run(stream: Stream, tokens: list[TokenDecl] | None = None, limits: Limits = LIMITS) -> Engine:
    engine = Engine(limits, QUEUES, tokens or [], lambda i, _: f"#{i}")
    for i, item in enumerate(stream):
        if isinstance(item, bool):
            engine.scalar(item)
        elif item.queue == "seq":
            engine.sync(engine.prepare(item), i)
        else:
            engine.issue(engine.prepare(item), i)
    engine.finish()
    return engine


def rows(engine: Engine) -> list[Row]:
    r = engine.record
    return list(zip(r.issue, r.start, r.end, r.retire, strict=True))


def vpu(cycles: int, **more: object) -> Work:
    return Work("vpu", occupancy=cycles, latency=cycles, **more)  # type: ignore[arg-type]


def test_independent_instructions_run_back_to_back() -> None:
    engine = run([vpu(10), vpu(10)])
    assert rows(engine) == [(1, 2, 12, 12), (2, 12, 22, 22)]
    assert engine.cycles == 22
    assert engine.units["vpu"] == {"busy": 20, "fifo_empty": 2}
    assert engine.units["seq"] == {"busy": 0, "fetch": 2, "idle": 20}


def test_latency_beyond_occupancy_overlaps() -> None:
    engine = run([Work("s0", occupancy=4, latency=30), Work("s0", occupancy=4, latency=30)])
    assert rows(engine) == [(1, 2, 6, 32), (2, 6, 10, 36)]
    assert engine.units["s0"] == {"busy": 8, "fifo_empty": 2, "drain": 26}


def test_retirement_is_in_order() -> None:
    engine = run([Work("s0", occupancy=4, latency=30), Work("s0", occupancy=1, latency=1)])
    assert rows(engine) == [(1, 2, 6, 32), (2, 6, 7, 32)]


def test_a_latch_retires_alone() -> None:
    tokens = [TokenDecl("s0", "w0"), TokenDecl("s0", "vpu")]
    matmul, latch = Work("s0", occupancy=4, latency=30), Work("s0", signals=(0,), alone=True)
    after = Work("s0", occupancy=2, latency=3, signals=(1,))
    engine = run([matmul, latch, after, Work("w0", waits=(0,)), vpu(1, waits=(1,))], tokens)
    # The latch before the matmul that it follows, the next one in order again.
    assert rows(engine) == [(1, 2, 6, 32), (2, 6, 7, 7), (3, 7, 9, 32), (4, 7, 8, 8), (5, 32, 33, 33)]


def test_a_fence_waits_for_what_a_latch_overtook() -> None:
    stream: Stream = [Work("s0", occupancy=4, latency=30), Work("s0", alone=True), Work("s0", fence=True, alone=True)]
    assert rows(run(stream)) == [(1, 2, 6, 32), (2, 6, 7, 7), (3, 32, 33, 33)]


def test_a_token_is_signalled_by_latches_or_by_others() -> None:
    with pytest.raises(ProgramError, match="token 0: its signallers do not retire in order"):
        run([Work("s0", signals=(0,), alone=True), Work("s0", signals=(0,))], [TokenDecl("s0", "w0")])


def test_a_dependent_instruction_waits_for_the_retirement() -> None:
    tokens = [TokenDecl("s0", "vpu")]
    engine = run([Work("s0", occupancy=4, latency=30, signals=(0,)), vpu(5, waits=(0,))], tokens)
    assert rows(engine) == [(1, 2, 6, 32), (2, 32, 37, 37)]
    assert engine.units["vpu"] == {"busy": 5, "fifo_empty": 3, "wait_s0": 29}


def test_a_wait_for_a_weight_tile_is_split_at_the_start_of_its_load() -> None:
    tokens = [TokenDecl("w0", "s0")]
    load = Work("w0", occupancy=8, latency=10, shifts=True, signals=(0,))
    engine = run([Work("w0", occupancy=20, latency=20), load, Work("s0", waits=(0,))], tokens)
    assert rows(engine) == [(1, 2, 22, 22), (2, 22, 30, 32), (3, 32, 33, 33)]
    assert engine.units["s0"] == {
        "busy": 1, "fifo_empty": 4, "wait_w0": 18, "weight_shift": 10
    }  # fmt: skip


def test_two_tokens_are_taken_at_once() -> None:
    tokens = [TokenDecl("s0", "vpu"), TokenDecl("xlu", "vpu")]
    slow, fast = Work("s0", latency=30, signals=(0,)), Work("xlu", latency=9, signals=(1,))
    engine = run([slow, fast, vpu(5, waits=(0, 1))], tokens)
    assert rows(engine)[2] == (3, 32, 37, 37)
    assert engine.units["vpu"]["wait_xlu"] == 12 - 4
    assert engine.units["vpu"]["wait_s0"] == 32 - 12


def test_a_full_fifo_holds_seq_back() -> None:
    engine = run([vpu(10), vpu(10), vpu(10), Work("xlu")], limits=Limits(1, 15, 2, 32, 1, 32))
    # The place of the first frees when it starts, at 2; that of the second at 12.
    assert rows(engine) == [(1, 2, 12, 12), (2, 12, 22, 22), (12, 22, 32, 32), (13, 14, 15, 15)]
    assert engine.units["seq"] == {"busy": 0, "fetch": 4, "fifo_full_vpu": 9, "idle": 19}


def test_fetch_and_branches_cost_seq_time() -> None:
    engine = run([False, True, vpu(1, fetch=5)])
    assert rows(engine) == [(9, 10, 11, 11)]
    assert engine.units["seq"] == {"busy": 2, "branch": 2, "fetch": 5, "idle": 2}


def test_sync_makes_seq_wait() -> None:
    tokens = [TokenDecl("vpu", "seq"), TokenDecl("seq", "xlu")]
    sync = Work("seq", waits=(0,), signals=(1,))
    engine = run([vpu(10, signals=(0,)), sync, Work("xlu", waits=(1,))], tokens)
    assert rows(engine) == [(1, 2, 12, 12), (1, 12, 13, 13), (14, 15, 16, 16)]
    assert engine.units["seq"] == {"busy": 1, "fetch": 2, "wait_vpu": 11, "idle": 2}


def test_a_transfer_ends_at_its_last_grant_and_signals_a_latency_later() -> None:
    tokens = [TokenDecl("ld", "vpu")]
    engine = run([Work("ld", chunks=7, latency=20, signals=(0,)), vpu(5, waits=(0,))], tokens)
    assert rows(engine) == [(1, 2, 9, 29), (2, 29, 34, 34)]
    assert engine.units["vpu"] == {
        "busy": 5, "fifo_empty": 3, "wait_ld": 6, "hbm_latency": 20
    }  # fmt: skip


def test_load_and_store_contend() -> None:
    engine = run([Work("ld", chunks=6, latency=20), Work("st", chunks=3, latency=20)])
    # ld is granted in cycles 2, 4, 6, 8, 9; st arrives at 3 and is granted in 3, 5, 7.
    assert rows(engine) == [(1, 2, 11, 31), (2, 3, 8, 28)]
    assert engine.units["ld"] == {"busy": 6, "fifo_empty": 2, "hbm_contention": 3, "hbm_latency": 20}
    assert engine.units["st"]["hbm_contention"] == 2


def test_an_idle_queue_does_not_slow_the_other_down() -> None:
    tokens = [TokenDecl("ld", "st")]
    engine = run([Work("ld", chunks=6, latency=5, signals=(0,)), Work("st", chunks=3, waits=(0,))], tokens)
    assert rows(engine) == [(1, 2, 8, 13), (2, 13, 16, 17)]


def test_half_the_bandwidth_shows() -> None:
    half = Limits(4, 15, 2, 16, 1, 32)
    engine = run([Work("ld", chunks=100, latency=20)], limits=half)
    assert rows(engine) == [(1, 2, 2 + 199 - 1, 2 + 198 + 20)]
    assert engine.units["ld"]["hbm_bandwidth"] == 98


def test_a_fence_waits_for_the_queue_to_retire() -> None:
    engine = run([Work("ld", chunks=4, latency=20), Work("ld", chunks=4, latency=20, fence=True)])
    assert rows(engine) == [(1, 2, 6, 26), (2, 26, 30, 50)]
    assert engine.units["ld"]["fence"] == 20
    assert rows(run([Work("ld", chunks=4, latency=20)] * 2)) == [(1, 2, 6, 26), (2, 6, 10, 30)]


def test_deadlock_names_both_sides() -> None:
    tokens = [TokenDecl("vpu", "xlu"), TokenDecl("xlu", "vpu")]
    with pytest.raises(DeadlockError) as caught:
        run([Work("vpu", waits=(1,), signals=(0,)), Work("xlu", waits=(0,), signals=(1,))], tokens)
    assert str(caught.value) == (
        "deadlock at cycle 2: "
        "vpu: #0 waits for token 1 (count 0, signalled 0 times by xlu; #1 in xlu will signal it); "
        "xlu: #1 waits for token 0 (count 0, signalled 0 times by vpu; #0 in vpu will signal it); "
        "seq: has issued everything"
    )


def test_deadlock_through_a_full_fifo() -> None:
    tokens = [TokenDecl("xlu", "vpu")]
    stream: Stream = [*[Work("vpu", waits=(0,))] * 5, Work("xlu", signals=(0,))]
    with pytest.raises(DeadlockError, match="seq: #4 cannot be issued, the FIFO of vpu is full") as caught:
        run(stream, tokens)
    assert "nothing issued will signal it" in str(caught.value)


def test_deadlock_of_a_sync() -> None:
    with pytest.raises(DeadlockError, match="seq: #0 waits for token 0 "):
        run([Work("seq", waits=(0,))], [TokenDecl("ld", "seq")])


def test_a_wait_may_stand_before_its_signal_if_the_fifo_holds_it() -> None:
    tokens = [TokenDecl("xlu", "vpu")]
    engine = run([vpu(1, waits=(0,)), Work("xlu", latency=3, signals=(0,))], tokens)
    assert rows(engine) == [(1, 6, 7, 7), (2, 3, 4, 6)]


def test_a_token_beyond_its_largest_count_traps() -> None:
    tokens = [TokenDecl("xlu", "vpu")]
    stream: Stream = [*[Work("xlu", signals=(0,))] * 4, *[vpu(50, waits=(0,))] * 4]
    limits = Limits(4, 2, 2, 32, 1, 32)  # signals at 3, 4 and 5; the first wait is over at 6
    with pytest.raises(
        TokenOverflowError,
        match=r"token 0 \(xlu to vpu\) .* largest count 2 .token.max.: compiled programs need two more than fifo.depth",
    ):
        run(stream, tokens, limits)
    run(stream, tokens, Limits(4, 4, 2, 32, 1, 32))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Work("vpu", waits=(0,)), "which xlu waits for"),
        (Work("xlu", signals=(0,)), "which ld signals"),
        (Work("vpu", chunks=1), "no access to HBM"),
        (Work("xlu", waits=(0, 0)), "named twice"),
    ],
)
def test_misused_tokens_are_refused(work: Work, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        run([work], [TokenDecl("ld", "xlu")])


TOKENS = [
    *(TokenDecl("ld", "vpu"), TokenDecl("vpu", "ld"), TokenDecl("vpu", "st"), TokenDecl("st", "ld")),
    *(TokenDecl("w0", "s0"), TokenDecl("s0", "w0"), TokenDecl("s0", "vpu"), TokenDecl("ld", "seq")),
    *(TokenDecl("seq", "st"), TokenDecl("st", "seq"), TokenDecl("vpu", "xlu"), TokenDecl("ld", "w0")),
    *(TokenDecl("s0", "w0"), TokenDecl("s0", "seq")),
]
LATCHED = (12, 13)
"""Tokens that only those that retire alone signal."""


@st.composite
def streams(draw: st.DrawFn, wild: bool) -> Stream:
    """Random instructions; unless `wild`, every wait has its signal before it in program order."""
    counts = [0] * len(TOKENS)
    stream: Stream = []
    for _ in range(draw(st.integers(1, 24))):
        queue = draw(st.sampled_from(["scalar", "seq", *QUEUES, "ld", "st"]))
        if queue == "scalar":
            stream.append(draw(st.booleans()))
            continue
        alone = queue == "s0" and draw(st.booleans())
        waits, signals = [], []
        for n, t in enumerate(TOKENS):
            if (
                t.consumer == queue
                and (counts[n] > 0 or (wild and draw(st.integers(0, 15)) == 0))
                and draw(st.booleans())
            ):
                counts[n] -= 1
                waits.append(n)
        for n, t in enumerate(TOKENS):
            if t.producer == queue and (n in LATCHED) == alone and counts[n] < LIMITS.token_max and draw(st.booleans()):
                counts[n] += 1
                signals.append(n)
        occupancy = draw(st.integers(1, 12))
        chunks = draw(st.integers(0, 12)) if queue in ("ld", "st") else 0
        stream.append(
            Work(
                queue,
                fetch=draw(st.integers(1, 5)),
                occupancy=occupancy,
                latency=1 if queue == "seq" or alone else draw(st.integers(1, 30)),
                chunks=chunks,
                losses=(("self_conflict", draw(st.integers(0, chunks or occupancy))),),
                shifts=queue == "w0",
                waits=tuple(waits),
                signals=tuple(signals),
                fence=queue != "seq" and draw(st.integers(0, 3)) == 0,
                alone=alone,
            )
        )
    return stream


def limits_of(depth: int, most: int, p: int, q: int) -> Limits:
    return Limits(depth, most, 2, min(p, q * 8), q, 8)


LIMITS_ST = st.builds(limits_of, st.integers(1, 4), st.sampled_from([1, 2, 15]), st.integers(2, 60), st.integers(1, 7))


@given(st.one_of(streams(wild=False), streams(wild=True)), LIMITS_ST)
def test_times_equal_the_clocked_reference(stream: Stream, limits: Limits) -> None:
    times, outcome = reference.run(limits, TOKENS, stream, horizon=2500)
    expected = [(t.issue, t.start, t.end, t.retire) for t in times]
    try:
        engine = run(stream, TOKENS, limits)
    except DeadlockError:
        assert outcome == "stuck"
    except TokenOverflowError:
        assert outcome == "overflow"
    else:
        assert outcome == "done"
        assert rows(engine) == expected
        assert all(sum(causes.values()) == engine.cycles for causes in engine.units.values())


@given(streams(wild=False))
def test_program_order_tokens_never_deadlock(stream: Stream) -> None:
    run(stream, TOKENS, Limits(1, 1000, 2, 8, 3, 8))
