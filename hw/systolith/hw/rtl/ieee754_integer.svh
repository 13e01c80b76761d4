// Floats and integers: rounding to an integer, and conversions.  Included after ieee754.svh, in the same format.

  typedef enum logic [2:0] {
    TowardsZero,
    Downwards,
    Upwards,
    NearestEven,
    NearestAway
  } direction_e;

  // A float that is an integer.
  function automatic float_t integral(direction_e direction, float_t x);
    /* verilator no_inline_task */
    exp_t            exp;
    logic [Bits-2:0] unit;
    float_t          whole;
    logic            half, rest, odd, up;
    if (is_nan(x)) return Nan;
    exp = $signed({2'b0, x[Bits-2:ManBits]}) - $signed({2'b0, Bias});
    if (exp >= exp_t'(ManBits)) return x;
    if (exp < 0) begin
      unit = {Bias, ManBits'(0)};
      whole = {x[Bits-1], (Bits - 1)'(0)};
      half = exp == -exp_t'(1);
      rest = half ? x[ManBits-1:0] != '0 : !is_zero(x);
      odd = 1'b0;
    end else begin
      unit = (Bits - 1)'(1) << (exp_t'(ManBits) - exp);
      whole = x & ~({1'b0, unit} - Bits'(1));
      half = (x[Bits-2:0] & unit >> 1) != '0;
      rest = (x[Bits-2:0] & (unit - (Bits - 1)'(1)) >> 1) != '0;
      odd = (x[Bits-2:0] & unit) != '0;  // for 1 <= |x| < 2 the last bit of the exponent, which is one there
    end
    unique case (direction)
      Downwards:   up = x[Bits-1] && (half || rest);
      Upwards:     up = !x[Bits-1] && (half || rest);
      NearestEven: up = half && (rest || odd);
      NearestAway: up = half;
      default:     up = 1'b0;
    endcase
    integral = up ? whole + {1'b0, unit} : whole;  // the carry out of the fraction goes into the exponent
  endfunction

  function automatic float_t floor(float_t x);
    floor = integral(Downwards, x);
  endfunction

  function automatic float_t ceil(float_t x);
    ceil = integral(Upwards, x);
  endfunction

  function automatic float_t rne(float_t x);
    rne = integral(NearestEven, x);
  endfunction

  function automatic float_t rna(float_t x);
    rna = integral(NearestAway, x);
  endfunction

  function automatic float_t trunc(float_t x);
    trunc = integral(TowardsZero, x);
  endfunction

  // Sign and magnitude to the nearest number.
  function automatic float_t from_integer(logic sign, logic [31:0] magnitude);
    /* verilator no_inline_task */
    logic [31:0] sig;
    exp_t        exp;
    if (magnitude == '0) return '0;
    sig = magnitude;
    exp = $signed({2'b0, Bias}) + exp_t'(31);
    for (int unsigned width = 16; width > 0; width >>= 1) begin
      if (sig >> (32 - width) == '0) begin
        sig <<= width;
        exp -= exp_t'(width);
      end
    end
    from_integer = rounded(sign, exp, {sig[31-:WideBits-1], |sig[32-WideBits:0]});
  endfunction

  function automatic float_t from_s32(logic [31:0] x);
    from_s32 = from_integer(x[31], x[31] ? -x : x);
  endfunction

  function automatic float_t from_u32(logic [31:0] x);
    from_u32 = from_integer(1'b0, x);
  endfunction

  // The integer part of |x|, or all ones where it is 2^width or more (width at most 32).
  function automatic logic [31:0] to_integer(float_t x, logic [5:0] width);
    /* verilator no_inline_task */
    exp_t exp;
    exp = $signed({2'b0, x[Bits-2:ManBits]}) - $signed({2'b0, Bias});
    if (exp < 0) to_integer = '0;
    else if (is_inf(x) || exp >= $signed((ExpBits + 2)'(width))) to_integer = '1;
    else to_integer = 32'({31'b0, 1'b1, x[ManBits-1:0]} << exp[4:0] >> ManBits);
  endfunction

  // Towards zero; values beyond the range give the nearest, NaN gives 0.
  function automatic logic [31:0] to_s32(float_t x);
    logic [31:0] magnitude;
    magnitude = to_integer(x, 6'd31);
    if (is_nan(x)) to_s32 = '0;
    else if (magnitude[31]) to_s32 = {x[Bits-1], {31{~x[Bits-1]}}};
    else to_s32 = x[Bits-1] ? -magnitude : magnitude;
  endfunction

  function automatic logic [31:0] to_u32(float_t x);
    to_u32 = (is_nan(x) || x[Bits-1]) ? '0 : to_integer(x, 6'd32);
  endfunction
