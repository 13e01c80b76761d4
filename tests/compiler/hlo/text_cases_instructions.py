"""Instructions of every opcode, with their attributes right and wrong, for `text_cases.py`."""

_OPERANDS = """p = f32[4,8] parameter(0) i = s32[] parameter(1) c = pred[] parameter(2) v = f32[8] parameter(3)
ii = s32[2,1] parameter(4) z = f32[] parameter(5) n = s32[4] parameter(6) m = f32[4,4] parameter(7)
g = s64[8] parameter(8) t = token[] after-all() u = u64[2] parameter(9) w = u32[4] parameter(10) """
_UNARY = """abs acos acosh asin asinh atanh cbrt ceil copy cosh cosine erf exponential exponential-minus-one floor log
    log-plus-one logistic negate round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh""".split()
_BINARY = "add atan2 divide maximum minimum multiply power remainder subtract".split()
_INTEGER = "and mulhi or xor shift-left shift-right-arithmetic shift-right-logical".split()
_HALF = "((f32[4,8]), f32[2,8], u32[])"

INSTRUCTIONS: tuple[tuple[str, str], ...] = (
    *((f"{_OPERANDS} ROOT r = #", f"f32[4,8] {op}(p)\n{op}(p)\nf32[4,8] {op}(p, p)") for op in _UNARY),
    *((f"{_OPERANDS} ROOT r = #", f"f32[4,8] {op}(p, p)\n{op}(p, p)\nf32[4,8] {op}(p)") for op in _BINARY),
    *((f"{_OPERANDS} ROOT r = #", f"s32[4] {op}(n, n)\n{op}(n, n)") for op in _INTEGER),
    (
        f"{_OPERANDS} ROOT r = #",
        """c64[4,8] complex(p, p)
        complex(p, p)
        pred[4,8] is-finite(p)
        f32[4,8] opt-barrier(p)
        f32[4,8] bitcast(p)
        bitcast(p)
        bf16[4] stochastic-convert(v, w)
        pred[4,8] compare(p, p), direction=EQ
        pred[4,8] compare(p, p), direction=GT, type=TOTALORDER
        pred[4,8] compare(p, p), direction=XX
        pred[4,8] compare(p, p), direction=LT, type=PARTIALORDER
        pred[4,8] compare(p, p)
        s32[4,8] iota(), iota_dimension=0
        s32[4,8] iota()
        u32[] partition-id()
        partition-id()
        replica-id()
        f32[8,4] transpose(p), dimensions={1,0}
        transpose(p), dimensions={1,0}
        transpose(p), dimensions={1, /* c */ 0}
        f32[32] reshape(p)
        f32[32] reshape(p), inferred_dimension=0
        reshape(p)
        s32[4,8] convert(p)
        convert(p)
        s32[4,8] bitcast-convert(p)
        f32[4,8] reverse(p), dimensions={0}
        (f32[4,8],f32[4,8]) tuple(p, p)
        tuple(p, p)
        () tuple()
        f32[8,8] concatenate(p, p), dimensions={0}
        concatenate(p, p), dimensions={0}
        f32[4,8,2] broadcast(p), dimensions={0,1}
        f32[4,8,2] broadcast(p)
        f32[4,8,2] broadcast(z)
        f32[4,8] clamp(p, p, p)
        f32[4,8] select(p, p, p)
        f32[4,8] reduce-precision(p), exponent_bits=5, mantissa_bits=10
        f32[4,8] reduce-precision(p), exponent_bits=5
        f32[4,4] cholesky(m), lower=true
        f32[4,4] cholesky(m)
        f32[4,4] triangular-solve(m, m), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
        c64[4,5] fft(p), fft_type=RFFT, fft_length={8}
        c64[4,5] fft(p), fft_type=RFFT
        c64[4,5] fft(p), fft_type=DFT, fft_length={8}
        (f32[4,2],s32[4,2]) topk(p), k=2
        (f32[4,2],s32[4,2]) topk(p), k=2, largest=false
        topk(p), k=2
        s32[] get-dimension-size(p), dimensions={0}
        f32[<=4,8] set-dimension-size(p, i), dimensions={0}
        f32[4,8] sort(p), dimensions={0}, is_stable=true, to_apply=less
        sort(p), dimensions={0}, to_apply=less
        f32[4,8] map(p), dimensions={0,1}, to_apply={ x = f32[] parameter(0) ROOT y = f32[] abs(x) }
        f32[4,8] fusion(p), kind=kLoop, calls={ x = f32[4,8] parameter(0) ROOT y = f32[4,8] abs(x) }
        f32[4,8] fusion(p), kind=kFoo, calls={ x = f32[4,8] parameter(0) ROOT y = f32[4,8] abs(x) }
        f32[2,8] fusion(p), kind=kCustom, calls=half, output_to_operand_aliasing={{}: (0, {})}
        f32[2,8] call(p), to_apply=half, is_composite=true
        call(p), to_apply=half
        f32[2,8] call(p), to_apply=nothing
        f32[4,8] add(p, abs(p))
        add(p, abs(negate(p)))
        f32[4,8] add(f32[4,8] p, f32[4,8] abs(f32[4,8]{1,0} p))
        f32[4,8] add(p, f32[4,8] broadcast(f32[] constant(1)))
        f32[4,8] add(p, f32[4,8] broadcast(f32[] constant(1)), dimensions={})
        f32[4,8] add(p, q)
        f32[4,8] add(f32[4,9] p, p)
        f32[4,8] add(f32[4,8]{0,1} p, p)
        f32[4,8] add(f32[<=4,8] p, p)
        f32[4,8]  abs (p)
        f32[4,8] abs( %p )
        f32[4,8] frob(p)
        f32[4,8] rng(z, z), distribution=rng_uniform
        f32[4,8] rng(z, z), distribution=foo
        u64[1] rng-get-and-update-state(), delta=4096
        (u64[2],u32[4]) rng-bit-generator(u), algorithm=rng_default
        (u64[2],u32[4]) rng-bit-generator(u), algorithm=rng_three_fry
        (u64[2],u32[4]) rng-bit-generator(u), algorithm=rng_foo
        f32[4,8] dynamic-reshape(p, i, i)
        f32[2,2] dynamic-slice(p, i, i), dynamic_slice_sizes={2,2}
        f32[4,8] dynamic-update-slice(p, p, i, i)
        (f32[4,8],f32[8],f32[8]) batch-norm-training(p, v, v), epsilon=0.001, feature_index=1
        f32[4,8] batch-norm-inference(p, v, v, v, v), epsilon=1e-5, feature_index=1
        (f32[4,8],f32[8],f32[8]) batch-norm-grad(p, v, v, v, p), epsilon=1, feature_index=1
        f32[8] reduce(p, f32[] constant(0)), dimensions={0}, to_apply=sum
        reduce(p, z), dimensions={0}, to_apply=sum
        f32[8] reduce(p, z), dimensions={0}
        f32[4,8] conditional(c, p, p), true_computation={ x = f32[4,8] parameter(0) }, \
false_computation={ x = f32[4,8] parameter(0) }
        f32[4,8] conditional(i, p, p), branch_computations={{ x = f32[4,8] parameter(0) }, \
{ x = f32[4,8] parameter(0) }}
        f32[4,8] conditional(p, p), branch_computations={}
        f32[4,8] while(p), condition={ x = f32[4,8] parameter(0) ROOT y = pred[] constant(true) }, \
body={ x = f32[4,8] parameter(0) }
        f32[2,8] gather(p, ii), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, \
index_vector_dim=1, slice_sizes={1,8}
        f32[2,8] gather(p, ii), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1
        f32[4,8] scatter(p, ii, p), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=sum
        f32[4,8] select-and-scatter(p, p, z), window={size=1x1}, select=less, scatter=sum
        f32[4,8] add-dependency(p, t)
        f32[4,8] add-dependency(p, after-all())
        token[] after-all(t, t)
        (f32[4,8],f32[4]) scan(m, v), dimensions={0}, num_carries=1, is_reverse=true, is_associative=true, \
to_apply=sum
        f32[4,4] ragged-dot(m, m, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, \
rhs_group_dims={0}
        f32[4,4] scaled-dot(m, m, m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        s64[8] ragged-all-to-all(g, g, g, g, g, g), replica_groups={{0,1}}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,4] dot(m, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, #",
        """algorithm=dot_f32_f32_f32
        algorithm=dot_bf16_bf16_f32_x3
        algorithm=dot_any_f8_any_f8_f32_fast_accum
        algorithm=dot_tf32_tf32_f32_x3
        algorithm=foo
        operand_precision={high,highest}
        operand_precision={foo,high}
        lhs_batch_dims={}, rhs_batch_dims={}
        window={size=1}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] exponential(p), result_accuracy=#",
        """{mode=highest}
        {mode=default}
        {tolerance={atol=1e-5,rtol=0.1,ulps=2}}
        {mode=foo}
        {}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] reduce-window(p, z), to_apply=sum, window=#",
        """{size=3x3 stride=2x2}
        {size=1x2 pad=0_1x-1_2}
        {size=2x2 lhs_dilate=1x2}
        {size=2x2 rhs_dilate=2x2 rhs_reversal=1x0}
        {stride=2x2 size=1x1}
        {}
        {size=1x1 foo=2}
        {size=1x1 size=2x2}
        {size=1x1 pad=1_1}
        {size=1x1 pad=0_0_1x0_0_1}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] convolution(p, p), feature_group_count=2, \
operand_precision={{high,default}}, #",
        """dim_labels=b01f_01io->b01f, window={size=1x1}
        dim_labels=bf01_oi01->bf01, window={size=1x1 pad=1_1x0_0}
        dim_labels=b?f_?io->bf?
        dim_labels=bf_io->bf
        dim_labels=b01f_01io->b0f
        dim_labels=bb0_0io->b0f
        dim_labels=b0f_0io->b0x
        window={size=1x1}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] slice(p), slice=#",
        """{[0:4], [0:8:2]}
        {[0:4], [0:8]}
        {}
        {[0:4:1:1]}
        {[0]}
        { [ 0 : 4 ] , [ 0 : 8 ] }""",
    ),
    (f"{_OPERANDS} ROOT r = f32[4,8] pad(p, z), padding=#", "0_0x1_1\n0_0_1x1_1_0\n-1_2x0_0\n1\n0_0x"),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] collective-permute(p), channel_id=1, source_target_pairs=#",
        "{{0,1},{1,0}}\n{}\n{{0,1,2}}\n{0,1}",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8] all-reduce(p), #",
        """replica_groups={}, channel_id=1, use_global_device_ids=true, to_apply=sum
        replica_groups={}, mode=cross_replica, to_apply=sum
        replica_groups={}, mode=foo, to_apply=sum
        constrain_layout=true, to_apply=sum
        replica_groups={}""",
    ),
    (
        f"{_OPERANDS} ROOT r = f32[4,8]{{1,0}} custom-call(p), custom_call_target=#",
        r""""foo"
        "a\"b"
        foo
        "foo", custom_call_has_side_effect=true
        "foo", api_version=API_VERSION_STATUS_RETURNING
        "foo", api_version=API_VERSION_UNSPECIFIED
        "foo", schedule=SCHEDULE_LATEST
        "foo", schedule=FOO
        "foo", literal=f32[] 1
        "foo", literal=s32[2]{0} {1, 2}
        "foo", literal=( s32[4]{0} {4, 128, 128, 3}, pred[4]{0} {1, 0, 0, 0} )
        "foo", literal=f32[2] {1}
        "foo", to_apply=sum
        "foo", called_computations={sum, less}
        "foo", called_computations={}
        "foo", operand_layout_constraints={f32[4,8]{1,0}}
        "foo", output_to_operand_aliasing={{}: (0, {})}
        "foo", output_to_operand_aliasing={{0}: (0, {}), {1}: (0, {1})}
        "foo", padding_type=PADDING_SAME
        "foo", padding_type=FOO
        "foo", window={size=1x1}, dim_labels=b0f_0io->b0f, feature_group_count=3""",
    ),
    (
        f"{_OPERANDS} s = {_HALF} #",
        f"""slice-start(p), slice={{[0:2], [0:8]}} u = {_HALF} slice-update(s) ROOT d = f32[2,8] slice-done(u)
        slice-start(p), slice={{[0:2], [0:8]}}, async_execution_thread="t" ROOT d = f32[2,8] slice-done(s)
        slice-start(p), slice={{[0:2], [0:8]}}, metadata={{op_name="x"}} ROOT d = f32[2,8] slice-done(s)
        slice-start(p) ROOT d = f32[2,8] slice-done(s)
        slice-start(p), slice={{[0:2], [0:8]}} ROOT d = f32[2,8] abs-done(s)
        slice-start(p), slice={{[0:2], [0:8]}} ROOT d = f32[2,8] slice-done(p)
        async-start(p), calls=half u = {_HALF} async-update(s), calls=half ROOT d = f32[2,8] async-done(u), calls=half
        async-start(p), calls=long ROOT d = f32[2,8] async-done(s), metadata={{op_name="x"}}
        async-start(p), calls=half t2 = {_HALF} async-start(p), calls=half ROOT d = f32[2,8] async-done(s)
        async-start(p) ROOT d = f32[2,8] async-done(s)
        custom-call-start(p), custom_call_target="x" ROOT d = f32[2,8] custom-call-done(s)
        fusion-start(p), kind=kLoop, calls=half ROOT d = f32[2,8] fusion-done(s)
        call-start(p), to_apply=half ROOT d = f32[2,8] call-done(s)""",
    ),
    (
        f"{_OPERANDS} s = #",
        """f32[2,8] slice-start(p), slice={[0:2], [0:8]}
        ((f32[4,8],f32[4,8]), f32[4,8], u32[]) add-start(p, p) ROOT d = f32[4,8] add-done(s)
        ((f32[4,8]), f32[4,8], u32[]) all-to-all-start(p), dimensions={0} ROOT d = f32[4,8] all-to-all-done(s)
        (f32[4,8],f32[4,8]) all-gather-start(p), dimensions={0} ROOT d = f32[4,8] all-gather-done(s)
        f32[4,8] all-reduce-start(p), replica_groups={}, to_apply=sum ROOT d = f32[4,8] all-reduce-done(s)
        (f32[4,8],f32[4,8],u32[],u32[]) collective-permute-start(p), source_target_pairs={{0,1}}
        (f32[4,8],f32[4,8],u32[]) copy-start(p), cross_program_prefetch_index=0 ROOT d = f32[4,8] copy-done(s)
        (f32[],u32[],token[]) recv(t), channel_id=1, \
is_host_transfer=true ROOT d = (f32[],token[]) recv-done(s), channel_id=1
        (f32[],u32[],token[]) recv(z), channel_id=1 ROOT d = (f32[],token[]) recv-done(s), channel_id=1
        (f32[],u32[],token[]) send(z, t), channel_id=1 ROOT d = token[] send-done(s), channel_id=1
        (f32[4]{0},token[]) infeed(t), infeed_config="x"
        (f32[4]{0},token[]) infeed()
        (f32[],u32[],token[]) send(z, t, t), channel_id=1 ROOT d = token[] send-done(s), channel_id=1
        token[] outfeed(v, t), outfeed_shape=f32[8]{0}, outfeed_config="y"
        token[] outfeed(v, t, t), outfeed_shape=f32[8]{0}
        f32[4,8] copy(p) ROOT d = (f32[4,8]) tuple(s), control-predecessors={s, p}""",
    ),
)
