// sin, cos, tan and atan2: the sequences of isa/numerics/trigonometric.py, where their errors are stated.
//
// Arguments from pi/4 up are reduced exactly (Payne and Hanek): the 24-bit significand times the 96 bits of 2/pi that matter
// for its exponent gives the quadrant and 62 bits of the fraction.
package trigonometric_pkg;

  import f32_pkg::add, f32_pkg::div, f32_pkg::from_s32, f32_pkg::is_nan, f32_pkg::lt, f32_pkg::mul,
    f32_pkg::sub;
  import trans_steps_pkg::*;
  import trans_constants_pkg::*;

  // x = quadrant * pi/2 + rest, the quadrant modulo 4.
  typedef struct packed {
    logic [1:0]  quadrant;
    logic [31:0] rest;
  } angle_t;

  localparam logic [7:0] LeastExponent = 8'd126;  // biased, of pi/4: the first window of 2/pi is for it
  localparam logic [7:0] FirstWindow = 8'd170;  // its last bit
  localparam logic [31:0] QuarterPiLow = 32'hB2BB_BD2E;  // -2.1855694e-08
  localparam logic [31:0] HalfPiLow = 32'hB33B_BD2E;  // -4.371139e-08

  // The fraction, 2^-62 quadrants, in radians: 36 significant bits times pi/2.
  function automatic logic [31:0] radians(logic signed [63:0] fraction);
    /* verilator no_inline_task */
    logic [63:0] size, normal;
    logic [5:0]  zeros;
    logic [31:0] high, rest, angle;
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
    angle = add(mul(high, TrigHalfPiTop), add(mul(high, TrigHalfPiRest), mul(rest, TrigHalfPi)));
    // high + rest is size * 2^(zeros - 52), without the bits below 36.
    angle = mul(angle, power_of_two(-32'sd10 - $signed({26'd0, zeros})));
    return with_sign(angle, fraction < 64'sd0);
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
    if (lt(x, TrigQuarterPi)) return '{quadrant: 2'd0, rest: x};
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

  function automatic logic [31:0] sin(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t      a;
    logic [31:0] y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    if (a.quadrant[0]) y = cosine(a.rest);
    else y = sine(a.rest);
    return flip_if(y, a.quadrant[1] ^ x[31]);
  endfunction

  function automatic logic [31:0] cos(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t      a;
    logic [31:0] y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    if (a.quadrant[0]) y = sine(a.rest);
    else y = cosine(a.rest);
    return flip_if(y, a.quadrant[1] ^ a.quadrant[0]);
  endfunction

  function automatic logic [31:0] tan(logic [31:0] x);
    /* verilator no_inline_task */
    angle_t      a;
    logic [31:0] s, c, y;
    if (x[30:0] >= Infinity[30:0]) return CanonicalNan;
    a = reduce(magnitude(x));
    s = sine(a.rest);
    c = cosine(a.rest);
    y = div(a.quadrant[0] ? c : s, a.quadrant[0] ? s : c);
    return flip_if(y, a.quadrant[0] ^ x[31]);
  endfunction

  // lesser / greater, 1 of two infinities and 0 of two zeros.
  function automatic logic [31:0] ratio(logic [31:0] lesser, logic [31:0] greater);
    if (greater == Zero) return Zero;
    if (lesser == Infinity) return One;
    return div(lesser, greater);
  endfunction

  function automatic logic [31:0] atan2(logic [31:0] y, logic [31:0] x);
    /* verilator no_inline_task */
    logic [31:0] wide, tall, t, s, square, arc, base, low, angle;
    logic        is_steep, is_shifted;
    if (is_nan(x) || is_nan(y)) return CanonicalNan;
    wide       = magnitude(x);
    tall       = magnitude(y);
    is_steep   = tall > wide;
    t          = ratio(is_steep ? wide : tall, is_steep ? tall : wide);
    is_shifted = lt(TrigTanEighth, t);
    s          = t;
    if (is_shifted) s = div(sub(t, One), add(t, One));
    square = mul(s, s);
    arc    = mul(s, mul(square, horner(square, TrigAtan)));
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
    s     = flip_if(s, is_steep ^ x[31]);
    arc   = flip_if(arc, is_steep ^ x[31]);
    angle = add(base, add(s, add(arc, low)));
    return with_sign(angle, y[31]);
  endfunction

endpackage
