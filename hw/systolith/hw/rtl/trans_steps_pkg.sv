// Pieces that the transcendental sequences are made of, f32 in and out: each operation is rounded by itself, none fused.
// The order of operations is that of isa/numerics/sequences.py.
//
// Functions that are heavy to evaluate are called under `if`, not in `?:`, so that a simulator runs only those called.
package trans_steps_pkg;

  import f32_pkg::add, f32_pkg::lt, f32_pkg::mul, f32_pkg::sub;
  import trans_constants_pkg::poly_t, trans_constants_pkg::MaxTerms;

  parameter logic [31:0] CanonicalNan = 32'h7FC0_0000;
  parameter logic [31:0] Infinity = 32'h7F80_0000;
  parameter logic [31:0] Zero = 32'h0000_0000;
  parameter logic [31:0] Half = 32'h3F00_0000;
  parameter logic [31:0] One = 32'h3F80_0000;
  parameter logic [31:0] Two = 32'h4000_0000;
  parameter logic [31:0] TwoTo24 = 32'h4B80_0000;
  parameter logic [31:0] TwoToMinus24 = 32'h3380_0000;
  parameter logic [31:0] TwoToMinus26 = 32'h3280_0000;
  parameter logic [31:0] LeastNormal = 32'h0080_0000;  // 2^-126

  // A value in two parts: rounded, and the rounding error.
  typedef struct packed {
    logic [31:0] high;
    logic [31:0] low;
  } pair_t;

  // significand * 2^exponent.
  typedef struct packed {
    logic signed [31:0] exponent;
    logic [31:0]        significand;
  } parts_t;

  function automatic logic [31:0] negated(logic [31:0] x);
    return {!x[31], x[30:0]};
  endfunction

  function automatic logic [31:0] magnitude(logic [31:0] x);
    return x & 32'h7FFF_FFFF;
  endfunction

  function automatic logic [31:0] with_sign(logic [31:0] x, logic sign);
    return magnitude(x) | {sign, 31'd0};
  endfunction

  function automatic logic [31:0] flip_if(logic [31:0] x, logic condition);
    return {x[31] ^ condition, x[30:0]};
  endfunction

  // The larger and the smaller of two; a NaN in x gives way to the limit.
  function automatic logic [31:0] at_least(logic [31:0] x, logic [31:0] limit);
    return lt(limit, x) ? x : limit;
  endfunction

  function automatic logic [31:0] at_most(logic [31:0] x, logic [31:0] limit);
    return lt(x, limit) ? x : limit;
  endfunction

  // Of an x that is a number, by Horner's rule.
  function automatic logic [31:0] horner(logic [31:0] x, poly_t poly);
    /* verilator no_inline_task */
    logic [31:0] total;
    total = Zero;
    for (int i = int'(MaxTerms) - 1; i >= 0; i--) begin
      if (i == int'(poly.terms) - 1) begin
        total = poly.c[i];
      end else if (i < int'(poly.terms)) begin
        total = mul(total, x);
        total = add(total, poly.c[i]);
      end
    end
    return total;
  endfunction

  // 2^n, for -126 <= n <= 127.
  function automatic logic [31:0] power_of_two(logic signed [31:0] n);
    return (n + 32'd127) << 23;
  endfunction

  // x * 2^n for |n| up to 252, in two multiplications of which the first is exact for 0.5 <= x < 4.
  function automatic logic [31:0] scale(logic [31:0] x, logic signed [31:0] n);
    logic signed [31:0] half;
    half = n >>> 1;
    return mul(mul(x, power_of_two(half)), power_of_two(n - half));
  endfunction

  // The top 12 bits of the significand, and the rest: their products are exact.
  function automatic pair_t split(logic [31:0] x);
    pair_t y;
    y.high = {x[31:12], 12'd0};
    y.low  = sub(x, y.high);
    return y;
  endfunction

  // a + b, and the error, exactly.
  function automatic pair_t two_sum(logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    logic [31:0] total, back;
    total = add(a, b);
    back  = sub(total, a);
    return '{high: total, low: add(sub(a, sub(total, back)), sub(b, back))};
  endfunction

  // a * b, and the error, exactly (barring underflow and overflow).
  function automatic pair_t two_product(logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    logic [31:0] product, error;
    pair_t       p, q;
    p       = split(a);
    q       = split(b);
    product = mul(a, b);
    error   = sub(mul(p.high, q.high), product);
    error   = add(error, mul(p.high, q.low));
    error   = add(error, mul(p.low, q.high));
    error   = add(error, mul(p.low, q.low));
    return '{high: product, low: error};
  endfunction

  // Positive x as m * 2^e with m in [s, 2 s); `below` is the image of s.
  function automatic parts_t parts(logic [31:0] x, logic [31:0] below);
    /* verilator no_inline_task */
    logic               tiny;
    logic signed [31:0] bits;
    parts_t             y;
    tiny = lt(x, LeastNormal);
    bits = x - below;
    if (tiny) bits = mul(x, TwoTo24) - below;
    y.exponent    = bits >>> 23;
    y.significand = {9'd0, bits[22:0]} + below;
    if (tiny) y.exponent -= 32'sd24;
    return y;
  endfunction

endpackage
