// One lane's micro-operations of the vector unit: those of the alu slots, and those of the trans slots that are IEEE
// operations or integer division; the functions of xlu.reduce.  A function gives 0 for an operation of another one.
package alu_pkg;
  import systolith_pkg::*;

  function automatic logic [31:0] leading_zeros(logic [31:0] x);
    leading_zeros = 32'd32;
    for (int unsigned i = 0; i < 32; i++) begin
      if (x[i]) leading_zeros = 31 - i;
    end
  endfunction

  function automatic logic [31:0] population(logic [31:0] x);
    population = '0;
    for (int unsigned i = 0; i < 32; i++) population += 32'(x[i]);
  endfunction

  function automatic logic [31:0] min_s32(logic [31:0] a, logic [31:0] b);
    min_s32 = ($signed(b) < $signed(a)) ? b : a;
  endfunction

  function automatic logic [31:0] max_s32(logic [31:0] a, logic [31:0] b);
    max_s32 = ($signed(a) < $signed(b)) ? b : a;
  endfunction

  function automatic logic [31:0] high_product(logic [31:0] a, logic [31:0] b);
    high_product = 32'((64'(a) * 64'(b)) >> 32);
  endfunction

  function automatic logic [31:0] bitwise(microop_e op, logic [31:0] a, logic [31:0] b, logic [31:0] c);
    /* verilator no_inline_task */
    unique case (op)
      MopMov:    bitwise = a;
      MopSelect: bitwise = (a != '0) ? b : c;
      MopAnd:    bitwise = a & b;
      MopOr:     bitwise = a | b;
      MopXor:    bitwise = a ^ b;
      MopNot:    bitwise = ~a;
      MopShl:    bitwise = a << b;
      MopShr:    bitwise = a >> b;
      MopSra:    bitwise = $signed(a) >>> b;
      MopClz:    bitwise = leading_zeros(a);
      MopPopc:   bitwise = population(a);
      default:   bitwise = '0;
    endcase
  endfunction

  function automatic logic [31:0] whole(microop_e op, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    unique case (op)
      MopAddS32:  whole = a + b;
      MopSubS32:  whole = a - b;
      MopMulS32:  whole = a * b;
      MopMulhU32: whole = high_product(a, b);
      MopMinS32:  whole = min_s32(a, b);
      MopMaxS32:  whole = max_s32(a, b);
      MopMinU32:  whole = (b < a) ? b : a;
      MopMaxU32:  whole = (a < b) ? b : a;
      MopNegS32:  whole = -a;
      MopAbsS32:  whole = a[31] ? -a : a;
      MopSignS32: whole = a[31] ? '1 : 32'(a != '0);
      default:    whole = '0;
    endcase
  endfunction

  function automatic logic compare(microop_e op, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    unique case (op)
      MopEqF32: compare = f32_pkg::eq(a, b);
      MopNeF32: compare = !f32_pkg::eq(a, b);
      MopLtF32: compare = f32_pkg::lt(a, b);
      MopLeF32: compare = f32_pkg::le(a, b);
      MopGtF32: compare = f32_pkg::lt(b, a);
      MopGeF32: compare = f32_pkg::le(b, a);
      MopEqS32: compare = a == b;
      MopNeS32: compare = a != b;
      MopLtS32: compare = $signed(a) < $signed(b);
      MopLeS32: compare = $signed(a) <= $signed(b);
      MopGtS32: compare = $signed(a) > $signed(b);
      MopGeS32: compare = $signed(a) >= $signed(b);
      MopLtU32: compare = a < b;
      MopLeU32: compare = a <= b;
      MopGtU32: compare = a > b;
      MopGeU32: compare = a >= b;
      default:  compare = 1'b0;
    endcase
  endfunction

  function automatic logic [31:0] sign_f32(logic [31:0] a);
    if (f32_pkg::is_nan(a)) sign_f32 = f32_pkg::Nan;
    else sign_f32 = f32_pkg::is_zero(a) ? a : {a[31], 31'h3F80_0000};
  endfunction

  function automatic logic [31:0] floating(microop_e op, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    unique case (op)
      MopAddF32:      floating = f32_pkg::add(a, b);
      MopSubF32:      floating = f32_pkg::sub(a, b);
      MopMulF32:      floating = f32_pkg::mul(a, b);
      MopMinF32:      floating = f32_pkg::min(a, b);
      MopMaxF32:      floating = f32_pkg::max(a, b);
      MopNegF32:      floating = {~a[31], a[30:0]};
      MopAbsF32:      floating = {1'b0, a[30:0]};
      MopSignF32:     floating = sign_f32(a);
      MopIsfiniteF32: floating = 32'(a[30:23] != '1);
      MopFloorF32:    floating = f32_pkg::floor(a);
      MopCeilF32:     floating = f32_pkg::ceil(a);
      MopRneF32:      floating = f32_pkg::rne(a);
      MopRnaF32:      floating = f32_pkg::rna(a);
      MopTruncF32:    floating = f32_pkg::trunc(a);
      MopCvtF32S32:   floating = f32_pkg::from_s32(a);
      MopCvtF32U32:   floating = f32_pkg::from_u32(a);
      MopCvtS32F32:   floating = f32_pkg::to_s32(a);
      MopCvtU32F32:   floating = f32_pkg::to_u32(a);
      default:        floating = '0;
    endcase
  endfunction

  function automatic logic [31:0] clamp(logic [31:0] a, logic [31:0] lo, logic [31:0] hi);
    clamp = min_s32(max_s32(a, lo), hi);
  endfunction

  // An image as if it had been in memory as another type.
  function automatic logic [31:0] convert(microop_e op, logic [31:0] a);
    /* verilator no_inline_task */
    unique case (op)
      MopWrapS4:          convert = formats_pkg::widen(DtypeS4, a);
      MopWrapS8:          convert = formats_pkg::widen(DtypeS8, a);
      MopWrapS16:         convert = formats_pkg::widen(DtypeS16, a);
      MopWrapU4:          convert = formats_pkg::widen(DtypeU4, a);
      MopWrapU8:          convert = formats_pkg::widen(DtypeU8, a);
      MopWrapU16:         convert = formats_pkg::widen(DtypeU16, a);
      MopSatS4:           convert = clamp(a, -32'd8, 32'd7);
      MopSatS8:           convert = clamp(a, -32'd128, 32'd127);
      MopSatS16:          convert = clamp(a, -32'd32768, 32'd32767);
      MopSatU4:           convert = clamp(a, 32'd0, 32'd15);
      MopSatU8:           convert = clamp(a, 32'd0, 32'd255);
      MopSatU16:          convert = clamp(a, 32'd0, 32'd65535);
      MopRoundF8e4m3fn:   convert = formats_pkg::round_to(DtypeF8e4m3fn, a);
      MopRoundF8e5m2:     convert = formats_pkg::round_to(DtypeF8e5m2, a);
      MopRoundF8e4m3fnuz: convert = formats_pkg::round_to(DtypeF8e4m3fnuz, a);
      MopRoundF8e5m2fnuz: convert = formats_pkg::round_to(DtypeF8e5m2fnuz, a);
      MopRoundBf16:       convert = formats_pkg::round_to(DtypeBf16, a);
      MopRoundF16:        convert = formats_pkg::round_to(DtypeF16, a);
      default:            convert = '0;
    endcase
  endfunction

  // The micro-operations of slot alu; coord and inside, which depend on a lane's place, are not here.
  function automatic logic [31:0] alu(microop_e op, logic [31:0] a, logic [31:0] b, logic [31:0] c);
    /* verilator no_inline_task */
    unique case (op)
      MopMov, MopSelect, MopAnd, MopOr, MopXor, MopNot, MopShl, MopShr, MopSra, MopClz, MopPopc:
        alu = bitwise(op, a, b, c);
      MopAddS32, MopSubS32, MopMulS32, MopMulhU32, MopMinS32, MopMaxS32, MopMinU32, MopMaxU32,
      MopNegS32, MopAbsS32, MopSignS32:
        alu = whole(op, a, b);
      MopEqF32, MopNeF32, MopLtF32, MopLeF32, MopGtF32, MopGeF32,
      MopEqS32, MopNeS32, MopLtS32, MopLeS32, MopGtS32, MopGeS32,
      MopLtU32, MopLeU32, MopGtU32, MopGeU32:
        alu = 32'(compare(op, a, b));
      MopWrapS4, MopWrapS8, MopWrapS16, MopWrapU4, MopWrapU8, MopWrapU16,
      MopSatS4, MopSatS8, MopSatS16, MopSatU4, MopSatU8, MopSatU16,
      MopRoundF8e4m3fn, MopRoundF8e5m2, MopRoundF8e4m3fnuz, MopRoundF8e5m2fnuz, MopRoundBf16, MopRoundF16:
        alu = convert(op, a);
      default:
        alu = floating(op, a, b);
    endcase
  endfunction

  // The micro-operations of slot trans that need no table.
  function automatic logic [31:0] divide(microop_e op, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    int_div_pkg::result_t result;
    unique case (op)
      MopDivF32:  return f32_pkg::div(a, b);
      MopSqrtF32: return f32_pkg::sqrt(a);
      MopRemF32:  return f32_pkg::fmod(a, b);
      MopDivS32, MopRemS32: result = int_div_pkg::signed_div(a, b);
      MopDivU32, MopRemU32: result = int_div_pkg::unsigned_div(a, b);
      default:    result = '0;
    endcase
    divide = (op == MopDivS32 || op == MopDivU32) ? result.quotient : result.remainder;
  endfunction

  // A step of xlu.reduce.
  function automatic logic [31:0] reduce(reduce_e how, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    unique case (how)
      ReduceAddF32: reduce = f32_pkg::add(a, b);
      ReduceMulF32: reduce = f32_pkg::mul(a, b);
      ReduceMinF32: reduce = f32_pkg::min(a, b);
      ReduceMaxF32: reduce = f32_pkg::max(a, b);
      ReduceAddS32: reduce = a + b;
      ReduceMulS32: reduce = a * b;
      ReduceMinS32: reduce = min_s32(a, b);
      ReduceMaxS32: reduce = max_s32(a, b);
      ReduceMinU32: reduce = (b < a) ? b : a;
      ReduceMaxU32: reduce = (a < b) ? b : a;
      ReduceAnd:    reduce = a & b;
      ReduceOr:     reduce = a | b;
      ReduceXor:    reduce = a ^ b;
      default:      reduce = '0;
    endcase
  endfunction

endpackage
