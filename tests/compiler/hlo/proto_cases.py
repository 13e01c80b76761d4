"""One instruction each, as XLA accepts and prints it: every attribute, device list, sharding, layout and element type.

They may use the definitions of `proto_oracle.around`.  An indented line goes on with the one above it.
"""

import re

_DEVICES = r"""
f32[4,4] all-reduce(p), replica_groups=mesh['a'=2,'b'=2] {'a'}, to_apply=add
f32[4,4] all-reduce(p), replica_groups=mesh['a'=2,'b'=2] {'a','b'}, to_apply=add
f32[4,4] all-reduce(p), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b':(2)2}, to_apply=add
f32[4,4] all-reduce(p), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=add
f32[4,4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add
(f32[4,4], u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true
f32[4,4] collective-permute(p), channel_id=2, source_target_pairs={{0,1},{1,0}}
f32[4,4] collective-permute(p), source_target_pairs={}
f32[4,4] all-to-all(p), replica_groups={{0,1}}, dimensions={0}
(f32[4,4]) all-to-all(p), replica_groups={{0,1}}
f32[4,4] ragged-all-to-all(p,p,p,p,p,p), replica_groups={{0,1}}
f32[4,4] collective-broadcast(p), replica_groups={{0,1}}
f32[8,4] all-gather(p), replica_groups=[1,2]<=[2], dimensions={0}, use_global_device_ids=true, channel_id=3,
    constrain_layout=true
f32[2,4] reduce-scatter(p), replica_groups=[1,2]<=[2], dimensions={0}, use_global_device_ids=true, channel_id=3,
    constrain_layout=true, to_apply=add
u32[] replica-id()
u32[] partition-id()
(f32[4,4], f32[4,4]) all-gather-start(p), replica_groups={}, dimensions={0}
f32[4,4] all-reduce-start(p), replica_groups={}, to_apply=add
(f32[4,4], f32[4,4]) collective-permute-start(p), source_target_pairs={{0,1}}
f32[4,4] all-to-all(p), replica_groups={{0,1}}, dimensions={0}, channel_id=0
(f32[4,4], u32[], token[]) recv(t), channel_id=3, frontend_attributes={_xla_x="{1}"}
"""
_SHARDINGS = r"""
f32[4,4] negate(p), sharding={maximal device=0}
f32[4,4] negate(p), sharding={manual}
f32[4,4] negate(p), sharding={unreduced}
f32[4,4] negate(p), sharding={unknown}
f32[4,4] negate(p), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
f32[4,4] negate(p), sharding={devices=[2,1,2]0,3,2,1 last_tile_dims={manual}}
f32[4,4] negate(p), sharding={devices=[2,1,2]<=[4] last_tile_dims={replicated}}
f32[4,4] negate(p), sharding={devices=[2,1,2,2]<=[8] last_tile_dims={manual,replicated}}
f32[4,4] negate(p), sharding={devices=[2,1]<=[2] shard_as 3}
f32[4,4] negate(p), sharding={replicated shard_like 3}
f32[4,4] negate(p), sharding={replicated metadata={op_name="a"}}
f32[4,4] negate(p), sharding={replicated metadata={{op_name="a"},{op_name="b"}}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], [{'a'}, {}]}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=4], [{'a', 'b':(1)2}, {?}], replicated={'b':(2)2}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], device_ids=(0,2,1,3), [{'a'}, {'b',?}], unreduced={}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)), [{'a'}, {'b',?}],
    metadata={op_name="a"}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], [{}, {'b',?}], manual={'a'}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], [{}, {}], unreduced={'a'}, replicated={'b'}}
f32[] negate(i), sharding={mesh['a'=2,'b'=2], [], replicated={'b'}}
f32[4,4] negate(p), sharding={mesh['a'=2,'b'=2], [{},{}]}
f32[4,4] negate(p), sharding={devices=[2,2]0,1,2,3}
f32[4,4] negate(p), sharding={maximal_mesh[device_id=1]}
(f32[4,4], f32[4]) tuple(p,i), sharding={{replicated}, {devices=[2]<=[2] metadata={op_name="x"}}}
() tuple(), sharding={{replicated}}
f32[4,4] domain(p), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}
f32[4,4] exponential(p), result_accuracy={tolerance={atol=0.001,rtol=1e-20,ulps=2}}, sharding={replicated},
    statistics={visualizing_index=0,stat=1.5}
"""
_CONSTANTS = r"""
s32[<=4] constant({1,2,3,4})
c64[2] constant({(1,-2.5),(inf,nan)})
c128[] constant((1,2))
bf16[3] constant({1,-0,inf})
f16[3] constant({1,-0,nan})
f8e4m3fn[3] constant({1,-0,nan})
f8e5m2[3] constant({1,-0,inf})
f8e4m3b11fnuz[3] constant({1,0,nan})
f8e3m4[3] constant({1,-0,inf})
f8e8m0fnu[3] constant({1,2,nan})
f4e2m1fn[3] constant({1,-0.5,6})
s2[3] constant({1,-2,0})
u2[3] constant({1,3,0})
u4[3] constant({15,0,1})
s4[2,2]{0,1} constant({{1,-8},{3,7}})
pred[2,2] constant({{1,0},{0,1}})
s64[2] constant({-9223372036854775808,9223372036854775807})
u64[1] constant({18446744073709551615})
s16[2] constant({-32768,32767})
u16[2] constant({65535,0})
u8[2] constant({255,0})
s8[2] constant({-128,0})
f64[2] constant({1e-300,-nan})
f32[2] constant({-nan(0x7fc123),nan(0x1)})
f32[0,3] constant({})
f32[0] constant({})
f32[2,0] constant({{},{}})
(s32[2], (f32[], pred[])) constant(({1,2},(3,true)))
f32[2,2,2]{0,2,1} constant({{{1,2},{3,4}},{{5,6},{7,8}}})
"""
_ORIGINS = r"""
f32[4,4] negate(p), origin={[synthetic_call]}
f32[4,4] negate(p), origin={{"a"}}
f32[4,4] negate(p), origin={{"a" {1,0}}}
(f32[4,4], (f32[4], f32[4])) tuple(p, i), origin={({"a"}, ({"c" {1}}, {}))}
(f32[4,4], (f32[4], f32[4])) tuple(p, i), origin={({"a"}, {"c"})}
f32[4,4] negate(p), origin={({"a"}, {"c" {1}})}
f32[4,4] negate(p), metadata={op_type="t" op_name="a'\"b" source_file="f" source_line=2 source_end_line=3
    source_column=4 source_end_column=5 stack_frame_id=0 deduplicated_name="d" scheduling_name="s"
    profile_type={1}}, backend_config="ab c"
f32[4,4] exponential(p), result_accuracy={mode=highest}, origin={{"a"}}, metadata={op_name="x"},
    backend_config={"a":"b"}
f32[4,4] custom-call(p), custom_call_target="a", backend_config="\001x"
f32[4,4] custom-call(p), custom_call_target="a", backend_config={a = 1 : i64}
f32[] call(i, i), to_apply=add, is_composite=true, frontend_attributes={composite.name="a"}
f32[4,4] custom-call(p), custom_call_target="x", metadata={op_name="a"}, backend_config={"a":"\"}"},
    control-predecessors={i}
f32[4,4] negate(p), metadata={op_name="a"}, backend_config={"a":"b"}, frontend_attributes={a={b=c}},
    statistics={visualizing_index=1,stat=1.5,b=2.25}
f32[4,4] negate(p), frontend_attributes={a="",b="x\"y\n",c={}}
f32[4,4] negate(p), origin={({"a"}, ({"b"}, {"c"}))}
f32[4,4] bitcast(p), backend_config="x\342\202\254"
"""
_SHAPES = r"""
f32[?,4] negate(p)
f32[<=4,4] negate(p)
f32[4,4]{1,0:SC(0:1,2)(1:3)} negate(p)
f32[4,4]{1,0:T(8,128)(1,2)L(2)E(32)S(1)} negate(p)
f32[4,4]{1,0:L(2)} negate(p)
f32[4,4]{1,0:M(4)} negate(p)
f32[4,4]{1,0:S(5)} negate(p)
f32[]{:T(128)} copy(i)
b(f32[4,4]) custom-call(p), custom_call_target="x"
opaque[] custom-call(p), custom_call_target="x"
"""
_OPERATIONS = r"""
(f32[4,4],f32[4,4],u32[]) copy-start(p), cross_program_prefetch_index=0
(f32[4,4], token[]) infeed(t), infeed_config="a\001b"
token[] outfeed(p, t), outfeed_shape=f32[4,4]{1,0}, outfeed_config="abc"
token[] outfeed(p, t), outfeed_config="a\"\\bc"
f32[4,4] custom-call(p), custom_call_target="a\"b", window={size=2x2 pad=0_0x1_1}, dim_labels=bf_io->bf,
    feature_group_count=2, operand_layout_constraints={f32[4,4]{0,1}}, custom_call_has_side_effect=true,
    output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_LATEST, api_version=API_VERSION_TYPED_FFI,
    padding_type=PADDING_VALID, called_computations={add}, operand_precision={highest}, literal=f32[2]{0} {1,2}
f32[4,4] custom-call(p), custom_call_target="a", literal=f32[2,2]{0,1} {{1,2},{3,4}}, to_apply=add
f32[4,4] custom-call(p), custom_call_target="a", literal=( s32[4]{0} {4, 1, 1, 3}, ( pred[] true, f32[1]{0} {1.5} ) )
f32[4,4] custom-call(p), custom_call_target="a", called_computations={add, add}
f32[4,4] fusion(p), kind=kLoop, calls=add, output_to_operand_aliasing={{}: (0, {})}
f32[4,4] topk(p), k=4, largest=true
f32[4,4] topk(p), k=4, largest=false
u64[1] rng-get-and-update-state(), delta=1
f32[4,4] rng(i,i), distribution=rng_normal
(u64[2],u32[4]) rng-bit-generator(p), algorithm=rng_philox
(u64[2],u32[4]) rng-bit-generator(p), algorithm=rng_default
f32[4,4] dot(p,p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x3,
    operand_precision={high,highest}
f32[4,4] dot(p,p), lhs_contracting_dims={}, rhs_contracting_dims={}, lhs_batch_dims={0}, rhs_batch_dims={0}
f32[4,4] dot(p,p), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    algorithm=dot_any_f8_any_f8_f32_fast_accum
f32[4,4] ragged-dot(p,p,p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={0},
    rhs_group_dims={0}
f32[4,4] ragged-dot(p,p,p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={0}
f32[4,4] scaled-dot(p,p,p,p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
f32[4,4] batch-norm-inference(p,p,p,p,p), epsilon=0.001, feature_index=1
f32[4,4] batch-norm-inference(p,p,p,p,p), epsilon=1.23456789e-05, feature_index=0
f32[4,4] reshape(p), inferred_dimension=0
f32[4,4] dynamic-reshape(p, i, i)
pred[4,4] compare(p, p), direction=LT, type=TOTALORDER
pred[4,4] compare(p, p), direction=LT, type=FLOAT
pred[] compare(i, i), direction=NE, type=UNSIGNED
pred[] compare(i, i), direction=NE, type=SIGNED
f32[4,4] fft(p), fft_type=RFFT, fft_length={4}
f32[4,4] triangular-solve(p,p), lower=true, transpose_a=ADJOINT
f32[4,4] triangular-solve(p,p), left_side=true, unit_diagonal=true
f32[4,4] cholesky(p), lower=true
f32[4,4] cholesky(p)
f32[4,4] add-dependency(p, t)
f32[4,4] opt-barrier(p)
((f32[4,4]), f32[4,4], u32[]) fusion-start(p), kind=kLoop, calls=add
f32[4,4] pad(p, i), padding=0_1x-1_2_3
f32[4,4] slice(p), slice={[0:2], [0:4:2]}
f32[] slice(i), slice={}
f32[4,4] reduce-precision(p), exponent_bits=8, mantissa_bits=0
f32[4,4] convolution(p, p), window={size=2x2 stride=1x2 pad=0_-1x1_1 lhs_dilate=2x1 rhs_dilate=1x3
    rhs_reversal=1x0}, dim_labels=01bf_io01->f01b, feature_group_count=2, batch_group_count=3
f32[4,4] convolution(p, p), dim_labels=bf_io->bf, operand_precision={high,default}
f32[4,4] convolution(p, p), dim_labels=fb_oi->bf
f32[4,4] reduce-window(p, i), window={size=1x1}, to_apply=add
f32[] reduce-window(i, i), to_apply=add
f32[4,4] select-and-scatter(p, p, i), window={size=1x1}, select=add, scatter=add
f32[4,4] scatter(p, i, p), update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={1},
    index_vector_dim=0, input_batching_dims={0}, scatter_indices_batching_dims={1}, indices_are_sorted=true,
    unique_indices=true, to_apply=add
f32[4,4] gather(p, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=0,
    operand_batching_dims={0}, start_indices_batching_dims={1}, slice_sizes={1,1}, indices_are_sorted=true
f32[4,4] sort(p), dimensions={0}, is_stable=true, to_apply=add
f32[4,4] map(p, p), dimensions={0,1}, to_apply=add
s32[4,4] iota(), iota_dimension=1
s32[] get-dimension-size(p), dimensions={1}
f32[<=4,4] set-dimension-size(p, i), dimensions={0}
f32[4,4] get-tuple-element(p), index=0
f32[4,4] dynamic-slice(p, i, i), dynamic_slice_sizes={4,4}
f32[4,4] broadcast(i), dimensions={}
f32[4,4] after-all(t)
f32[4,4] stochastic-convert(p, p)
f32[4,4] concatenate(p, p), dimensions={0}
f32[4,4] reverse(p), dimensions={0,1}
(f32[4,4], f32[4,4]) scan(p, p), dimensions={0}, is_reverse=true, num_carries=1, to_apply=add
(f32[4,4], f32[4,4]) scan(p, p), dimensions={0}, is_associative=true, num_carries=1, to_apply=add
(f32[], f32[4,4]) while(p), condition=add, body=add
f32[4,4] conditional(i, p, p), branch_computations={add, add}
f32[4,4] convolution(p, p), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=0
f32[4,4] convolution(p, p), dim_labels=bf_io->bf, convolution_kind=dgrad, operand_precision={high,high},
    feature_group_count=2
f32[4,4] conditional(c, p, p), true_computation=add, false_computation=add
f32[4,4] sort(p), dimensions={0}, to_apply=add
f32[4,4] reduce(p, i), dimensions={}, to_apply=add
f32[4,4] transpose(p), dimensions={1,0}
(f32[4,4], s32[], token[]) tuple(p, i, t)
f32[4,4] dynamic-update-slice(p, p, i, i)
f32[4,4] clamp(p, p, p)
"""

CASES = [
    re.sub(r"\n +", " ", case)
    for group in (_DEVICES, _SHARDINGS, _CONSTANTS, _ORIGINS, _SHAPES, _OPERATIONS)
    for case in re.split(r"\n(?! )", group.strip())
]
