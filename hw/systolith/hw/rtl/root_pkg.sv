// rsqrt and cbrt: the sequences of isa/numerics/roots.py, where their errors are stated.
package root_pkg;

  import f32_pkg::add, f32_pkg::div, f32_pkg::is_nan, f32_pkg::lt, f32_pkg::mul, f32_pkg::sqrt, f32_pkg::sub;
  import trans_steps_pkg::*;
  import trans_constants_pkg::RootCbrtMagic;

  localparam logic [31:0] Third = 32'h3EAA_AAAB;  // 1/3
  localparam logic [31:0] TwoTo8 = 32'h4380_0000;
  localparam logic [31:0] TwoToMinus8 = 32'h3B80_0000;

  function automatic logic [31:0] rsqrt(logic [31:0] x);
    /* verilator no_inline_task */
    return div(One, sqrt(x));
  endfunction

  // The root of m from an estimate t, by Halley's method: the error is cubed.
  function automatic logic [31:0] improved(logic [31:0] t, logic [31:0] m);
    /* verilator no_inline_task */
    logic [31:0] cube;
    cube = mul(mul(t, t), t);
    return mul(t, div(add(add(cube, m), m), add(add(cube, cube), m)));
  endfunction

  function automatic logic [31:0] cbrt(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] size, m, t;
    logic        is_small;
    size  = magnitude(x);
    is_small = lt(size, One);
    if (is_nan(x)) return CanonicalNan;
    if (size == Zero || size == Infinity) return x;
    m = mul(size, is_small ? TwoTo24 : TwoToMinus24);
    t = m / 32'd3 + RootCbrtMagic;
    t = improved(t, m);
    t = improved(t, m);
    t = sub(t, mul(sub(t, div(m, mul(t, t))), Third));
    t = mul(t, is_small ? TwoToMinus8 : TwoTo8);
    return with_sign(t, x[31]);
  endfunction

endpackage
