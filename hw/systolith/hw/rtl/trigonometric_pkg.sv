// sin, cos, tan and atan2: the sequences of isa/numerics/trigonometric.py, where their errors are stated.
//
// Arguments from pi/4 up are reduced exactly (Payne and Hanek): the 24-bit significand times the 96 bits of 2/pi that matter
// for its exponent gives the quadrant and 62 bits of the fraction.
package trigonometric_pkg;

  import f32_pkg::add, f32_pkg::div, f32_pkg::from_s32, f32_pkg::is_nan, f32_pkg::lt, f32_pkg::mul,
    f32_pkg::sub;
  import trans_steps_pkg::*;
  import trans_constants_pkg::*;

  // x = quadrant * pi/2 + rest, the quadrant modulo 4; the low part of the rest is what its rounding has left.
  typedef struct packed {
    logic [1:0] quadrant;
    pair_t      rest;
  } angle_t;

  localparam logic [7:0] LeastExponent = 8'd126;  // biased, of pi/4: the first window of 2/pi is for it
  localparam logic [7:0] FirstWindow = 8'd170;  // its last bit
  localparam logic [31:0] QuarterPiLow = 32'hB2BB_BD2E;  // -2.1855694e-08
  localparam logic [31:0] HalfPiLow = 32'hB33B_BD2E;  // -4.371139e-08

  // a + b, and what its rounding has left; |a| >= |b|.
  function automatic pair_t sum_of(logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    logic [31:0] total;
    total = add(a, b);
    return '{high: total, low: sub(b, sub(total, a))};
  endfunction

  // a / b, and what its rounding has left.
  function automatic pair_t quotient(pair_t a, pair_t b);
    /* verilator no_inline_task */
    logic [31:0] y, left;
    pair_t       product;
    y       = div(a.high, b.high);
    product = two_product(y, b.high);
    left    = add(sub(sub(a.high, product.high), product.low), a.low);
    left    = sub(left, mul(y, b.low));
    return '{high: y, low: div(left, b.high)};
  endfunction

  // The fraction, 2^-62 quadrants, in radians: 36 significant bits times pi/2.
  function automatic pair_t radians(logic signed [63:0] fraction);
    /* verilator no_inline_task */
    logic [63:0] size, normal;
    logic [5:0]  zeros;
    logic [31:0] high, rest, unit;
    pair_t       angle;
    size   = (fraction < 64'sd0) ? -fraction : fraction;
    normal = size;
    zeros  = '0;
    for (int unsigned i = 0; i < 6; i++) begin
      if (normal >> (64 - (32 >> i)) == '0) begin
        zeros |= 6'(32 >> i);
        normal <<= 32 >> i;
      end
    end
    high  = from_s32({20'd0, normal[63:52]});
    rest  = mul(from_s32({8'd0, normal[51:28]}), TwoToMinus24);
    angle = sum_of(mul(high, TrigHalfPiTop), add(mul(high, TrigHalfPiRest), mul(rest, TrigHalfPi)));
    // high + rest is size * 2^(zeros - 52), without the bits below 36.
    unit = flip_if(power_of_two(-32'sd10 - $signed({26'd0, zeros})), fraction < 64'sd0);
    return '{high: mul(angle.high, unit), low: mul(angle.low, unit)};
  endfunction

  function automatic angle_t reduce_large(logic [31:0] x);
    /* verilator no_inline_task */
    logic [7:0]  index;
    logic [95:0] window;
    logic [63:0] m, middle, turn;
    logic [31:0] top;
    logic [1:0]  quadrant;
    index    = 8'(x >> 23) - LeastExponent;
    window   = TrigTwoOverPi[FirstWindow-index+:96];
    m        = {40'd0, 1'b1, x[22:0]};
    middle   = m * {32'd0, window[63:32]} + ((m * {32'd0, window[31:0]}) >> 32);
    top      = 32'(m * {32'd0, window[95:64]} + (middle >> 32));
    turn     = {top, middle[31:0]};  // two bits of quadrant, 62 of fraction
    quadrant = turn[63:62] + {1'b0, turn[61]};
    return '{quadrant: quadrant, rest: radians(turn - {quadrant, 62'd0})};
  endfunction

  // Of finite x >= 0; the rest is in -pi/4 .. pi/4.
  function automatic angle_t reduce(logic [31:0] x);
    /* verilator no_inline_task */
    if (lt(x, TrigQuarterPi)) return '{quadrant: 2'd0, rest: '{high: x, low: Zero}};
    return reduce_large(x);
  endfunction

  function automatic logic [31:0] sine(logic [31:0] r);
    /* verilator no_inline_task */
    logic [31:0] square;
    square = mul(r, r);
    return add(r, mul(r, mul(square, horner(square, TrigSin))));
  endfunction

  function automatic logic [31:0] cosine(logic [31:0] r);
    /* verilator no_inline_task */
    logic [31:0] square, curve;
    square = mul(r, r);
    curve  = mul(mul(square, square), horner(square, TrigCos));
    return add(One, sub(curve, mul(square, Half)));
  endfunction

  // Sine of x, and what its rounding has left.
  function automatic pair_t sine_parts(pair_t x);
    /* verilator no_inline_task */
    logic [31:0] square;
    square = mul(x.high, x.high);
    return sum_of(x.high, add(mul(x.high, mul(square, horner(square, TrigSin))), x.low));
  endfunction

  // Cosine likewise.
  function automatic pair_t cosine_parts(pair_t x);
    /* verilator no_inline_task */
    pair_t       square, top;
    logic [31:0] curve, below;
    square = two_product(x.high, x.high);
    curve  = mul(mul(square.high, square.high), horner(square.high, TrigCos));
    top    = sum_of(One, negated(mul(square.high, Half)));
    below  = add(mul(square.low, Half), mul(x.high, x.low));
    return sum_of(top.high, add(top.low, sub(curve, below)));
  endfunction

  function automatic logic [31:0] sin(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t      a;
    logic [31:0] y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    if (a.quadrant[0]) y = cosine(a.rest.high);
    else y = sine(a.rest.high);
    return flip_if(y, a.quadrant[1] ^ x[31]);
  endfunction

  function automatic logic [31:0] cos(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t      a;
    logic [31:0] y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    if (a.quadrant[0]) y = sine(a.rest.high);
    else y = cosine(a.rest.high);
    return flip_if(y, a.quadrant[1] ^ a.quadrant[0]);
  endfunction

  function automatic logic [31:0] tan(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t a;
    pair_t  s, c, y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    s = sine_parts(a.rest);
    c = cosine_parts(a.rest);
    if (a.quadrant[0]) y = quotient(c, s);
    else y = quotient(s, c);
    return flip_if(add(y.high, y.low), a.quadrant[0] ^ x[31]);
  endfunction

  // lesser / greater, 1 of two infinities and 0 of two zeros.
  function automatic logic [31:0] ratio(logic [31:0] lesser, logic [31:0] greater);
    if (greater == Zero) return Zero;
    if (lesser == Infinity) return One;
    return div(lesser, greater);
  endfunction

  // (t - 1) / (t + 1) of t = lesser / greater, which is above 0.4, and what its rounding has left.
  function automatic pair_t less_one(logic [31:0] lesser, logic [31:0] greater);
    /* verilator no_inline_task */
    logic [31:0] unit, small_part, large_part;
    if (lesser == Infinity) return quotient(two_sum(One, negated(One)), two_sum(One, One));
    unit = One;
    if (lt(power_of_two(32'sd60), greater)) unit = power_of_two(-32'sd64);
    else if (lt(greater, power_of_two(-32'sd60))) unit = power_of_two(32'sd64);
    small_part = mul(lesser, unit);
    large_part = mul(greater, unit);
    return quotient(two_sum(small_part, negated(large_part)), two_sum(small_part, large_part));
  endfunction

  function automatic logic [31:0] atan2(logic [31:0] y, logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] wide, tall, lesser, greater, square, arc, base, low, angle;
    pair_t       s;
    logic        is_steep, is_shifted;
    if (is_nan(x) || is_nan(y)) return CanonicalNan;
    wide       = magnitude(x);
    tall       = magnitude(y);
    is_steep   = tall > wide;
    lesser     = is_steep ? wide : tall;
    greater    = is_steep ? tall : wide;
    s          = '{high: ratio(lesser, greater), low: Zero};
    is_shifted = lt(TrigTanEighth, s.high);
    if (is_shifted) s = less_one(lesser, greater);
    square = mul(s.high, s.high);
    arc    = add(mul(s.high, mul(square, horner(square, TrigAtan))), s.low);
    base   = is_shifted ? TrigQuarterPi : Zero;
    low    = is_shifted ? QuarterPiLow : Zero;
    // pi/2 - arc, then pi - arc: each as the far end minus the rest, the ends in two parts.
    if (is_steep) begin
      base = add(negated(base), TrigHalfPi);
      low  = add(negated(low), HalfPiLow);
    end
    if (x[31]) begin
      base = add(negated(base), TrigPiHigh);
      low  = add(negated(low), TrigPiLow);
    end
    arc   = flip_if(arc, is_steep ^ x[31]);
    angle = add(base, add(flip_if(s.high, is_steep ^ x[31]), add(arc, low)));
    return with_sign(angle, y[31]);
  endfunction

endpackage
