// exp, expm1, tanh, logistic and erf: the sequences of isa/numerics/exponential.py, where their errors are stated.
package exponential_pkg;

  import f32_pkg::add, f32_pkg::div, f32_pkg::is_nan, f32_pkg::lt, f32_pkg::mul, f32_pkg::rne, f32_pkg::sub,
    f32_pkg::to_s32;
  import trans_steps_pkg::*;
  import trans_constants_pkg::*;

  // Of x = n ln 2 + r: n, and e^r - 1.
  typedef struct packed {
    logic signed [31:0] n;
    logic [31:0]        growth;
  } reduced_t;

  // -104 and 89: beyond them e^x is 0 or infinite.
  localparam logic [31:0] Least = 32'hC2D0_0000;
  localparam logic [31:0] Most = 32'h42B2_0000;
  localparam logic [31:0] Ten = 32'h4120_0000;
  localparam logic [31:0] TanhNear = 32'h3F20_0000;  // 0.625
  localparam logic [31:0] Four = 32'h4080_0000;
  localparam logic [31:0] ErfNear = 32'h3F66_6666;  // 0.9

  function automatic reduced_t reduced(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] limited, whole, high, low, r, lost, curve;
    reduced_t    y;
    limited  = at_most(at_least(x, Least), Most);
    whole    = rne(mul(limited, ExpLog2e));
    high     = sub(limited, mul(whole, ExpLn2High));
    low      = mul(whole, ExpLn2Low);
    y.n      = to_s32(whole);
    r        = sub(high, low);
    lost     = sub(sub(high, r), low);
    curve    = mul(mul(r, r), horner(r, ExpExp));
    y.growth = add(r, add(curve, lost));
    return y;
  endfunction

  // e^x of an x that is a number.
  function automatic logic [31:0] raised(logic [31:0] x);
    /* verilator no_inline_task */
    reduced_t p;
    p = reduced(x);
    return scale(add(One, p.growth), p.n);
  endfunction

  function automatic logic [31:0] exp(logic [31:0] x);
    /* verilator no_inline_task */
    if (is_nan(x)) return CanonicalNan;
    return raised(x);
  endfunction

  function automatic logic [31:0] expm1(logic [31:0] x);
    /* verilator no_inline_task */
    reduced_t           p;
    logic signed [31:0] limited;
    logic [31:0]        power, y;
    if (is_nan(x)) return CanonicalNan;
    p = reduced(x);
    if (p.n == 32'sd0) begin  // r is x
      y = lt(magnitude(x), TwoToMinus26) ? x : p.growth;
    end else if (p.n > 32'sd24) begin
      y = scale(add(One, p.growth), p.n);
    end else begin
      limited = (p.n < -32'sd30) ? -32'sd30 : p.n;
      power   = power_of_two(limited);
      y       = add(sub(power, One), mul(power, p.growth));
    end
    return y;
  endfunction

  function automatic logic [31:0] tanh(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] size, square, y;
    if (is_nan(x)) return CanonicalNan;
    size = magnitude(x);
    if (lt(size, TanhNear)) begin
      square = mul(size, size);
      y      = add(size, mul(size, mul(square, horner(square, ExpTanh))));
    end else begin
      y = add(raised(mul(at_most(size, Ten), Two)), One);
      y = sub(One, div(Two, y));
    end
    return with_sign(y, x[31]);
  endfunction

  function automatic logic [31:0] logistic(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] power, total, lost, y;
    if (is_nan(x)) return CanonicalNan;
    power = raised({1'b1, x[30:0]});
    total = add(One, power);
    lost  = sub(power, sub(total, One));
    y     = div(lt(x, Zero) ? power : One, total);
    return sub(y, mul(y, div(lost, total)));
  endfunction

  function automatic logic [31:0] erf(logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] size, y;
    if (is_nan(x)) return CanonicalNan;
    size = at_most(magnitude(x), Four);
    if (lt(size, ErfNear)) begin
      y = add(size, mul(size, horner(mul(size, size), ExpErfNear)));
    end else begin
      y = sub(One, raised(negated(horner(size, ExpErfcLog))));
    end
    return with_sign(y, x[31]);
  endfunction

endpackage
