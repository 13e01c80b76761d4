// The transcendental micro-operations: fixed sequences of f32 operations, the same bits as isa/numerics/transcendental.py.
package trans_pkg;

  import systolith_pkg::*;

  parameter int unsigned FunctionCount = 14;
  parameter microop_e [FunctionCount-1:0] Functions = {
    MopExpF32, MopExpm1F32, MopLogF32, MopLog1pF32, MopTanhF32, MopLogisticF32, MopRsqrtF32, MopCbrtF32, MopSinF32,
    MopCosF32, MopTanF32, MopErfF32, MopPowF32, MopAtan2F32
  };

  // A NaN result is the canonical one; b matters only to pow (the exponent) and atan2 (the x of y, x).
  function automatic logic [31:0] trans(microop_e op, logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    logic [31:0] y;
    unique case (op)
      MopExpF32:      y = exponential_pkg::exp(a);
      MopExpm1F32:    y = exponential_pkg::expm1(a);
      MopLogF32:      y = logarithm_pkg::log(a);
      MopLog1pF32:    y = logarithm_pkg::log1p(a);
      MopTanhF32:     y = exponential_pkg::tanh(a);
      MopLogisticF32: y = exponential_pkg::logistic(a);
      MopRsqrtF32:    y = root_pkg::rsqrt(a);
      MopCbrtF32:     y = root_pkg::cbrt(a);
      MopSinF32:      y = trigonometric_pkg::sin(a);
      MopCosF32:      y = trigonometric_pkg::cos(a);
      MopTanF32:      y = trigonometric_pkg::tan(a);
      MopErfF32:      y = exponential_pkg::erf(a);
      MopPowF32:      y = logarithm_pkg::pow(a, b);
      MopAtan2F32:    y = trigonometric_pkg::atan2(a, b);
      default:        y = '0;
    endcase
    return y;
  endfunction

endpackage
