// IEEE 754 arithmetic in binary formats.  A package that defines ExpBits and ManBits includes this file, and has the
// arithmetic in that format.  Rounding is to nearest, ties to even; subnormals are kept; a NaN that is computed is Nan,
// whatever NaNs the operands were.

  localparam int unsigned Bits = 1 + ExpBits + ManBits;
  localparam int unsigned SigBits = ManBits + 1;   // with the hidden one
  localparam int unsigned WideBits = SigBits + 3;  // with guard, round and sticky bits
  localparam int unsigned ZerosBits = $clog2(WideBits + 1);
  localparam logic [ExpBits-1:0] TopExp = '1;  // of infinities and NaNs
  localparam logic [ExpBits-1:0] Bias = TopExp >> 1;
  localparam logic [Bits-2:0] Infinity = {TopExp, ManBits'(0)};
  localparam logic [Bits-1:0] Nan = {1'b0, TopExp, 1'b1, (ManBits - 1)'(0)};
  // Steps of the remainder: from the largest exponent to that of the least subnormal.
  localparam int unsigned RemainderSteps = (1 << ExpBits) + ManBits - 2;

  typedef logic [Bits-1:0] float_t;
  typedef logic [SigBits-1:0] sig_t;
  typedef logic [WideBits-1:0] wide_t;
  typedef logic signed [ExpBits+1:0] exp_t;  // biased; also of products and quotients, before rounding

  // A finite number other than zero, with the first one of its significand at the top.
  typedef struct packed {
    exp_t exp;
    sig_t sig;
  } normal_t;

  function automatic logic is_nan(float_t x);
    is_nan = x << 1 > {Infinity, 1'b0};
  endfunction

  function automatic logic is_inf(float_t x);
    is_inf = x << 1 == {Infinity, 1'b0};
  endfunction

  function automatic logic is_zero(float_t x);
    is_zero = x << 1 == '0;
  endfunction

  // Exponent and significand as they stand: 2^(exp - Bias - ManBits) * sig.
  function automatic normal_t unpack(float_t x);
    logic is_normal;
    is_normal = x[Bits-2:ManBits] != '0;
    unpack.exp = exp_t'({2'b0, x[Bits-2:ManBits+1], x[ManBits] | ~is_normal});
    unpack.sig = {is_normal, x[ManBits-1:0]};
  endfunction

  function automatic logic [ZerosBits-1:0] leading_zeros(wide_t x);
    wide_t rest;
    rest = x;
    leading_zeros = '0;
    for (int unsigned i = ZerosBits; i > 0; i--) begin
      if (rest >> (WideBits - (1 << (i - 1))) == '0) begin
        leading_zeros += ZerosBits'(1 << (i - 1));
        rest <<= 1 << (i - 1);
      end
    end
  endfunction

  function automatic normal_t normalised(float_t x);
    /* verilator no_inline_task */
    logic [ZerosBits-1:0] zeros;
    normalised = unpack(x);
    if (!normalised.sig[SigBits-1]) begin
      zeros = leading_zeros({normalised.sig, 3'b0});
      normalised.exp -= exp_t'(zeros);
      normalised.sig <<= zeros;
    end
  endfunction

  // Shift right; the bits that fall out are ORed into the last one.
  function automatic wide_t shift_right(wide_t x, logic [ExpBits+1:0] distance);
    if (distance >= (ExpBits + 2)'(WideBits)) begin
      shift_right = wide_t'(x != '0);
    end else begin
      shift_right = x >> distance;
      if (shift_right << distance != x) shift_right[0] = 1'b1;
    end
  endfunction

  // The number nearest to that with biased exponent exp and significand sig, whose first one is at the top.
  function automatic float_t rounded(logic sign, exp_t exp, wide_t sig);
    /* verilator no_inline_task */
    logic  up;
    exp_t  below_one;  // exponent, less the one that the first one of the significand adds
    wide_t aligned;
    below_one = exp - exp_t'(1);
    aligned = sig;
    if (below_one < 0) begin  // subnormal
      aligned = shift_right(sig, -below_one);
      below_one = '0;
    end
    up = aligned[2] && (aligned[3] || aligned[1:0] != '0);
    // Carries go from the fraction into the exponent, also from the largest subnormal and to infinity.
    if (exp >= $signed({2'b0, TopExp})) rounded = {sign, Infinity};
    else rounded = {sign, {below_one[ExpBits-1:0], ManBits'(0)} + (Bits - 1)'(aligned[WideBits-1:3]) + (Bits - 1)'(up)};
  endfunction

  // The same, the first one anywhere.
  function automatic float_t renormalised(logic sign, exp_t exp, wide_t sig);
    logic [ZerosBits-1:0] zeros;
    zeros = '0;
    if (!sig[WideBits-1]) zeros = leading_zeros(sig);
    renormalised = rounded(sign, exp - exp_t'(zeros), sig << zeros);
  endfunction

  function automatic float_t add(float_t a, float_t b);
    /* verilator no_inline_task */
    float_t              larger, smaller;
    logic                subtract;
    normal_t             x, y;
    wide_t               addend;
    logic [WideBits:0]   total;
    {larger, smaller} = (a[Bits-2:0] >= b[Bits-2:0]) ? {a, b} : {b, a};
    subtract = a[Bits-1] ^ b[Bits-1];
    if (larger[Bits-2:ManBits] == TopExp) begin
      return (is_nan(larger) || (is_inf(smaller) && subtract)) ? Nan : larger;
    end
    x = unpack(larger);
    y = unpack(smaller);
    addend = shift_right({y.sig, 3'b0}, x.exp - y.exp);
    if (subtract) total = {1'b0, x.sig, 3'b0} - {1'b0, addend};
    else total = {1'b0, x.sig, 3'b0} + {1'b0, addend};
    if (total == '0) return {larger[Bits-1] && !subtract, (Bits - 1)'(0)};
    if (total[WideBits]) add = rounded(larger[Bits-1], x.exp + exp_t'(1), {total[WideBits:2], |total[1:0]});
    else add = renormalised(larger[Bits-1], x.exp, total[WideBits-1:0]);
  endfunction

  function automatic float_t sub(float_t a, float_t b);
    sub = add(a, {~b[Bits-1], b[Bits-2:0]});
  endfunction

  function automatic float_t mul(float_t a, float_t b);
    /* verilator no_inline_task */
    logic                 sign;
    normal_t              x, y;
    logic [2*SigBits-1:0] product;
    exp_t                 exp;
    sign = a[Bits-1] ^ b[Bits-1];
    if (is_nan(a) || is_nan(b)) return Nan;
    if (is_inf(a) || is_inf(b)) return (is_zero(a) || is_zero(b)) ? Nan : {sign, Infinity};
    if (is_zero(a) || is_zero(b)) return {sign, (Bits - 1)'(0)};
    x = normalised(a);
    y = normalised(b);
    product = (2 * SigBits)'(x.sig) * (2 * SigBits)'(y.sig);
    exp = x.exp + y.exp - $signed({2'b0, Bias});
    if (product[2*SigBits-1]) exp += exp_t'(1);
    else product <<= 1;
    mul = rounded(sign, exp, {product[2*SigBits-1-:WideBits-1], |product[2*SigBits-WideBits:0]});
  endfunction

  // A bit of the quotient a step.
  function automatic float_t div(float_t a, float_t b);
    /* verilator no_inline_task */
    logic                sign, less;
    normal_t             x, y;
    logic [SigBits:0]    rest;
    logic [WideBits-2:0] quotient;
    sign = a[Bits-1] ^ b[Bits-1];
    if (is_nan(a) || is_nan(b) || (is_inf(a) && is_inf(b)) || (is_zero(a) && is_zero(b))) return Nan;
    if (is_inf(a) || is_zero(b)) return {sign, Infinity};
    if (is_zero(a) || is_inf(b)) return {sign, (Bits - 1)'(0)};
    x = normalised(a);
    y = normalised(b);
    less = x.sig < y.sig;
    rest = less ? {x.sig, 1'b0} : {1'b0, x.sig};
    quotient = '0;
    for (int unsigned i = 0; i < WideBits - 1; i++) begin
      quotient <<= 1;
      if (rest >= {1'b0, y.sig}) begin
        rest -= {1'b0, y.sig};
        quotient[0] = 1'b1;
      end
      rest <<= 1;
    end
    div = rounded(sign, x.exp - y.exp + $signed({2'b0, Bias}) - exp_t'(less), {quotient, rest != '0});
  endfunction

  // A bit of the root a step: `rest` is the remainder of the radicand beyond the square of the root so far.
  function automatic float_t sqrt(float_t a);
    /* verilator no_inline_task */
    normal_t               x;
    logic                  odd;
    logic [2*WideBits-3:0] radicand;
    logic [WideBits:0]     rest, trial;
    logic [WideBits-2:0]   root;
    exp_t                  exp;
    if (is_zero(a)) return a;
    if (is_nan(a) || a[Bits-1]) return Nan;
    if (is_inf(a)) return a;
    x = normalised(a);
    exp = x.exp - $signed({2'b0, Bias});
    odd = exp[0];
    radicand = {odd ? {x.sig, 1'b0} : {1'b0, x.sig}, WideBits'(0)};
    rest = '0;
    root = '0;
    for (int unsigned i = 0; i < WideBits - 1; i++) begin
      rest = {rest[WideBits-2:0], radicand[2*WideBits-3-:2]};
      radicand <<= 2;
      trial = {root, 2'b01};
      root <<= 1;
      if (rest >= trial) begin
        rest -= trial;
        root[0] = 1'b1;
      end
    end
    sqrt = rounded(1'b0, (exp >>> 1) + $signed({2'b0, Bias}), {root, rest != '0});
  endfunction

  // The order of the reals, with -0 below +0; not for NaNs.
  function automatic logic below(float_t a, float_t b);
    if (a[Bits-1] != b[Bits-1]) below = a[Bits-1];
    else below = a[Bits-1] ? a[Bits-2:0] > b[Bits-2:0] : a[Bits-2:0] < b[Bits-2:0];
  endfunction

  function automatic logic eq(float_t a, float_t b);
    eq = !is_nan(a) && !is_nan(b) && (a == b || (is_zero(a) && is_zero(b)));
  endfunction

  function automatic logic lt(float_t a, float_t b);
    lt = !is_nan(a) && !is_nan(b) && below(a, b) && !(is_zero(a) && is_zero(b));
  endfunction

  function automatic logic le(float_t a, float_t b);
    le = !is_nan(a) && !is_nan(b) && (!below(b, a) || (is_zero(a) && is_zero(b)));
  endfunction

  function automatic float_t min(float_t a, float_t b);
    if (is_nan(a) || is_nan(b)) min = Nan;
    else min = below(b, a) ? b : a;
  endfunction

  function automatic float_t max(float_t a, float_t b);
    if (is_nan(a) || is_nan(b)) max = Nan;
    else max = below(a, b) ? b : a;
  endfunction

  // The remainder of a / b: a - b * quotient, exact, the quotient rounded towards zero.  It has the sign of a.  A bit
  // of the quotient a step.
  function automatic float_t fmod(float_t a, float_t b);
    /* verilator no_inline_task */
    normal_t          x, y;
    exp_t             last;
    logic [SigBits:0] rest;
    if (is_nan(a) || is_nan(b) || is_inf(a) || is_zero(b)) return Nan;
    if (a[Bits-2:0] < b[Bits-2:0]) return a;
    x = normalised(a);
    y = normalised(b);
    last = x.exp - y.exp;
    rest = {1'b0, x.sig};
    for (int unsigned i = 0; i < RemainderSteps; i++) begin
      if (exp_t'(i) <= last) begin  // no break: the steps after one are conditional on every one before, in gates
        if (rest >= {1'b0, y.sig}) rest -= {1'b0, y.sig};
        if (exp_t'(i) != last) rest <<= 1;
      end
    end
    if (rest == '0) return {a[Bits-1], (Bits - 1)'(0)};
    fmod = renormalised(a[Bits-1], y.exp, {rest[SigBits-1:0], 3'b0});
  endfunction
