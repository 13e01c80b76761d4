// log, log1p and pow: the sequences of isa/numerics/logarithm.py, where their errors are stated.
package logarithm_pkg;

  import f32_pkg::add, f32_pkg::div, f32_pkg::eq, f32_pkg::from_s32, f32_pkg::is_nan, f32_pkg::le,
    f32_pkg::lt, f32_pkg::mul, f32_pkg::rne, f32_pkg::sub, f32_pkg::to_s32, f32_pkg::trunc;
  import trans_steps_pkg::*;
  import trans_constants_pkg::*;

  localparam logic [31:0] Largest = 32'h5000_0000;  // 2^33: a larger exponent of a power changes nothing
  localparam logic [31:0] Least = 32'hC320_0000;  // -160, as a power of two
  localparam logic [31:0] Most = 32'h430C_0000;  // 140

  // log(1 + f) + exponent * ln 2 + low, for f in sqrt(1/2) - 1 .. sqrt(2) - 1; `low` only where `has_low`.
  function automatic logic [31:0] log_parts(
    logic [31:0] f, logic signed [31:0] exponent, logic has_low, logic [31:0] low
  );
    /* verilator no_inline_task */
    logic [31:0] e, square, rest;
    e      = from_s32(exponent);
    square = mul(f, f);
    rest   = add(mul(mul(f, square), horner(f, LogLog)), mul(e, LogLn2Low));
    if (has_low) rest = add(rest, low);
    rest = sub(rest, mul(square, Half));
    return add(add(f, rest), mul(e, LogLn2High));
  endfunction

  // Whether u has no finite logarithm.
  function automatic logic is_special(logic [31:0] u);
    return u[31] || u[30:0] == '0 || u[30:0] >= Infinity[30:0];
  endfunction

  function automatic logic [31:0] log_special(logic [31:0] u);
    if (u[30:0] == '0) return {1'b1, Infinity[30:0]};
    return (u == Infinity) ? Infinity : CanonicalNan;
  endfunction

  function automatic logic [31:0] log(logic [31:0] x);
    /* verilator no_inline_task */
    parts_t p;
    if (is_special(x)) return log_special(x);
    p = parts(x, LogSqrtHalf);
    return log_parts(sub(p.significand, One), p.exponent, 1'b0, Zero);
  endfunction

  function automatic logic [31:0] log1p(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] u, lost, low, f;
    parts_t      p;
    u = add(One, x);
    if (is_special(u)) return log_special(u);
    if (lt(magnitude(x), TwoToMinus26)) return x;
    p   = parts(u, LogSqrtHalf);
    f   = x;
    low = Zero;
    if (p.exponent != 32'sd0) begin
      f = sub(p.significand, One);
      if (le(One, x)) lost = sub(One, sub(u, x));
      else lost = sub(x, sub(u, One));
      low = div(lost, u);
    end
    return log_parts(f, p.exponent, 1'b1, low);
  endfunction

  // log2 of positive finite x, good to 2^-31 of it.
  function automatic pair_t log2(logic [31:0] x);
    /* verilator no_inline_task */
    parts_t      p;
    pair_t       m, z, linear, total;
    logic [6:0]  index;
    logic [31:0] r, error, correction, curve, result;
    p      = parts(x, LogSeam);
    index  = p.significand[22:16];
    r      = LogReciprocal[index];
    m      = split(p.significand);
    z      = two_sum(sub(mul(m.high, r), One), mul(m.low, r));
    linear = two_product(z.high, LogLog2eHigh);

    correction = add(linear.low, add(mul(z.high, LogLog2eLow), mul(z.low, LogLog2eHigh)));
    total      = two_sum(add(from_s32(p.exponent), LogTableHigh[index]), linear.high);
    curve      = mul(mul(z.high, z.high), horner(z.high, LogLog2));
    error      = add(total.low, add(add(correction, LogTableLow[index]), curve));
    result     = add(total.high, error);
    return '{high: result, low: sub(error, sub(result, total.high))};
  endfunction

  // x^y of positive finite x and finite y.
  function automatic logic [31:0] pow_positive(logic [31:0] x, logic [31:0] y);
    /* verilator no_inline_task */
    pair_t       logarithm, product;
    logic [31:0] power, error, limited, whole, rest;
    logarithm = log2(x);
    power     = at_most(at_least(y, negated(Largest)), Largest);
    product   = two_product(power, logarithm.high);
    error     = Zero;
    if (lt(magnitude(product.high), Most)) error = add(product.low, mul(power, logarithm.low));
    limited = at_most(at_least(product.high, Least), Most);
    whole   = rne(limited);
    rest    = add(sub(limited, whole), error);
    return scale(add(One, mul(rest, horner(rest, LogExp2))), to_s32(whole));
  endfunction

  function automatic logic is_whole(logic [31:0] x);
    return eq(trunc(x), x);
  endfunction

  function automatic logic [31:0] pow(logic [31:0] x, logic [31:0] y);
    /* verilator no_inline_task */
    logic [31:0] size, result;
    logic        finite_x, is_odd;
    size     = magnitude(x);
    finite_x = size < Infinity;
    if (x == One || magnitude(y) == Zero) return One;
    if (is_nan(x) || is_nan(y)) return CanonicalNan;
    if (x[31] && size != Zero && finite_x && !is_whole(y)) return CanonicalNan;
    if (size == One) begin
      result = One;
    end else if (size == Zero || !finite_x || magnitude(y) == Infinity) begin
      result = (size > One) == !y[31] ? Infinity : Zero;
    end else begin
      result = pow_positive(size, y);
    end
    is_odd = is_whole(y) && !is_whole(mul(y, Half));
    return flip_if(result, x[31] && is_odd);
  endfunction

endpackage
