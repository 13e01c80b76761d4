"""Modules that XLA's CPU backend compiles are accepted, and those that it refuses are refused.

The slow test asks XLA about each line of the table.
"""

import pytest

from systolith.compiler.hlo import HloError, parse_hlo, verify
from tests.compiler.hlo.xla_shapes import compile_with_xla

HEAD = """HloModule m

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
addi { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }
pair { a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  e = f32[] add(a, c)
  f = s32[] add(b, d)
  ROOT t = (f32[], s32[]) tuple(e, f) }
lt { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
neg { a = f32[2,3] parameter(0)
  ROOT c = f32[2,3] negate(a) }
sum { a = f32[2,3] parameter(0)
  z = f32[] constant(0)
  ROOT c = f32[2] reduce(a, z), dimensions={1}, to_apply=add }
yes { a = f32[2,3] parameter(0)
  ROOT c = pred[] constant(true) }

ENTRY e {
  x = f32[2,3] parameter(0)
  y = f32[3,4] parameter(1)
  v = f32[4] parameter(2)
  i = s32[2,3] parameter(3)
  u = u32[4] parameter(4)
  z = f32[] parameter(5)
  n = s32[] parameter(6)
  p = pred[] parameter(7)
  m = pred[2,3] parameter(8)
  c = c64[4] parameter(9)
  t = (f32[2,3], s32[]) parameter(10)
  d = f64[4] parameter(11)
  h = bf16[4] parameter(12)
  q = s8[4] parameter(13)
  k = s64[] parameter(14)
  w = u64[2] parameter(15)
  o = f32[5,5] parameter(16)
  o1 = f32[1,6,4] parameter(17)
  o2 = f32[3,4,2] parameter(18)
  tok = token[] after-all()
  """

GOOD = """
r = f32[2,3] add(x, x)
r = f32[4] convert(u)
r = s8[4] convert(d)
r = c64[4] convert(d)
r = f32[4] convert(c)
r = s32[4] bitcast-convert(u)
r = u8[4,4] bitcast-convert(u)
r = s32[] bitcast-convert(q)
r = u4[4,2] bitcast-convert(q)
r = pred[4,32] bitcast-convert(u)
r = f64[2] bitcast-convert(w)
r = f32[2,3,4] broadcast(y), dimensions={1,2}
r = f32[5,7] broadcast(z), dimensions={}
r = f32[6] reshape(x)
r = f32[1,3,2,1] reshape(x)
r = f32[3,2] transpose(x), dimensions={1,0}
r = f32[1,2] slice(x), slice={[1:2], [0:3:2]}
r = f32[0,3] slice(x), slice={[1:1], [0:3]}
r = f32[1,3] dynamic-slice(x, n, n), dynamic_slice_sizes={1,3}
r = f32[1,3] dynamic-slice(x, k, k), dynamic_slice_sizes={1,3}
r = f32[2,3] dynamic-update-slice(x, x, n, n)
r = f32[4] reduce-precision(v), exponent_bits=5, mantissa_bits=10
r = s32[4,5] iota(), iota_dimension=1
r = f32[4,5] iota(), iota_dimension=0
r = c64[4] iota(), iota_dimension=0
r = f32[7,2] rng(z, z), distribution=rng_uniform
r = s32[7] rng(n, n), distribution=rng_uniform
r = f32[7] rng(z, z), distribution=rng_normal
r = (u64[2], u32[5,2]) rng-bit-generator(w), algorithm=rng_three_fry
r = (u64[2], f32[5]) rng-bit-generator(w), algorithm=rng_three_fry
r = f32[2,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
r = f64[2,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
r = f32[] dot(v, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}
r = f32[4,4] dot(v, v), lhs_contracting_dims={}, rhs_contracting_dims={}
r = f32[1,4,2] convolution(o1, o2), window={size=3}, dim_labels=b0f_0io->b0f
r = f32[1,6,2] convolution(o1, o2), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
r = f32[2] reduce(x, z), dimensions={1}, to_apply=add
r = f32[2,3] reduce(x, z), dimensions={}, to_apply=add
r = (f32[2], s32[2]) reduce(x, i, z, n), dimensions={1}, to_apply=pair
r = (f32[2,2], s32[2,2]) reduce-window(x, i, z, n), window={size=1x2}, to_apply=pair
r = f32[2,3] map(x, x), dimensions={0,1}, to_apply=add
r = f32[2,3] sort(x), dimensions={1}, to_apply=lt
r = f32[2,3] select(p, x, x)
r = f32[2,3] select(m, x, x)
r = f32[2,3] clamp(z, x, z)
r = f32[2,3] while(x), condition=yes, body=neg
r = f32[2,3] conditional(p, x, x), true_computation=neg, false_computation=neg
r = f32[2] conditional(n, x, x, x), branch_computations={sum, sum, sum}
r = f32[2] call(x), to_apply=sum
r = f32[2,3] all-reduce(x), replica_groups={}, to_apply=add
r = f32[2,3] all-reduce(x), replica_groups={{0}}, to_apply=add
r = f32[2,3] all-gather(x), replica_groups={{0}}, dimensions={0}
r = f32[2,3] reduce-scatter(x), replica_groups={{0}}, dimensions={0}, to_apply=add
r = f32[2,3] all-to-all(x), replica_groups={{0}}, dimensions={0}
r = f32[2,3] collective-permute(x), source_target_pairs={{0,0}}
r = u32[] replica-id()
r = u32[] partition-id()
r = f32[2,3] opt-barrier(x)
r = (f32[2,3], token[]) infeed(tok)
r = token[] outfeed(x, tok), outfeed_shape=f32[2,3]
r = f32[2,3] custom-call(x), custom_call_target="Sharding"
r = s32[] get-dimension-size(x), dimensions={1}
r = f32[2,3] get-tuple-element(t), index=0
r = f32[5,5] cholesky(o), lower=true
r = c64[4] fft(c), fft_type=FFT, fft_length={4}
r = f32[6] fft(c), fft_type=IRFFT, fft_length={6}
r = c64[3] fft(v), fft_type=RFFT, fft_length={4}
r = c64[4] complex(v, v)
r = f32[4] abs(c)
r = pred[4] compare(v, v), direction=LT, type=TOTALORDER
r = pred[4] compare(c, c), direction=EQ
r = f32[2,2] gather(v, i2), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, \
slice_sizes={1}
r = (f32[4], s32[4]) topk(v), k=4, largest=true
"""

BAD = """
r = f32[3,2] add(x, x)
r = s32[2,3] add(x, x)
r = bf16[2,3] add(x, x)
r = f32[4] add(v, h)
r = f32[2,3] add(x, z)
r = f32[2,3] add(x, i)
r = f32[2,3] and(x, x)
r = f32[2,3] not(x)
r = u32[4] abs(u)
r = s32[2,3] exponential(i)
r = u8[4] bitcast-convert(u)
r = u8[4,2] bitcast-convert(u)
r = f32[4] bitcast-convert(c)
r = f32[4,4] broadcast(v), dimensions={0,1}
r = f32[2,5] broadcast(v), dimensions={1}
r = f32[2,4] broadcast(v), dimensions={2}
r = s32[2,4] broadcast(v), dimensions={1}
r = f32[7] reshape(x)
r = s32[6] reshape(x)
r = f32[2,3] transpose(x), dimensions={1,0}
r = f32[2,2] transpose(x), dimensions={0,0}
r = f32[3,3] slice(x), slice={[0:3], [0:3]}
r = f32[1,3] slice(x), slice={[0:2], [0:3]}
r = f32[1,3] dynamic-slice(x, z, z), dynamic_slice_sizes={1,3}
r = f32[1,3] dynamic-slice(x, n, k), dynamic_slice_sizes={1,3}
r = f32[1,3] dynamic-slice(x, n), dynamic_slice_sizes={1,3}
r = f32[1,4] dynamic-slice(x, n, n), dynamic_slice_sizes={1,4}
r = f32[2,3] dynamic-update-slice(x, y, n, n)
r = f32[2,3] dynamic-update-slice(x, i, n, n)
r = f32[4] reduce-precision(v), exponent_bits=0, mantissa_bits=10
r = s32[4] iota(), iota_dimension=1
r = s32[] iota(), iota_dimension=0
r = pred[4] iota(), iota_dimension=0
r = f32[7,2] rng(z, n), distribution=rng_uniform
r = s32[7] rng(n, n), distribution=rng_normal
r = s32[7] rng(z, z), distribution=rng_uniform
r = (u64[3], u32[5]) rng-bit-generator(w), algorithm=rng_three_fry
r = f32[2,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
r = f32[2,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
r = f32[2,4] dot(x, y), lhs_contracting_dims={1,1}, rhs_contracting_dims={0,0}
r = f32[1,5,2] convolution(o1, o2), window={size=3}, dim_labels=b0f_0io->b0f
r = f32[1,4,2] convolution(o1, o2), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=2
r = f32[2] reduce(x, n), dimensions={1}, to_apply=add
r = f32[2] reduce(x, z), dimensions={2}, to_apply=add
r = f32[2] reduce(x, z), dimensions={1}, to_apply=addi
r = f32[2] reduce(x, z), dimensions={1}, to_apply=lt
r = f32[3] reduce(x, z), dimensions={1}, to_apply=add
r = (f32[2], s32[2]) reduce(x, x, z, n), dimensions={1}, to_apply=pair
r = f32[2,3] map(x, x), dimensions={0,1}, to_apply=neg
r = f32[2,3] sort(x), dimensions={2}, to_apply=lt
r = f32[2,3] sort(x), dimensions={1}, to_apply=add
r = f32[2,3] select(x, x, x)
r = f32[2,3] select(p, x, y)
r = f32[2,3] clamp(z, x, n)
r = f32[2,3] while(x), condition=yes, body=sum
r = f32[2,3] while(x), condition=neg, body=neg
r = f32[3,4] while(y), condition=yes, body=neg
r = f32[2,3] conditional(p, x, x), true_computation=neg, false_computation=sum
r = f32[2,3] conditional(z, x, x), branch_computations={neg, neg}
r = f32[2,3] conditional(n, x, y), branch_computations={neg, neg}
r = f32[2,3] call(x), to_apply=sum
r = f32[2] call(y), to_apply=sum
r = f32[3,3] all-reduce(x), replica_groups={}, to_apply=add
r = f32[2,3] all-reduce(x), replica_groups={{0,0}}, to_apply=add
r = f32[2,3] all-reduce(x), replica_groups={{1}}, to_apply=add
r = f32[2,4] all-gather(x), replica_groups={{0}}, dimensions={0}
r = f32[4,3] all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}
r = f32[2,3] all-gather(x), replica_groups={{0}}, dimensions={2}
r = f32[3,3] collective-permute(x), source_target_pairs={{0,0}}
r = f32[2,3] collective-permute(x), source_target_pairs={{0,0},{1,0}}
r = s32[] replica-id()
r = f32[3,2] opt-barrier(x)
r = f32[2,3] get-tuple-element(t), index=2
r = s32[] get-tuple-element(t), index=0
r = f32[2,3] cholesky(x), lower=true
r = f32[5] fft(c), fft_type=IRFFT, fft_length={5}
r = f32[4] fft(v), fft_type=FFT, fft_length={4}
r = f32[4] complex(v, v)
r = c64[4] abs(c)
r = pred[2,3] compare(x, i), direction=LT
r = f32[4] compare(v, v), direction=LT
r = (f32[5], s32[5]) topk(v), k=5, largest=true
r = f32[999999999,9999999999] broadcast(z), dimensions={}
r = f64[999999999,2999999999] broadcast(zd), dimensions={}
"""

# Refused by XLA's verifier, but mended on jaxlib's way through StableHLO.
MENDED = """
r = f32[1,4,2] convolution(o1, o2), window={size=2}, dim_labels=b0f_0io->b0f
r = pred[4] compare(u, u), direction=LT, type=SIGNED
"""

EXTRA = "i2 = s32[2,2] iota(), iota_dimension=0\n  zd = f64[] constant(0)\n  "


def module(line: str) -> str:
    return f"{HEAD}{EXTRA}ROOT {line}\n}}\n"


def lines(table: str) -> list[str]:
    return table.replace("\\\n", "").strip().split("\n")


@pytest.mark.parametrize("line", lines(GOOD))
def test_accepted(line: str) -> None:
    verify(parse_hlo(module(line)), mixed_precision=False)


@pytest.mark.parametrize("line", lines(BAD + MENDED.lstrip()))
def test_refused(line: str) -> None:
    with pytest.raises(HloError) as caught:
        verify(parse_hlo(module(line)), mixed_precision=False)
    assert "\n" not in str(caught.value)
    assert caught.value.line


@pytest.mark.slow
@pytest.mark.parametrize("line", lines(GOOD))
def test_xla_accepts_the_good(line: str) -> None:
    answer = compile_with_xla(module(line))
    assert answer.text is not None, answer.error


@pytest.mark.slow
@pytest.mark.parametrize("line", lines(BAD))
def test_xla_refuses_the_bad(line: str) -> None:
    assert compile_with_xla(module(line)).text is None
