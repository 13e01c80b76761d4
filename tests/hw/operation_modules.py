"""Small modules that have, together, every operation that the compiler has a lowering for.

A line is an instruction; those without a name are the results, in their order.  `<abs sign>(x)` stands for a line for
each of these opcodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

COMPUTATIONS = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
largest { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
above { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=GE }
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=LT }
other { a = f32[] parameter(0)
 b = f32[] parameter(1)
 h = f32[] constant(0.5)
 c = f32[] multiply(a, h)
 ROOT r = f32[] add(c, b) }
some { a = f32[6,8] parameter(0)
 ROOT r = f32[6,8] negate(a) }
others { a = f32[6,8] parameter(0)
 ROOT r = f32[6,8] add(a, a) }
test { s = (s32[], f32[6,8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT r = pred[] compare(i, n), direction=LT }
once { s = (s32[], f32[6,8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[6,8] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[6,8] add(x, x)
 ROOT t = (s32[], f32[6,8]) tuple(j, y) }
step { x = f32[8] parameter(0)
 c = f32[8] parameter(1)
 s = f32[8] add(c, x)
 ROOT t = (f32[8], f32[8]) tuple(s, s) }
"""
AB = """a = f32[6,8] parameter(0)
b = f32[6,8] parameter(1)
"""
LINES = {
    "functions of floats": AB
    + """f32[6,8] <abs negate sign floor ceil round-nearest-even round-nearest-afz copy real imag>(a)
f32[6,8] <exponential exponential-minus-one logistic tanh sine cosine tan cbrt erf sinh cosh asinh atan>(a)
pred[6,8] is-finite(a)
u = f32[6,8] tanh(a)
f32[6,8] <asin acos atanh>(u)
e = f32[6,8] exponential(a)
w = f32[6,8] add(e, e)
f32[6,8] <log log-plus-one sqrt rsqrt>(e)
v = f32[6,8] exponential(e)
f32[6,8] acosh(v)
f32[6,8] <add subtract multiply divide maximum minimum remainder atan2 power>(e, b)""",
    "integers": """x = s32[6,8] parameter(0)
y = s32[6,8] parameter(1)
s32[6,8] <add subtract multiply divide remainder maximum minimum power mulhi and or xor>(x, y)
s32[6,8] <shift-left shift-right-arithmetic shift-right-logical>(x, y)
s32[6,8] <not popcnt count-leading-zeros sign abs>(x)""",
    "comparisons": AB
    + """p = pred[6,8] compare(a, b), direction=LT
pred[6,8] compare(a, b), direction=GE, type=TOTALORDER
f32[6,8] select(p, a, b)
z = f32[] constant(0)
o = f32[] constant(1)
f32[6,8] clamp(z, a, o)
pred[6,8] not(p)
pred[6,8] xor(p, p)""",
    "conversions": """a = f32[6,8] parameter(0)
h = bf16[6,8] parameter(1)
n = s8[6,8] parameter(2)
q = f8e4m3[6,8] parameter(3)
bf16[6,8] convert(a)
s8[6,8] convert(a)
f32[6,8] convert(n)
f16[6,8] convert(h)
f8e4m3[6,8] convert(a)
f32[6,8] convert(q)
s4[6,8] convert(n)
f8e5m2[6,8] convert(a)
u16[6,8] bitcast-convert(h)
f32[6,8] reduce-precision(a), exponent_bits=5, mantissa_bits=10
f16[6,8] convert(h)
u = u32[6,8] bitcast-convert(a)
s8[6,8] stochastic-convert(a, u)""",
    "narrow types": """a = f32[6,8] parameter(0)
x = s2[6,8] parameter(1)
y = u4[6,8] parameter(2)
f = f4e2m1fn[6,8] parameter(3)
g = f8e3m4[6,8] parameter(4)
<f8e5m2 f8e4m3fn f8e4m3fnuz f8e5m2fnuz f8e4m3b11fnuz f8e3m4 f8e4m3 f8e8m0fnu f4e2m1fn s2 u2 s1 u1 s4 u4>[6,8] convert(a)
s2[6,8] add(x, x)
u4[6,8] multiply(y, y)
f4e2m1fn[6,8] multiply(f, f)
f8e3m4[6,8] exponential(g)
f32[6,6] dot(g, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}""",
    "64-bit integers": """x = s64[6,8] parameter(0)
y = s64[6,8] parameter(1)
s64[6,8] <add multiply divide>(x, y)
pred[6,8] compare(x, y), direction=LT
f32[6,8] convert(x)""",
    "f64": """x = f64[6,8] parameter(0)
y = f64[6,8] parameter(1)
f64[6,8] <add multiply>(x, y)
pred[6,8] compare(x, y), direction=LT
f32[6,8] convert(x)""",
    "complex numbers": """x = c64[4,6] parameter(0)
y = c64[4,6] parameter(1)
a = f32[4,6] parameter(2)
c64[4,6] <negate exponential exponential-minus-one log log-plus-one sqrt rsqrt sine cosine tan tanh logistic sign>(x)
c64[4,6] <sinh cosh asin acos atan asinh acosh atanh>(x)
c64[4,6] <multiply divide power atan2>(x, y)
f32[4,6] <real imag abs>(x)
c64[4,6] complex(a, a)""",
    "data movement": AB
    + """f32[3,6,8] broadcast(a), dimensions={1,2}
f32[48] reshape(a)
f32[48] bitcast(a)
f32[8,6] transpose(a), dimensions={1,0}
f32[2,3] slice(a), slice={[1:5:2], [0:8:3]}
f32[6,8] reverse(a), dimensions={0,1}
z = f32[] constant(2)
f32[9,18] pad(a, z), padding=1_2x-1_4_1
f32[12,8] concatenate(a, b), dimensions={0}
s32[6,8] iota(), iota_dimension=1
i = s32[] constant(1)
f32[2,4] dynamic-slice(a, i, i), dynamic_slice_sizes={2,4}
w = f32[2,4] slice(b), slice={[0:2], [0:4]}
f32[6,8] dynamic-update-slice(a, w, i, i)
c = f32[8] constant({1, 2, 3, 5, 8, 13, 21, 34})
f32[6,8] broadcast(c), dimensions={1}""",
    "reductions": AB
    + """z = f32[] constant(0)
f32[6] reduce(a, z), dimensions={1}, to_apply=add
f32[8] reduce(a, z), dimensions={0}, to_apply=largest
f32[6] reduce(a, z), dimensions={1}, to_apply=other
f32[3,3] reduce-window(a, z), window={size=2x3 stride=2x2}, to_apply=add
f32[6,8] reduce-window(a, z), window={size=1x8 pad=0_0x7_0}, to_apply=add
u = f32[3,3] slice(b), slice={[0:3], [0:3]}
f32[6,8] select-and-scatter(a, u, z), window={size=2x3 stride=2x2}, select=above, scatter=add
f32[6,8] map(a, b), dimensions={0,1}, to_apply=other""",
    "dynamic sizes": """a = f32[6,8] parameter(0)
n = s32[] constant(4)
d = f32[<=6,8] set-dimension-size(a, n), dimensions={0}
z = f32[] constant(0)
f32[8] reduce(d, z), dimensions={0}, to_apply=add
s32[] get-dimension-size(d), dimensions={0}
m = s32[] constant(32)
e = f32[<=48] dynamic-reshape(d, m)
f32[] reduce(e, z), dimensions={0}, to_apply=add""",
    "gather and scatter": AB
    + """n = s32[3] parameter(2)
f32[3,8] gather(a, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, \
slice_sizes={1,8}
u = f32[3,8] slice(b), slice={[0:3], [0:8]}
f32[6,8] scatter(a, n, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, \
index_vector_dim=1, to_apply=add""",
    "sorts": AB
    + """f32[6,8] sort(a), dimensions={1}, to_apply=less
(f32[6,3], s32[6,3]) topk(b), k=3, largest=true""",
    "products": AB
    + """f32[6,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
n = s8[6,8] convert(a)
s32[6,6] dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}
i = f32[1,6,8,1] reshape(a)
v = f32[2,2] slice(b), slice={[0:2], [0:2]}
k = f32[2,2,1,1] reshape(v)
f32[1,5,7,1] convolution(i, k), window={size=2x2}, dim_labels=b01f_01io->b01f
g = s32[2] constant({2, 3})
q = f32[3,8,3] parameter(2)
m = f32[2,8,3] slice(q), slice={[0:2], [0:8], [0:3]}
f32[6,3] ragged-dot(a, m, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, \
rhs_group_dims={0}
h = bf16[6,8] convert(a)
j = f32[6,2] slice(b), slice={[0:6], [0:2]}
e = bf16[6,2] convert(j)
f32[6,6] scaled-dot(h, h, e, e), lhs_contracting_dims={1}, rhs_contracting_dims={1}""",
    "control flow": """a = f32[6,8] parameter(0)
p = pred[] parameter(1)
i = s32[] parameter(2)
z = s32[] constant(0)
s = (s32[], f32[6,8]) tuple(z, a)
(s32[], f32[6,8]) while(s), condition=test, body=once
f32[6,8] conditional(p, a, a), true_computation=some, false_computation=others
f32[6,8] conditional(i, a, a), branch_computations={some, others}
f32[6,8] call(a), to_apply=some
f32[6,8] fusion(a), kind=kLoop, calls=others
d = f32[48] reshape(a)
c = f32[8] slice(d), slice={[0:8]}
(f32[6,8], f32[8]) scan(a, c), dimensions={0}, num_carries=1, to_apply=step
f32[6,8] opt-barrier(a)""",
    "order": """a = f32[6,8] parameter(0)
t = token[] after-all()
f32[6,8] add-dependency(a, t)
f32[6,8] domain(a), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=0}}
s = (f32[6,8], f32[6,8], u32[]) copy-start(a)
f32[6,8] copy-done(s)
k = ((f32[6,8]), f32[6,8], u32[]) async-start(a), calls=some
v = ((f32[6,8]), f32[6,8], u32[]) async-update(k)
f32[6,8] async-done(v)
s32[] get-dimension-size(a), dimensions={1}
f32[6,8] custom-call(a), custom_call_target="Sharding", sharding={replicated}""",
    "one device": AB
    + """u32[] <replica-id partition-id>()
f32[6,8] all-reduce(a), replica_groups={}, to_apply=add
s = f32[6,8] all-reduce-start(a), replica_groups={}, to_apply=add
f32[6,8] all-reduce-done(s)
f32[6,8] all-gather(a), replica_groups={}, dimensions={0}
g = (f32[6,8], f32[6,8]) all-gather-start(a), replica_groups={}, dimensions={0}
f32[6,8] all-gather-done(g)
f32[6,8] all-to-all(a), replica_groups={{0}}, dimensions={0}
f32[6,8] reduce-scatter(a), replica_groups={}, dimensions={0}, to_apply=add
f32[6,8] collective-broadcast(a), replica_groups={}
f32[6,8] collective-permute(a), source_target_pairs={}
c = (f32[6,8], f32[6,8]) collective-permute-start(a), source_target_pairs={{0,0}}
f32[6,8] collective-permute-done(c)
o = s32[2] constant({1, 0})
n = s32[2] constant({2, 1})
f32[6,8] ragged-all-to-all(a, b, o, n, o, n), replica_groups={}""",
    "normalisations": AB
    + """v = f32[8] parameter(2)
w = f32[8] abs(v)
(f32[6,8], f32[8], f32[8]) batch-norm-training(a, v, v), epsilon=0.01, feature_index=1
f32[6,8] batch-norm-inference(a, v, v, v, w), epsilon=0.01, feature_index=1
(f32[6,8], f32[8], f32[8]) batch-norm-grad(a, v, v, w, b), epsilon=0.01, feature_index=1""",
    "linear algebra": """a = f32[6,8] parameter(0)
t = f32[8,6] transpose(a), dimensions={1,0}
g = f32[6,6] dot(a, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
f32[6,6] cholesky(g), lower=true
l = f32[6,6] cholesky(g), lower=true
f32[6,8] triangular-solve(l, a), left_side=true, lower=true, transpose_a=NO_TRANSPOSE""",
    "transforms": """x = c64[6,12] parameter(0)
a = f32[6,8] parameter(1)
c64[6,12] fft(x), fft_type=FFT, fft_length={12}
c64[6,5] fft(a), fft_type=RFFT, fft_length={8}""",
    "random numbers": """a = f32[] parameter(0)
b = f32[] parameter(1)
g = u64[3] constant({1, 2, 3})
(u64[3], u32[9]) rng-bit-generator(g), algorithm=rng_philox
f32[9] rng(a, b), distribution=rng_uniform
u64[2] rng-get-and-update-state(), delta=3""",
}
"""Name to lines."""


def _each(text: str) -> Iterator[str]:
    for line in text.splitlines():
        found = re.search(r"<(.*)>", line)
        yield from (line.replace(found[0], op) for op in found[1].split()) if found else (line,)


def _shape(line: str) -> str:
    """The shape that a line begins with."""
    end = next(n for n, c in enumerate(line) if c == " " and line.count("(", 0, n) == line.count(")", 0, n))
    return line[:end]


def _module(text: str) -> str:
    lines, shapes = [], []
    for line in _each(text):
        if not re.match(r"\w+ = ", line):
            shapes.append(_shape(line))
            line = f"r{len(shapes)} = {line}"
        lines.append(f" {line}\n")
    made = ", ".join(f"r{n + 1}" for n in range(len(shapes)))
    return f"HloModule m\n{COMPUTATIONS}ENTRY e {{\n{''.join(lines)} ROOT r = ({', '.join(shapes)}) tuple({made})\n}}\n"


MODULES = {name: _module(text) for name, text in LINES.items()}
"""Name to text."""
