"""A module for each rule of the cost analysis: name to text."""

from __future__ import annotations

_ADD = "c {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n\n"

_BODIES: dict[str, str] = {
    "packed": "ENTRY e {\n x = s4[41]{0:E(4)} parameter(0)\n y = s4[41] convert(x)\n ROOT r = s8[41] convert(y)\n}",
    "sort of two": (
        "lt {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n p = s32[] parameter(2)\n q = s32[] parameter(3)\n"
        " ROOT r = pred[] compare(a, b), direction=LT\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " y = s32[40] parameter(1)\n ROOT r = (f32[40], s32[40]) sort(x, y), dimensions={0}, to_apply=lt\n}"
    ),
    "barrier": (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = (f32[40],f32[40]) tuple(x,x)\n"
        " ROOT z = (f32[40],f32[40]) opt-barrier(y)\n}"
    ),
    "nested barrier": (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = (f32[40],f32[40]) tuple(x,x)\n"
        " w = ((f32[40],f32[40]),f32[40]) tuple(y,x)\n ROOT z = ((f32[40],f32[40]),f32[40]) opt-barrier(w)\n}"
    ),
    "copy of a tuple": (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = (f32[40],f32[40]) tuple(x,x)\n"
        " ROOT z = (f32[40],f32[40]) copy(y)\n}"
    ),
    "copy-start": (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = (f32[40],f32[40],u32[]) copy-start(x)\n"
        " ROOT z = f32[40] copy-done(y)\n}"
    ),
    "async": (
        "a {\n p = f32[40] parameter(0)\n ROOT n = f32[40] negate(p)\n}\n\nENTRY e {\n"
        " x = f32[40] parameter(0)\n y = ((f32[40]),f32[40],s32[]) async-start(x), calls=a\n"
        " w = ((f32[40]),f32[40],s32[]) async-update(y)\n ROOT z = f32[40] async-done(w)\n}"
    ),
    "all-reduce of two": _ADD
    + (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = (f32[40],f32[40]) all-reduce(x,x), to_apply=c\n"
        " ROOT z = f32[40] get-tuple-element(y), index=0\n}"
    ),
    "all-reduce": _ADD + "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = f32[40] all-reduce(x), to_apply=c\n}",
    "all-reduce-start": _ADD
    + (
        "ENTRY e {\n x = f32[40] parameter(0)\n y = f32[40] all-reduce-start(x), to_apply=c\n"
        " ROOT z = f32[40] all-reduce-done(y)\n}"
    ),
    "all-gather of two": (
        "ENTRY e {\n x = f32[40] parameter(0)\n"
        " ROOT y = (f32[80],f32[80]) all-gather(x,x), dimensions={0}, replica_groups={{0,1}}\n}"
    ),
    "all-gather-start": (
        "ENTRY e {\n x = f32[40] parameter(0)\n"
        " y = (f32[40],f32[80]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}\n"
        " ROOT z = f32[80] all-gather-done(y)\n}"
    ),
    "reduce-scatter": _ADD
    + (
        "ENTRY e {\n x = f32[40] parameter(0)\n"
        " ROOT y = f32[20] reduce-scatter(x), dimensions={0}, replica_groups={{0,1}}, to_apply=c\n}"
    ),
    "all-to-all": (
        "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = (f32[40],f32[40]) all-to-all(x,x), replica_groups={{0,1}}\n}"
    ),
    "collective-permute": (
        "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = f32[40] collective-permute(x), source_target_pairs={{0,1}}\n}"
    ),
    "collective-permute-start": (
        "ENTRY e {\n x = f32[40] parameter(0)\n"
        " y = (f32[40],f32[40],u32[],u32[]) collective-permute-start(x), source_target_pairs={{0,1}}\n"
        " ROOT z = f32[40] collective-permute-done(y)\n}"
    ),
    "collective-broadcast": (
        "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = f32[40] collective-broadcast(x), replica_groups={{0,1}}\n}"
    ),
    "send": (
        "ENTRY e {\n x = f32[40] parameter(0)\n t = token[] after-all()\n"
        " s = (f32[40],u32[],token[]) send(x,t), channel_id=1\n ROOT d = token[] send-done(s), channel_id=1\n}"
    ),
    "recv": (
        "ENTRY e {\n t = token[] after-all()\n s = (f32[40],u32[],token[]) recv(t), channel_id=1\n"
        " ROOT d = (f32[40],token[]) recv-done(s), channel_id=1\n}"
    ),
    "infeed": "ENTRY e {\n t = token[] after-all()\n ROOT s = ((f32[40],s32[3]),token[]) infeed(t)\n}",
    "outfeed": (
        "ENTRY e {\n t = token[] after-all()\n x = f32[40] parameter(0)\n y = (f32[40],f32[40]) tuple(x,x)\n"
        " ROOT s = token[] outfeed(y,t), outfeed_shape=(f32[40],f32[40])\n}"
    ),
    "while": (
        "a {\n p = (s32[],f32[40]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
        " o = s32[] constant(1)\n j = s32[] add(i,o)\n x = f32[40] get-tuple-element(p), index=1\n"
        " n = f32[40] negate(x)\n ROOT r = (s32[],f32[40]) tuple(j,n)\n}\n\nb {\n"
        " p = (s32[],f32[40]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n o = s32[] constant(10)\n"
        " ROOT j = pred[] compare(i,o), direction=LT\n}\n\nENTRY e {\n p = (s32[],f32[40]) parameter(0)\n"
        ' ROOT w = (s32[],f32[40]) while(p), condition=b, body=a, backend_config={"known_trip_count":{"n":"10"}}\n'
        "}"
    ),
    "dynamic": "ENTRY e {\n x = f32[<=40] parameter(0)\n ROOT y = f32[<=40] negate(x)\n}",
    "dynamic matrix": "ENTRY e {\n x = f32[<=40,3] parameter(0)\n ROOT y = f32[<=40,3] negate(x)\n}",
    "set-dimension-size": (
        "ENTRY e {\n x = f32[40] parameter(0)\n n = s32[] parameter(1)\n"
        " ROOT y = f32[<=40] set-dimension-size(x,n), dimensions={0}\n}"
    ),
    "get-dimension-size": "ENTRY e {\n x = f32[<=40] parameter(0)\n"
    " ROOT y = s32[] get-dimension-size(x), dimensions={0}\n}",
    "transpose of ones": "ENTRY e {\n x = f32[40,1] parameter(0)\n ROOT y = f32[1,40] transpose(x), "
    "dimensions={1,0}\n}",
    "transpose that is a bitcast": "ENTRY e {\n x = f32[40,1]{1,0} parameter(0)\n"
    " ROOT y = f32[1,40]{0,1} transpose(x), dimensions={1,0}\n}",
    "transpose of layouts": (
        "ENTRY e {\n x = f32[4,5,6]{2,0,1} parameter(0)\n"
        " ROOT y = f32[5,4,6]{2,1,0} transpose(x), dimensions={1,0,2}\n}"
    ),
    "transpose that moves nothing": (
        "ENTRY e {\n x = f32[4,5,6]{2,1,0} parameter(0)\n"
        " ROOT y = f32[6,4,5]{0,2,1} transpose(x), dimensions={2,0,1}\n}"
    ),
    "batch norm": (
        "ENTRY e {\n x = f32[4,5] parameter(0)\n s = f32[5] parameter(1)\n"
        " ROOT y = (f32[4,5],f32[5],f32[5]) batch-norm-training(x,s,s), epsilon=0.1, feature_index=1\n}"
    ),
    "topk": "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = (f32[4],s32[4]) topk(x), k=4, largest=true\n}",
    "custom call": (
        'ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = (f32[4],s32[4]) custom-call(x,x), custom_call_target="foo"\n}'
    ),
    "cholesky": "ENTRY e {\n x = f32[5,5] parameter(0)\n ROOT y = f32[5,5] cholesky(x), lower=true\n}",
    "triangular-solve": (
        "ENTRY e {\n x = f32[5,5] parameter(0)\n z = f32[5,3] parameter(1)\n"
        " ROOT y = f32[5,3] triangular-solve(x,z), "
        "left_side=true,lower=true,unit_diagonal=false,transpose_a=NO_TRANSPOSE\n"
        "}"
    ),
    "fft of nothing": "ENTRY e {\n x = c64[0] parameter(0)\n ROOT y = c64[0] fft(x), fft_type=FFT, fft_length={0}\n}",
    "fft": "ENTRY e {\n x = c64[3,6] parameter(0)\n ROOT y = c64[3,6] fft(x), fft_type=FFT, fft_length={3,6}\n}",
    "reduce-window over all": _ADD
    + (
        "ENTRY e {\n x = f32[40] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = f32[40] reduce-window(x,z), window={size=79 pad=39_39}, to_apply=c\n}"
    ),
    "reduce-window": _ADD
    + (
        "ENTRY e {\n x = f32[40] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = f32[40] reduce-window(x,z), window={size=40 pad=39_0}, to_apply=c\n}"
    ),
    "rng": "ENTRY e {\n x = f32[] constant(0)\n ROOT y = f32[40] rng(x,x), distribution=rng_uniform\n}",
    "rng state": "ENTRY e {\n ROOT y = u64[1] rng-get-and-update-state(), delta=1\n}",
    "dynamic-slice": (
        "ENTRY e {\n x = f32[40,3] parameter(0)\n i = s32[] parameter(1)\n"
        " ROOT y = f32[4,1] dynamic-slice(x,i,i), dynamic_slice_sizes={4,1}\n}"
    ),
    "dynamic-slice of a vector": (
        "ENTRY e {\n x = f32[40,3] parameter(0)\n i = s32[2] parameter(1)\n"
        " ROOT y = f32[4,1] dynamic-slice(x,i), dynamic_slice_sizes={4,1}\n}"
    ),
    "dynamic-update-slice": (
        "ENTRY e {\n x = f32[40,3] parameter(0)\n i = s32[] parameter(1)\n u = f32[4,2] parameter(2)\n"
        " ROOT y = f32[40,3] dynamic-update-slice(x,u,i,i)\n}"
    ),
    "conditional": (
        "a {\n p = f32[40] parameter(0)\n ROOT n = f32[40] negate(p)\n}\n\nb {\n p = f32[40] parameter(0)\n"
        " ROOT n = f32[40] tanh(p)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n i = s32[] parameter(1)\n"
        " ROOT y = f32[40] conditional(i,x,x), branch_computations={a,b}\n}"
    ),
    "replica-id": "ENTRY e {\n ROOT y = u32[] replica-id()\n}",
    "map": (
        "a {\n p = f32[] parameter(0)\n ROOT n = f32[] negate(p)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " ROOT y = f32[40] map(x), dimensions={0}, to_apply=a\n}"
    ),
    "ragged-dot": (
        "ENTRY e {\n x = f32[16,8] parameter(0)\n w = f32[4,8,32] parameter(1)\n g = s32[4] parameter(2)\n"
        " ROOT y = f32[16,32] ragged-dot(x,w,g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}\n"
        "}"
    ),
    "ragged-dot of groups": (
        "ENTRY e {\n x = f32[8,16] parameter(0)\n w = f32[16,32] parameter(1)\n g = s32[4] parameter(2)\n"
        " ROOT y = f32[4,8,32] ragged-dot(x,w,g), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        "lhs_ragged_dims={1}\n"
        "}"
    ),
    "dynamic-reshape": (
        "ENTRY e {\n x = f32[40] parameter(0)\n n = s32[] parameter(1)\n ROOT y = f32[<=40] dynamic-reshape(x,n)\n}"
    ),
    "domain": (
        "ENTRY e {\n x = f32[40] parameter(0)\n"
        ' ROOT y = f32[40] domain(x), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}\n}'
    ),
    "add-dependency": (
        "ENTRY e {\n x = f32[40] parameter(0)\n t = token[] after-all()\n ROOT y = f32[40] add-dependency(x,t)\n}"
    ),
    "stochastic-convert": (
        "ENTRY e {\n x = f32[40] parameter(0)\n t = u32[40] parameter(1)\n ROOT y = s32[40] stochastic-convert(x,t)\n}"
    ),
    "bitcast": "ENTRY e {\n x = f32[40] parameter(0)\n ROOT y = f32[4,10] bitcast(x)\n}",
    "opaque": (
        "ENTRY e {\n x = opaque[] parameter(0)\n y = (opaque[],opaque[]) tuple(x,x)\n"
        " ROOT z = (opaque[],opaque[]) opt-barrier(y)\n}"
    ),
    "complex": "ENTRY e {\n x = c128[4] parameter(0)\n ROOT z = c128[4] exponential(x)\n}",
    "reduce of two": (
        "c {\n a = f32[] parameter(0)\n a1 = f32[] parameter(1)\n b = f32[] parameter(2)\n"
        " b1 = f32[] parameter(3)\n x = f32[] add(a,b)\n y = f32[] tanh(b1)\n"
        " ROOT r = (f32[],f32[]) tuple(x,y)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = (f32[],f32[]) reduce(x,x,z,z), dimensions={0}, to_apply=c\n}"
    ),
    "scaled-dot": (
        "ENTRY e {\n x = f8e4m3fn[4,64] parameter(0)\n s = f8e8m0fnu[4,2] parameter(1)\n"
        " ROOT y = f32[4,4] scaled-dot(x,x,s,s), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n}"
    ),
    "call of a tuple": (
        "a {\n p = (f32[40],f32[40]) parameter(0)\n q = f32[40] get-tuple-element(p), index=0\n"
        " ROOT n = f32[40] negate(q)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " y = (f32[40],f32[40]) tuple(x,x)\n ROOT z = f32[40] call(y), to_apply=a\n}"
    ),
    "fusion of a tuple": (
        "a {\n p = (f32[40],f32[40]) parameter(0)\n q = f32[40] get-tuple-element(p), index=0\n"
        " k = f32[3] constant({1,2,3})\n ROOT n = f32[40] negate(q)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " y = (f32[40],f32[40]) tuple(x,x)\n ROOT z = f32[40] fusion(y), kind=kLoop, calls=a\n}"
    ),
    "fusion of an update": (
        "a {\n p = f32[40] parameter(0)\n u = f32[4] parameter(1)\n i = s32[] parameter(2)\n"
        " d = f32[40] dynamic-update-slice(p,u,i)\n n = f32[40] negate(p)\n"
        " ROOT t = (f32[40],f32[40]) tuple(d,n)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " u = f32[4] parameter(1)\n i = s32[] parameter(2)\n"
        " ROOT z = (f32[40],f32[40]) fusion(x,u,i), kind=kLoop, calls=a\n}"
    ),
    "custom fusion": (
        "a {\n p = f32[40] parameter(0)\n i = s32[5] parameter(1)\n"
        " g = f32[5] gather(p,i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}\n"
        " ROOT n = f32[5] negate(g)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n i = s32[5] parameter(1)\n"
        " ROOT z = f32[5] fusion(x,i), kind=kCustom, calls=a\n}"
    ),
    "nested fusion": (
        "b {\n p = f32[40] parameter(0)\n ROOT n = f32[40] negate(p)\n}\n\na {\n p = f32[40] parameter(0)\n"
        " f = f32[40] fusion(p), kind=kLoop, calls=b\n s = f32[4] slice(f), slice={[0:4]}\n"
        " i = s32[] parameter(1)\n d = f32[4] dynamic-slice(f,i), dynamic_slice_sizes={4}\n"
        " q = f32[4] add(s,d)\n ROOT n = f32[4] negate(q)\n}\n\nENTRY e {\n x = f32[40] parameter(0)\n"
        " i = s32[] parameter(1)\n ROOT z = f32[4] fusion(x,i), kind=kLoop, calls=a\n}"
    ),
}

MODULES = {name: f"HloModule m\n\n{body}\n" for name, body in _BODIES.items()}
"""Name to module."""
