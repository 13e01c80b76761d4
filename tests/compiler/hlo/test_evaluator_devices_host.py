"""Several devices: infeed and outfeed, send and recv, asynchronous forms, counters of random states."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, Host, evaluate, evaluate_devices, parse_hlo, verify
from systolith.compiler.hlo.ir import Literal
from systolith.compiler.hlo.values.evaluator import DeviceResult
from tests.compiler.hlo.device_oracle import Array
from tests.compiler.hlo.oracle import run_xla
from tests.corpus.load import load


def run(text: str, arguments: list[list[Array]], replicas: int = 1, hosts: Sequence[Host] = ()) -> list[DeviceResult]:
    module = parse_hlo(text, "m.hlo")
    verify(module)
    return evaluate_devices(module, arguments, replicas=replicas, hosts=hosts)


def vector(*values: float) -> Array:
    return np.array(values, np.float32)


def test_corpus_infeed_in_a_loop() -> None:
    """Eight steps of gradient descent on pairs from the infeed; each step puts its error out."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((16, 4)).astype(np.float32)
    pairs: list[Literal] = [
        (rng.standard_normal((8, 16)).astype(np.float32), rng.standard_normal((8, 4)).astype(np.float32))
        for _ in range(10)
    ]
    module = parse_hlo(load("infeed_outfeed_from_stablehlo").text)
    verify(module)
    (result,) = evaluate_devices(module, [[weights]], hosts=[Host(pairs)], precision="highest")
    expected, errors = weights.astype(np.float64), []
    for x, y in pairs[:8]:
        errors.append(x @ expected - y)
        expected -= np.float32(0.01) * (np.asarray(x).T @ errors[-1])
    np.testing.assert_allclose(result.values[0], expected, rtol=1e-5, atol=1e-5)
    assert len(result.outfeed) == 8
    for (ours,), theirs in zip(result.outfeed, errors, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert len(result.infeed_left) == 2
    assert result.infeed_left[0] is pairs[8]


FEED = """HloModule m
ENTRY e {
  t = token[] after-all()
  i = (f32[2], token[]) infeed(t), infeed_config="text"
  x = f32[2] get-tuple-element(i), index=0
  t1 = token[] get-tuple-element(i), index=1
  n = ((), token[]) infeed(t1), infeed_config="text"
  t2 = token[] get-tuple-element(n), index=1
  e = () get-tuple-element(n), index=0
  j = ((s32[], (f32[2])), token[]) infeed(t2), infeed_config="text"
  p = (s32[], (f32[2])) get-tuple-element(j), index=0
  t3 = token[] get-tuple-element(j), index=1
  o = token[] outfeed(p, t3), outfeed_shape=(s32[], (f32[2])), outfeed_config="text"
  q = token[] outfeed(x, o), outfeed_shape=f32[2], outfeed_config="text"
  u = token[] outfeed(e, q), outfeed_shape=(), outfeed_config="text"
  ROOT r = f32[2] negate(x)
}"""


def test_feeds_of_arrays_tuples_and_the_empty_tuple_keep_their_order() -> None:
    pair = (np.array(7, np.int32), (vector(3, 4),))
    hosts = [Host([vector(1, 2), pair]), Host([vector(5, 6), pair, vector(9, 9)])]
    one, two = run(FEED, [[], []], 2, hosts)
    np.testing.assert_array_equal(one.values[0], [-1, -2])
    np.testing.assert_array_equal(two.values[0], [-5, -6])
    assert one.outfeed[0] == pair
    np.testing.assert_array_equal(np.asarray(one.outfeed[1]), [1, 2])
    assert one.outfeed[2] == ()
    assert (one.infeed_left, len(two.infeed_left)) == ([], 1)


def test_configs_are_queues_where_there_are_several() -> None:
    text = FEED.replace('infeed(t), infeed_config="text"', "infeed(t)").replace(
        'outfeed_shape=(), outfeed_config="text"', 'outfeed_shape=(), outfeed_config="other"'
    )
    pair = (np.array(7, np.int32), (vector(3, 4),))
    (result,) = run(text, [[]], hosts=[Host({"text": [pair, pair], "": [vector(1, 2)]})])
    np.testing.assert_array_equal(result.values[0], [-1, -2])
    assert result.infeeds_left == {"text": [pair], "": []}
    assert (result.outfeeds["text"][0], result.outfeeds["other"]) == (pair, [()])
    with pytest.raises(HloError, match=r"infeed 'j' .*: device 0 has no infeed 'text' left, after 0; give as many"):
        run(text, [[]], hosts=[Host([vector(1, 2), pair])])


@pytest.mark.parametrize(
    ("infeed", "message"),
    [
        ([vector(1, 2)], r"infeed 'j' .*: device 0 has no infeed left, after 1; give as many values as it takes"),
        ([vector(1, 2, 3)], r"infeed 'i' .*: infeed of device 0: expected f32\[2\], got an array of sizes \[3\]"),
        ([(vector(1, 2),)], r"infeed 'i' .*: infeed of device 0: expected f32\[2\], got a tuple of 1"),
        ([vector(1, 2), vector(1, 2)], r"infeed 'j' .*: expected \(s32\[\], \(f32\[2\]\)\), got an array"),
        ([vector(1, 2), (vector(1, 2),)], r"infeed 'j' .*: expected \(s32\[\], \(f32\[2\]\)\), got a tuple of 1"),
    ],
)
def test_infeed_that_does_not_fit(infeed: list[Literal], message: str) -> None:
    with pytest.raises(HloError, match=message):
        run(FEED, [[]], hosts=[Host(infeed)])


def transfer(send: str, recv: str, more: str = "") -> str:
    return f"""HloModule m
ENTRY e {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1{send}
  {more}
  sd = token[] send-done(s), channel_id=1{send}
  r = (f32[2], u32[], token[]) recv(sd), channel_id=1{recv}
  rd = (f32[2], token[]) recv-done(r), channel_id=1{recv}
  ROOT y = f32[2] get-tuple-element(rd), index=0
}}"""


def pairs(text: str) -> str:
    return f', frontend_attributes={{_xla_send_recv_source_target_pairs="{text}",_xla_send_recv_pipeline="0"}}'


def test_send_and_recv_between_devices() -> None:
    arguments = [[vector(n, -n)] for n in range(4)]
    ring = transfer(pairs("{{0,1},{1,2},{2,3},{3,0}}"), pairs("{{0,1},{1,2},{2,3},{3,0}}"))
    for text, expected in (
        (ring.replace("channel_id=1", "channel_id=0"), [3, 0, 1, 2]),
        (transfer(pairs("{{0,2}}"), pairs("{{0,2}}")).replace("channel_id=1", "channel_id=0"), [0, 0, 0, 0]),
        (transfer(pairs("{{1,2}}"), pairs("{{1,2}}")).replace("channel_id=1", "channel_id=0"), [0, 0, 1, 0]),
        (transfer("", ""), [0, 1, 2, 3]),
    ):
        assert [float(d.values[0][0]) for d in run(text, arguments, 4)] == expected
    swap = pairs("{{0,1},{1,0}}")
    module = parse_hlo(transfer(swap, swap.replace('"{{', "{{").replace('}}"', "}}")))  # with quotes or without
    results = evaluate_devices(module, arguments, replicas=2, partitions=2)
    assert [float(d.values[0][0]) for d in results] == [1, 0, 3, 2]


def test_values_of_a_channel_keep_their_order() -> None:
    to = ', channel_id=0, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    text = f"""HloModule m
ENTRY e {{
  x = f32[2] parameter(0)
  y = f32[2] negate(x)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t){to}
  sd = token[] send-done(s){to}
  s2 = (f32[2], u32[], token[]) send(y, sd){to}
  sd2 = token[] send-done(s2){to}
  r = (f32[2], u32[], token[]) recv(sd2){to}
  rd = (f32[2], token[]) recv-done(r){to}
  a = f32[2] get-tuple-element(rd), index=0
  t2 = token[] get-tuple-element(rd), index=1
  r2 = (f32[2], u32[], token[]) recv(t2){to}
  rd2 = (f32[2], token[]) recv-done(r2){to}
  b = f32[2] get-tuple-element(rd2), index=0
  ROOT z = (f32[2], f32[2]) tuple(a, b)
}}"""
    results = run(text, [[vector(1, 2)], [vector(3, 4)]], 2)
    assert [[v.tolist() for v in r.values] for r in results] == [[[3, 4], [-3, -4]], [[1, 2], [-1, -2]]]


def test_what_is_sent_or_awaited_in_vain_is_an_error() -> None:
    arguments = [[vector(1, 2)], [vector(3, 4)]]
    text = transfer(pairs("{{0,1}}"), pairs("{{1,0}}")).replace("channel_id=1", "channel_id=0")
    message = r"recv-done 'rd' .*: deadlock: device 0 waits at recv-done 'rd' for device 1; device 1 has ended"
    with pytest.raises(HloError, match=message):
        run(text, arguments, 2)
    text = transfer(pairs("{{0,1}}"), "").replace("channel_id=1", "channel_id=0")
    with pytest.raises(HloError, match="deadlock: device 0 waits at recv-done 'rd' for device 0; device 1 waits"):
        run(text, arguments, 2)
    only = text[: text.index("  r = ")] + "  ROOT y = f32[2] negate(x)\n}"
    with pytest.raises(HloError, match="deadlock: device 0 waits at recv-done 'rd' for device 0"):
        evaluate(
            parse_hlo(text[: text.index("  s = ")] + text[text.index("  r = ") :].replace("sd", "t")), arguments[0][0]
        )
    with pytest.raises(HloError, match="'m': device 1 never receives what device 0 sends on channel 0"):
        run(only, arguments, 2)


HOST = ", is_host_transfer=true"


def test_send_and_recv_with_the_host() -> None:
    text = transfer(HOST, HOST)
    hosts = [Host(channels={1: [vector(n, n)]}) for n in range(2)]
    results = run(text, [[vector(5, 6)], [vector(7, 8)]], 2, hosts)
    assert [float(d.values[0][0]) for d in results] == [0, 1]
    np.testing.assert_array_equal(np.asarray(results[1].sent[1]), [[7, 8]])
    with pytest.raises(HloError, match=r"recv-done 'rd' .*: device 0 gets nothing more from the host on channel 1"):
        run(text, [[vector(5, 6)]])
    with pytest.raises(HloError, match=r"channel 1: expected f32\[2\], got an array of sizes \[1\]"):
        run(text, [[vector(5, 6)]], hosts=[Host(channels={1: [vector(5)]})])


def test_the_host_may_answer_what_it_was_sent() -> None:
    asked: list[Array] = []

    def answers() -> Iterator[Array]:
        while True:
            yield asked.pop() * 2

    host = Host(channels={1: answers()}, on_send=lambda channel, x: asked.append(np.asarray(x)))
    (result,) = run(transfer(HOST, HOST), [[vector(5, 6)]], hosts=[host])
    np.testing.assert_array_equal(result.values[0], [10, 12])


ASYNC = """HloModule m
double { a = f32[4] parameter(0) ROOT b = f32[4] add(a, a) }
wrapped { a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT t = (f32[4], f32[4]) tuple(b, a) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  s = ((f32[4]), f32[2], s32[]) slice-start(x), slice={[1:3]}
  su = ((f32[4]), f32[2], s32[]) slice-update(s)
  sd = f32[2] slice-done(su)
  c = ((f32[4]), f32[4], u32[]) call-start(x), to_apply=double
  cd = f32[4] call-done(c)
  g = ((f32[4], f32[4]), (f32[4], f32[4]), u32[], u32[]) async-start(x, y), calls=wrapped
  gu = ((f32[4], f32[4]), (f32[4], f32[4]), u32[], u32[]) async-update(g)
  gd = (f32[4], f32[4]) async-done(gu)
  p = (f32[4], f32[4], u32[]) copy-start(y)
  pd = f32[4] copy-done(p)
  ROOT t = (f32[2], f32[4], (f32[4], f32[4]), f32[4]) tuple(sd, cd, gd, pd)
}"""


def shape_of(value: Literal) -> str:
    """A value's shape as HLO text."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shape_of, value)) + ")"
    return f"{value.dtype.kind}{value.dtype.itemsize * 8}[{','.join(map(str, value.shape))}]".replace("i", "s")


def test_asynchronous_forms_of_any_operation() -> None:
    x, y = vector(1, 2, 3, 4), vector(5, 6, 7, 8)
    module = parse_hlo(ASYNC)
    verify(module)
    shapes: dict[str, str] = {}
    results = evaluate(module, x, y, observe=lambda i, value: shapes.update({i.name: shape_of(value)}))
    for ours, theirs in zip(results, (x[1:3], 2 * x, y, x, y), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert shapes == {i.name: str(i.shape) for i in module.entry.instructions}


COLLECTIVES = """HloModule m, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[2] parameter(0)
  r = f32[2] all-reduce-start(x), replica_groups={}, to_apply=add
  rd = f32[2] all-reduce-done(r)
  r2 = (f32[2], f32[2]) all-reduce-start(x, rd), replica_groups={}, to_apply=add
  r2d = (f32[2], f32[2]) all-reduce-done(r2)
  g = (f32[2], f32[4]) all-gather-start(x), replica_groups={}, dimensions={0}
  gd = f32[4] all-gather-done(g)
  g2 = ((f32[2], f32[2]), (f32[4], f32[4])) all-gather-start(x, rd), replica_groups={}, dimensions={0}
  g2d = (f32[4], f32[4]) all-gather-done(g2)
  p = (f32[2], f32[2], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}
  pd = f32[2] collective-permute-done(p)
  p2 = ((f32[2], f32[2]), (f32[2], f32[2])) collective-permute-start(x, rd), source_target_pairs={{0,1},{1,0}}
  p2d = (f32[2], f32[2]) collective-permute-done(p2)
  s = ((f32[2]), f32[1]) reduce-scatter-start(x), replica_groups={}, dimensions={0}, to_apply=add
  sd = f32[1] reduce-scatter-done(s)
  a = ((f32[2]), f32[2]) all-to-all-start(x), replica_groups={{0,1}}, dimensions={0}
  ad = f32[2] all-to-all-done(a)
  b = ((f32[2]), f32[2]) collective-broadcast-start(x), replica_groups={{1,0}}
  bd = f32[2] collective-broadcast-done(b)
  ROOT t = (f32[2], (f32[2], f32[2]), f32[4], (f32[4], f32[4]), f32[2], (f32[2], f32[2]), f32[1], f32[2], f32[2])
    tuple(rd, r2d, gd, g2d, pd, p2d, sd, ad, bd)
}"""


def test_asynchronous_forms_of_collectives() -> None:
    results = run(COLLECTIVES, [[vector(1, 2)], [vector(10, 20)]], 2)
    both = [[11, 22], [11, 22], [22, 44], [1, 2, 10, 20], [1, 2, 10, 20], [11, 22, 11, 22]]
    expected = [
        [*both, [0, 0], [10, 20], [11, 22], [11], [1, 10], [10, 20]],
        [*both, [1, 2], [1, 2], [11, 22], [22], [2, 20], [10, 20]],
    ]
    assert [[v.tolist() for v in r.values] for r in results] == expected


def test_a_random_state_counts_for_each_instruction_and_device() -> None:
    text = """HloModule m
body {
  s = (s32[], u64[2]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  state = u64[2] rng-get-and-update-state(), delta=9223372036854775807
  ROOT t = (s32[], u64[2]) tuple(next, state)
}
condition {
  s = (s32[], u64[2]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(n, limit), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  state = u64[2] rng-get-and-update-state(), delta=7
  s = (s32[], u64[2]) tuple(zero, state)
  ROOT w = (s32[], u64[2]) while(s), condition=condition, body=body
}"""
    for ours, theirs in zip(run(text, [[]])[0].values, run_xla(text), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for device in run(text, [[], []], 2):
        low, high = (int(n) for n in device.values[1])
        assert low + (high << 64) == 0x7012395 + 4 * (2**63 - 1)
