"""Rules of operations in two steps, of collectives and of modules: accepted cases, and the messages about others."""

import pytest

from systolith.compiler.hlo import HloError, parse_hlo, verify
from tests.compiler.hlo.xla_shapes import parse_with_xla

HEAD = """HloModule m{more}

add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
neg {{ a = f32[4] parameter(0)
  ROOT c = f32[4] negate(a) }}
lt {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }}

ENTRY e {{
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  t = token[] after-all()
  z = s32[] constant(0)
  k = s64[2] iota(), iota_dimension=0
  o = (s32[]) tuple(z)
  oo = ((s32[]), (s32[])) tuple(o, o)
  """

G2 = "replica_groups={{0,1}}"
P2 = "source_target_pairs={{0,1},{1,0}}"

GOOD = f"""
s = ((f32[4]), f32[4], u32[]) async-start(x), calls=neg; ROOT d = f32[4] async-done(s)
s = ((f32[4]), f32[4], u32[]) async-start(x), calls=neg; u = ((f32[4]), f32[4], u32[]) async-update(s); \
ROOT d = f32[4] async-done(u)
s = ((f32[4]), f32[4]) negate-start(x); ROOT d = f32[4] negate-done(s)
s = ((f32[4]), f32[2], u32[]) slice-start(x), slice={{[0:2]}}; u = ((f32[4]), f32[2], u32[]) slice-update(s); \
ROOT d = f32[2] slice-done(u)
s = ((f32[4]), f32[2]) reduce-scatter-start(x), {G2}, dimensions={{0}}, to_apply=add; ROOT d = f32[2] \
reduce-scatter-done(s)
s = (f32[4], f32[8]) all-gather-start(x), {G2}, dimensions={{0}}; ROOT d = f32[8] all-gather-done(s)
s = ((f32[4], f32[4]), (f32[8], f32[8])) all-gather-start(x, y), {G2}, dimensions={{0}}; \
ROOT d = (f32[8], f32[8]) all-gather-done(s)
s = f32[4] all-reduce-start(x), {G2}, to_apply=add; ROOT d = f32[4] all-reduce-done(s)
s = (f32[4], f32[4]) all-reduce-start(x, y), replica_groups={{{{0,1}},{{2}}}}, to_apply=add; \
ROOT d = (f32[4], f32[4]) all-reduce-done(s)
s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), {P2}; ROOT d = f32[4] collective-permute-done(s)
s = ((f32[4], f32[4]), (f32[4], f32[4])) collective-permute-start(x, y), {P2}; ROOT d = (f32[4], f32[4]) \
collective-permute-done(s)
ROOT d = f32[4] collective-permute(x, y, o, o), {P2}, slice_sizes={{{{2}}}}
ROOT d = f32[4] collective-permute(x, y, oo, oo), source_target_pairs={{{{0,1}},{{0,1}}}}, slice_sizes={{{{2}},{{2}}}}
s = (f32[4], f32[4], u32[]) copy-start(x); ROOT d = f32[4] copy-done(s)
s = (f32[4], u32[], token[]) send(x, t), channel_id=1; ROOT d = token[] send-done(s), channel_id=1
s = (f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true; \
ROOT d = (f32[4], token[]) recv-done(s), channel_id=1, is_host_transfer=true
ROOT d = ((f32[4], pred[]), token[]) infeed(t), infeed_config="a"
ROOT d = token[] outfeed(x, t), outfeed_shape=f32[4]
ROOT d = (f32[4], f32[4]) all-to-all(x, y), {G2}
ROOT d = f32[4] all-to-all(x), {G2}, dimensions={{0}}
ROOT d = f32[4] collective-broadcast(x), {G2}
ROOT d = (f32[4], f32[4]) all-reduce(x, y), replica_groups=[1,2]<=[2], to_apply=add
ROOT d = f32[4] ragged-all-to-all(x, y, k, k, k, k), {G2}
ROOT d = f32[8] all-gather(x), channel_id=1, replica_groups=[1,2]<=[2], dimensions={{0}}, use_global_device_ids=true
ROOT d = f32[4] add-dependency(x, t)
ROOT d = f32[4] domain(x), domain={{kind="sharding", entry={{maximal device=0}}, exit={{maximal device=1}}}}
ROOT d = u64[2] rng-get-and-update-state(), delta=4
ROOT d = f32[<=4] set-dimension-size(x, z), dimensions={{0}}
ROOT d = f32[<=2,<=2] dynamic-reshape(x, z, z)
ROOT d = (f32[4], f32[4]) sort(x, y), dimensions={{0}}, to_apply=lt
ROOT d = s32[] mulhi(z, z)
ROOT d = f32[4] fusion(x), kind=kLoop, calls=neg
"""

BAD: list[tuple[str, str]] = [
    ("s = ((f32[4]), f32[3], u32[]) async-start(x), calls=neg; ROOT d = f32[3] async-done(s)",
     "computation 'neg' takes (f32[4]) and gives f32[4], got ((f32[4]), f32[3], u32[])"),
    ("s = ((f32[4]), f32[4], u32[]) async-start(x), calls=neg; ROOT d = f32[3] async-done(s)",
     "is declared f32[3], its operands give f32[4]"),
    ("ROOT s = ((f32[4]), f32[4], u32[]) async-start(x), calls=neg",
     "its result is taken once, by async-update or async-done, got 0 users"),
    ("s = ((f32[4]), f32[4]) negate-start(x); d = f32[4] negate-done(s); ROOT e = f32[4] negate-done(s)",
     "its result is taken once, by async-update or async-done, got 2 users"),
    (f"s = (f32[4], f32[6]) all-gather-start(x), {G2}, dimensions={{0}}; ROOT d = f32[6] all-gather-done(s)",
     "is declared (f32[4], f32[6]), its operands give (f32[4], f32[8])"),
    (f"s = (f32[4], f32[12]) all-gather-start(x), {G2}, dimensions={{0}}; ROOT d = f32[12] all-gather-done(s)",
     "a group has 3 devices as the shapes say, got 2"),
    (f"ROOT d = f32[3] reduce-scatter(x), {G2}, dimensions={{0}}, to_apply=add",
     "is declared f32[3], its operands give f32[2]"),
    (f"ROOT d = f32[1] reduce-scatter(x), {G2}, dimensions={{0}}, to_apply=add",
     "a group has 4 devices as the shapes say, got 2"),
    (f"ROOT d = f32[4] all-reduce(x, y), {G2}, to_apply=add",
     "is declared f32[4], its operands give (f32[4], f32[4])"),
    ("ROOT d = f32[4] all-reduce(x), replica_groups={{0,2}}, to_apply=add",
     "replica_groups name devices 0 to 1, 1 is missing"),
    ("ROOT d = f32[4] all-reduce(x), replica_groups={{0,1},{1}}, to_apply=add",
     "replica_groups name each device once, 1 is there twice"),
    ("ROOT d = f32[4] all-reduce(x), replica_groups={{0,1},{}}, to_apply=add",
     "no group of replica_groups is empty"),
    ("ROOT d = f32[8] all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}",
     "groups of replica_groups have equal sizes"),
    ("ROOT d = f32[4] all-reduce(x), channel_id=0, to_apply=add", "channel_id is at least 1, got 0"),
    ("ROOT d = f32[4] all-reduce(x), channel_id=1, use_global_device_ids=true, to_apply=add",
     "use_global_device_ids needs replica_groups"),
    (f"ROOT d = f32[4] all-reduce(x), {G2}, to_apply=neg", "computation 'neg' takes two scalars, got (f32[4])"),
    ("ROOT d = f32[4] all-to-all(x), replica_groups={{0,1,2}}, dimensions={0}",
     "the dimension is split among 3 devices, got f32[4]"),
    ("ROOT d = (f32[4], f32[4]) all-to-all(x, y), replica_groups={{0,1,2}}",
     "takes an operand for each of 3 devices, got 2"),
    ("ROOT d = f32[4] collective-permute(x), source_target_pairs={{0,1},{2,1}}",
     "a device is a target at most 1 time(s), 1 is 2 times"),
    ("ROOT d = f32[4] collective-permute(x), source_target_pairs={{0,1},{0,2}}",
     "a device is a source at most 1 time(s), 0 is 2 times"),
    ("s = (f32[4], f32[4], u32[]) copy-start(x); d = f32[4] copy-done(s); ROOT e = f32[4] copy-done(s)",
     "its result is taken once, by copy-done, got 2 users"),
    ("s = (f32[4], f32[4]) copy-start(x); ROOT d = f32[4] copy-done(s)", "its operands give (f32[4], f32[4], u32[])"),
    ("s = (f32[4], u32[], token[]) send(x, t), channel_id=1; ROOT d = token[] send-done(s), channel_id=2",
     "channel_id is that of 's', 1, got 2"),
    ("s = (f32[4], u32[], token[]) send(x, y), channel_id=1; ROOT d = token[] send-done(s), channel_id=1",
     "the second operand is a token, got f32[4]"),
    ("s = (f32[4], u32[], token[]) recv(x), channel_id=1; ROOT d = (f32[4], token[]) recv-done(s), channel_id=1",
     "the operand is a token, got f32[4]"),
    ("s = (f32[4], u32[], token[]) recv(t), channel_id=1; ROOT d = f32[4] recv-done(s), channel_id=1",
     "its operands give (f32[4], token[])"),
    ("s = (f32[4], u32[], token[]) tuple(x, z, t); ROOT d = token[] send-done(s), channel_id=1",
     "is declared (f32[4], u32[], token[]), its operands give (f32[4], s32[], token[])"),
    ("ROOT d = (f32[4], token[]) infeed(x)", "the operand is a token, got f32[4]"),
    ("ROOT d = token[] outfeed(x, t), outfeed_shape=f32[5]", "outfeed_shape is f32[4], got f32[5]"),
    ("ROOT d = f32[4] add-dependency(x, y)", "the second operand is a token, got f32[4]"),
    (f"ROOT d = f32[4] ragged-all-to-all(x, y, k, k, k, z), {G2}",
     "offsets and sizes have one shape of 1 or 2 dimensions"),
    ("ROOT d = u64[3] rng-get-and-update-state(), delta=4", "is declared u64[3], its operands give u64[2]"),
    ("ROOT d = f32[<=4] set-dimension-size(x, x), dimensions={0}", "the size is a scalar, got f32[4]"),
    ("ROOT d = s32[] get-dimension-size(x), dimensions={1}", "dimensions {1} are unique numbers from 0 to 0"),
    ("ROOT d = f32[<=2,<=3] dynamic-reshape(x, z, z)", "f32[4] has 4 elements, f32[<=2,<=3] has 6"),
    ("ROOT d = f32[<=2,<=2] dynamic-reshape(x, z)", "there is a size for each of the 2 dimensions, got 1"),
    ("ROOT d = f32[5] fusion(x), kind=kLoop, calls=neg", "is declared f32[5], its operands give f32[4]"),
    ("ROOT d = f32[4] fusion(k), kind=kLoop, calls=neg", "computation 'neg' takes (f32[4]), is given (s64[2])"),
]  # fmt: skip


def module(body: str, more: str = "") -> str:
    return HEAD.format(more=more) + body.replace("; ", "\n  ") + "\n}\n"


def lines(table: str) -> list[str]:
    return table.replace("\\\n", "").strip().split("\n")


@pytest.mark.parametrize("body", lines(GOOD))
def test_accepted(body: str) -> None:
    verify(parse_hlo(module(body)), mixed_precision=False)


@pytest.mark.slow
@pytest.mark.parametrize("body", lines(GOOD))
def test_xla_reads_the_good(body: str) -> None:
    answer = parse_with_xla(module(body))
    assert answer.text is not None, answer.error
    verify(parse_hlo(answer.text))


@pytest.mark.parametrize(("body", "message"), BAD)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(HloError) as caught:
        verify(parse_hlo(module(body)), mixed_precision=False)
    assert message in str(caught.value)
    assert caught.value.line


@pytest.mark.parametrize(
    ("more", "body", "message"),
    [
        (", replica_count=4", "ROOT d = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add",
         "replica_groups name the module's 4 devices, got 2"),
        (", num_partitions=4", "ROOT d = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add", ""),
        (", replica_count=2, num_partitions=2", "ROOT d = f32[4] all-reduce(x), channel_id=1, "
         "use_global_device_ids=true, replica_groups={{0,1,2}}, to_apply=add",
         "replica_groups name the module's 4 devices, got 3"),
        (", input_output_alias={ {}: (2, {}, may-alias) }", "ROOT d = f32[4] negate(x)",
         "the entry has 2 parameters, numbered from 0"),
        (", input_output_alias={ {1}: (0, {}, may-alias) }", "ROOT d = f32[4] negate(x)", "f32[4] has no part {1}"),
        (", input_output_alias={ {}: (0, {0}, may-alias) }", "ROOT d = f32[4] negate(x)", "f32[4] has no part {0}"),
        (", input_output_alias={ {0}: (0, {}), {1}: (0, {}) }", "ROOT d = (f32[4], f32[4]) tuple(x, y)",
         "a part of the result and a part of a parameter are aliased once"),
        (", input_output_alias={ {0}: (0, {}), {1}: (1, {}) }", "ROOT d = (f32[4], f32[4]) tuple(x, y)", ""),
        (", input_output_alias={ {}: (0, {}, must-alias) }", "ROOT d = f32[2] slice(x), slice={[0:2]}",
         "both have one shape, got f32[4] for f32[2]"),
        (", buffer_donor={ (1, {}) }", "ROOT d = f32[4] negate(x)", ""),
        (", buffer_donor={ (2, {}) }", "ROOT d = f32[4] negate(x)", "the entry has 2 parameters, numbered from 0"),
        (", buffer_donor={ (0, {0}) }", "ROOT d = f32[4] negate(x)", "f32[4] has no part {0}"),
        ("", 'ROOT d = f32[4] custom-call(x), custom_call_target="f", output_to_operand_aliasing={{}: (0, {})}', ""),
        ("", 'ROOT d = f32[4] custom-call(x), custom_call_target="f", output_to_operand_aliasing={{}: (1, {})}',
         "output_to_operand_aliasing {}: (1, {}) names one of 1 operands"),
        ("", 'ROOT d = f32[4] custom-call(k), custom_call_target="f", output_to_operand_aliasing={{}: (0, {})}',
         "output_to_operand_aliasing {}: (0, {}) has one shape, got s64[2] for f32[4]"),
        ("", 'ROOT d = f32[4] custom-call(), custom_call_target="GetRngSeed"',
         "GetRngSeed takes nothing and gives u64[], got f32[4]"),
        ("", "ROOT d = f32[4] call(x), to_apply=neg, is_composite=true",
         "a composite has the frontend attribute composite.name"),
        ("", 'ROOT d = f32[4] call(x), to_apply=neg, is_composite=true, frontend_attributes={composite.name="a.b",'
         'composite.version="-1"}', "composite.version is a number of at least 0, got '-1'"),
        (", entry_computation_layout={(f32[4], f32[5])->f32[4]}", "ROOT d = f32[4] negate(x)",
         "entry_computation_layout states f32[5] for parameter 1, which has f32[4]"),
        (", entry_computation_layout={(f32[4], f32[4])->f32[5]}", "ROOT d = f32[4] negate(x)",
         "entry_computation_layout states result f32[5], the root has f32[4]"),
        (", entry_computation_layout={(f32[4])->f32[4]}", "ROOT d = f32[4] negate(x)",
         "entry_computation_layout states 1 parameters, 'e' has 2"),
    ],
)  # fmt: skip
def test_modules(more: str, body: str, message: str) -> None:
    text = module(body, more)
    if not message:
        verify(parse_hlo(text), mixed_precision=False)
        return
    with pytest.raises(HloError) as caught:
        verify(parse_hlo(text), mixed_precision=False)
    assert message in str(caught.value)
