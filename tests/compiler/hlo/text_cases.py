"""Texts of HLO by feature, one line each: XLA's parser takes some and refuses others; XLA itself says which.

`#` stands for a line of the list in its template; the computations of `CALLEES` stand above the entry.
"""

from collections.abc import Iterator

from tests.compiler.hlo.text_cases_instructions import INSTRUCTIONS

CALLEES = """
sum { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
less { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = pred[] compare(x, y), direction=LT }
half { x = f32[4,8] parameter(0) ROOT z = f32[2,8] slice(x), slice={[0:2], [0:8]} }
long { x = f32[4,8] parameter(0) n = f32[4,8] abs(x) ROOT z = f32[2,8] slice(n), slice={[0:2], [0:8]} }
"""

_ARRAY = "p = f32[4,8] parameter(0) "
TYPES = """pred s1 s2 s4 s8 s16 s32 s64 u1 u2 u4 u8 u16 u32 u64 f4e2m1fn f8e3m4 f8e4m3 f8e4m3fn f8e4m3fnuz f8e4m3b11fnuz
    f8e5m2 f8e5m2fnuz f8e8m0fnu bf16 f16 f32 f64 c64 c128""".split()

# Template of the entry's body; its lines.
BODIES: tuple[tuple[str, str], ...] = (
    *((f"ROOT p = {dtype}# parameter(0)", "[]\n[3]{0}\n[4,<=8,?]{2,1,0}") for dtype in TYPES),
    (
        "ROOT p = # parameter(0)",
        r"""token[]
        opaque[]
        ()
        ((),(f32[],()))
        b(f32[4])
        b(f32[4]{0})
        f32[2,3]{0,1}
        f32[2,3]{1,0:T(8,128)}
        f32[2,3]{1,0:T(8,128)(2,1)S(1)}
        f32[2,3]{1,0:E(4)}
        f32[2,3]{1,0:L(4)}
        f32[2,3]{1,0:#(u32)*(u8)}
        f32[2,3]{1,0:SC(0:1,2)(1:5)}
        f32[2,3]{1,0:M(16)}
        f32[2,3]{1,0:T(8,*)}
        f32[]{:T(128)}
        f32[]{:S(2)}
        f32[2,3]{1,0:D(D,C)}
        f32[2,3]{1,0:D(D,C+~)}
        f32[ 2 , 3 ] { 1 , 0 : T( 8 , 128 ) }
        f32/* c */[2] /* c */ {0}
        f32[2]{0:T()}
        f32[<=2,3]
        f32[?,3]
        (f32[2], /*index=1*/ s32[])
        f32[999999999,999999999]
        f32[/*c*/2]
        f32[2]{0:S(-1)}
        f32[9223372036854775807]
        f32[2]{}
        f32[2]{,0}
        f32[2]{0:Q(1)}
        f32[2]{0:S(1)T(2)}
        f32[-1]
        f32[<=?]
        (f32[2],)
        f32[2,]
        f32[2
        f33[2]
        f32[2]{0:T(2)P(f32[2])}
        f32[18446744073709551615]""",
    ),
    (
        "ROOT c = # )",
        r"""f32[2] constant({1 2}
        f32[2] constant({1,,2,}
        f32[2] constant({1}
        f32[2] constant({1, 2, 3}
        f32[2,2] constant({{1,2},{3,4}}
        f32[2,2] constant({{1,2,3},{4}}
        f32[2,2] constant({1,2,3,4}
        f32[2,0] constant({{},{}}
        f32[2,0] constant({}
        f32[0,2] constant({}
        f32[0,2] constant({{}}
        f32[0] constant({}
        f32[2,0,4,3] constant({ { /*i0=0*/ }, { /*i0=1*/ } }
        f32[3,2,1,1] constant({{{{-1}},{{4.1}}},{{{2}},{{4.1}}},{{{5}},{{4.4}}}}
        f32[5] constant({nan, -inf, inf, -0, 0.3e+1}
        f32[3] constant({-nan, nan(0x400001), nan(0x1)}
        f16[2] constant({nan(0x3ff), 65504}
        bf16[2] constant({nan(0x7f), 1e38}
        f8e4m3fn[2] constant({nan(0x1), 1}
        f8e5m2[3] constant({nan(0x1), -nan, -inf}
        f8e4m3fnuz[2] constant({nan, -240}
        f16[] constant(65520
        f16[] constant(1e5
        f32[] constant(1e39
        f64[] constant(1e400
        f32[] constant(1.
        f32[] constant(-.5
        f32[] constant(.5
        f32[] constant(+1
        f32[] constant(0x10
        f32[] constant(1_0
        f32[] constant(infinity
        c64[2] constant({(1, 2), (-0, inf)}
        c64[] constant((1.5, -2)
        c64[2] constant({(nan(0x400001), -nan(0x1)), (inf, -nan)}
        c128[] constant((nan, -nan(0x123))
        c64[] constant((nan(0xfffffff), 1)
        c64[2] constant({1, 2}
        c64[] constant((1, 2, 3)
        pred[3] constant({2, true, 0}
        pred[] constant(5
        pred[] constant(yes
        s4[2] constant({7, -8}
        s4[] constant(8
        u2[4] constant({0, 1, 2, 3}
        s1[2] constant({0, -1}
        u8[] constant(-1
        u8[] constant(256
        u64[2] constant({-1, 18446744073709551615}
        s64[2] constant({-1, 18446744073709551615}
        s32[] constant(18446744073709551615
        s32[] constant(1.0
        s32[] constant(99999999999999999999
        (f32[2,1], (s32[], pred[2])) constant(( { {1}, {2} }, (3, {1,0}) )
        () constant(()
        (f32[]) constant((1, 2)""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] copy(p), sharding=#",
        r"""{replicated}
        {maximal device=3}
        {manual}
        {unknown}
        {unreduced}
        {devices=[2,2]0,1,2,3}
        {devices=[2,2]<=[4]}
        {devices=[4,1]<=[2,2]T(1,0)}
        {devices=[2,1,2]<=[4] last_tile_dim_replicate}
        {devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}
        {devices=[1,1,2,2]<=[4] last_tile_dims={manual,replicated} metadata={op_name="a"}}
        {replicated shard_as 1}
        {devices=[2,2]<=[4] shard_like 7}
        {replicated metadata={{op_name="a"}, {op_name="b" source_line=3}}}
        {}
        {{replicated}}
        {{replicated}, {maximal device=1}, {devices=[2,1]<=[2]}}
        {mesh['x'=2,'y'=4], [{'x'}, {'y', ?}]}
        {mesh['x'=2,'y'=4], replicated}
        {mesh['x'=2,'y'=4], manual}
        {mesh['x'=2,'y'=4] unreduced}
        {mesh['x'=2,'y'=4], [{'x'}, {}], replicated={'y':(1)2}, unreduced={'y':(2)2}}
        {mesh['x'=2,'y'=4], [{'x'}, {}], manual={'y'}, metadata={op_name="a"}}
        {maximal_mesh[device_id=3]}
        {mesh['x'=2], device_ids=(1,0), [{'x'},{}]}
        {mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'},{}]}
        {mesh[], replicated}
        {mesh[3=2], replicated}
        {mesh['x'=2], [{?, 'x'}]}
        {device=3}
        {maximal}
        {devices=[2]0}
        {devices=[]}
        {devices=[2,2]<=[2,2]}
        {bogus}
        {replicated device=1}
        {replicated metadata={nothing="a"}}
        {devices=[2,2]<=[4] last_tile_dims={bogus}}
        replicated""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] domain(p), domain=#",
        """{kind="sharding", entry={replicated}, exit={maximal device=0}}
        {kind="sharding" exit={} entry={{manual}}}
        {kind="other", entry={replicated}, exit={replicated}}
        {kind="sharding", entry={replicated}}""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] all-to-all(p), replica_groups=#",
        """{}
        {{0,1},{2,3}}
        {{0}}
        {{}}
        [2,4]<=[8]
        [4,2]<=[2,4]T(1,0)
        mesh['x'=2,'y'=4] {'x'}
        mesh['x'=2,'y'=4], {'x','y'}
        mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y':(2)2}
        mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}
        [8]<=[8]
        [2,2,2]<=[8]
        [2,4]<=[4,2]
        [2,4]
        [2,4]0,1,2,3,4,5,6,7
        {0,1}
        {{0,1}
        mesh[3=2] {x}""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] copy(p), metadata=#",
        r"""{op_name="a"}
        {op_type="t" op_name="jit(f)/x" source_file="a.py" source_line=3 source_end_line=4 source_column=1}
        {stack_frame_id=3}
        {profile_type={1}}
        {deduplicated_name="x" scheduling_name="y"}
        {}
        {op_name="a", source_line=3}
        {op_name="\"\'\n\303\251\x41\u00e9\?"}
        {op_name='a'}
        {op_name="é" /* c */ source_line=3 // d
        }
        {op_name=3}
        {source_line="3"}
        {nothing="a"}
        {op_name="a" op_name="b"}
        {op_name="\q"}
        {op_name="\400"}
        {source_line=3000000000}
        {op_name="a\"}""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] copy(p), frontend_attributes=#",
        r"""{a="b"}
        {a="b",c="d"}
        {a={"j":{"k":1}},b="x"}
        {}
        {a.b-c="x"}
        {composite.attributes={n = 1 : i32, tensor = dense<1> : tensor<i32>},composite.name="foo"}
        {a=b}
        {a="b" c="d"}""",
    ),
    (
        f"{_ARRAY} ROOT r = f32[4,8] copy(p), #",
        r"""backend_config="abc"
        backend_config={a:1}
        backend_config={"a":{"b":"}"}}
        backend_config="a\"b"
        backend_config='x'
        backend_config=abc
        backend_config={
        statistics={visualizing_index=0,a=1.5,b=2}
        statistics={}
        statistics={visualizing_index=1}
        statistics={visualizing_index=1,stat-1=33,stat-2=44}
        statistics={visualizing_index=1.5}
        origin={{"a"}}
        origin={({"a"}, {"b" {1}})}
        origin={[synthetic_call]}
        origin={{}}
        origin={({"v1"}, ({"v2"}, {"v3"}))}
        origin={"a"}
        parameter_replication=true
        parameter_replication={maybe}
        control-predecessors={p}
        control-predecessors={%p}
        control-predecessors={p, p}
        control-predecessors={q}
        bogus=1
        dimensions={0}
        sharding={replicated}, sharding={replicated}
        /*c*/ metadata={op_name="x"}
        metadata={source_line=2147483647}
        metadata={source_line=2147483648}
        metadata""",
    ),
)

HEADERS = r"""is_scheduled=true
    is_scheduled=1
    replica_count=2
    num_partitions=4
    replica_count=-1
    input_output_alias={ {}: (0, {}, may-alias) }
    input_output_alias={ {}: (0, {}) }
    input_output_alias={ {}: (0, {}, must-alias) }
    input_output_alias={}
    input_output_alias={ {}: (0, {}, foo) }
    buffer_donor={ (0, {}) }
    buffer_donor={}
    alias_passthrough_params=true
    allow_spmd_sharding_propagation_to_parameters={true}
    allow_spmd_sharding_propagation_to_output={false,true}
    allow_spmd_sharding_propagation_to_output=true
    frontend_attributes={a="b",c={"d":1}}
    entry_computation_layout={(f32[4]{0})->f32[4]{0}}
    entry_computation_layout={f32[4]->f32[4]}
    origin_recovery_table={}
    replica_count=99999999999999999999
    bogus=1"""

_TABLES = """FileNames 1 "a.py" FunctionNames 1 "f" FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=1} StackFrames #"""

TEXTS = (
    "ENTRY e { ROOT p = f32[] parameter(0) }",
    "e { ROOT p = f32[] parameter(0) }",
    "e (p: f32[]) -> f32[] { ROOT p = f32[] parameter(0) }",
    "ENTRY e (p: f32[]) -> f32[] { ROOT p = f32[] parameter(0) }",
    "ENTRY %e (p: f32[], q: f32[]) -> f32[] { ROOT p = f32[] parameter(0) }",
    "ENTRY %e (p f32[]) -> f32[] { ROOT p = f32[] parameter(0) }",
    "ENTRY %e () -> f32[2] { ROOT p = f32[] parameter(0) }",
    "HloModule m\n",
    "HloModule\n",
    "",
    "HloModule m ENTRY e { p = f32[] parameter(0) }",
    "HloModule m e { p = f32[] parameter(0) } f { p = f32[] parameter(0) }",
    "HloModule m ENTRY e { p = f32[] parameter(0) } ENTRY f { p = f32[] parameter(0) }",
    "HloModule m e { p = f32[] parameter(0) } e { p = f32[] parameter(0) }",
    "HloModule m ENTRY e { }",
    "HloModule m ENTRY e { p = f32[] parameter(0) p = f32[] parameter(1) }",
    "HloModule m ENTRY e { ROOT p = f32[] parameter(0) ROOT q = f32[] parameter(1) }",
    "HloModule m ENTRY e { ROOT p = f32[] parameter(0) q = f32[] abs(p) }",
    "HloModule m ENTRY e { q = f32[] abs(p) p = f32[] parameter(0) }",
    "HloModule m ENTRY e { b = f32[] parameter(1) a = f32[] parameter(0) ROOT c = f32[] add(a,b) }",
    "HloModule m ENTRY e { %a.b-c_1 = f32[] parameter(0) }",
    "HloModule m ENTRY e { 1a = f32[] parameter(0) }",
    "HloModule m ENTRY e { a: = f32[] parameter(0) }",
    "HloModule m.1-x_ ENTRY e { a = f32[] parameter(0) }",
    "HloModule %m ENTRY e { a = f32[] parameter(0) }",
    "HloModule m // c\nENTRY /* x */ e { /*y*/ a /*z*/ = f32[] parameter(0) // end\n}",
    "HloModule m /* unterminated\nENTRY e { a = f32[] parameter(0) }",
    "HloModule m ENTRY e { a = f32[] parameter(-1) }",
    "HloModule m ENTRY e { a = f32[] parameter() }",
    'HloModule m ENTRY e { a = f32[] parameter(0) }, execution_thread="x"',
    'HloModule m ENTRY e { a = f32[] parameter(0) }, foo="x"',
    "HloModule m ENTRY e { a = f32[] parameter(0) } trailing",
    "HloModule m ENTRY e { a = f32[] parameter(0)",
    "HloModule m\r\nENTRY e {\r\n a = f32[] parameter(0)\r\n}",
    "HloModule m ENTRY e {\n\ta\t=\tf32[]\tparameter(0)\n}",
    "HloModule m\x0b\nENTRY e { a = f32[] parameter(0) }",
    "HloModule m ENTRY e { a = f32[] parameter(0) }\x00",
    "foo = f32[10] add(f32[10], f32[10] x)",
    "f32[10] add(f32[10], f32[10] x)",
    "ROOT foo = f32[10] add(f32[10] y, f32[10] x)",
    "%f = f32[9]{0} fusion(f32[9]{0} %x), kind=kLoop, calls={ p = f32[9] parameter(0) ROOT q = f32[9] abs(p) }",
    "f32[10] add(x, y)",
    "foo = f32[10] add(f32[10] x, x)",
    "foo = add(f32[10] x, f32[10])",
    "f32[] constant(1)",
    "(f32[],f32[]) tuple(f32[], f32[])",
    "x = f32[2] abs(negate(f32[2] y))",
    "x = f32[2] abs(f32[2] y) z = f32[2] abs(f32[2] y)",
    "hello",
    "hello world = 3",
    *(
        f"HloModule m {_TABLES.replace('#', frame)} ENTRY e {{ a = f32[] constant(1) }}"
        for frame in ("1 {file_location_id=1 parent_frame_id=1}", "1 {file_location_id=1}", "1 {bogus=1}")
    ),
    "HloModule m FileNames FunctionNames FileLocations StackFrames ENTRY e { a = f32[] constant(1) }",
    'HloModule m FileNames 1 "a" ENTRY e { a = f32[] constant(1) }',
)


def texts() -> Iterator[str]:
    """Every text."""
    for template, lines in (*BODIES, *INSTRUCTIONS):
        for line in lines.replace("// d\n        }", "// d\v}").split("\n"):
            body = template.replace("#", line.strip().replace("\v", "\n"), 1)
            yield f"HloModule m\n{CALLEES}\nENTRY e {{\n{body}\n}}\n"
    for line in HEADERS.split("\n"):
        yield f"HloModule m, {line.strip()}\nENTRY e {{ ROOT p = f32[4]{{0}} parameter(0) }}\n"
    yield from TEXTS
