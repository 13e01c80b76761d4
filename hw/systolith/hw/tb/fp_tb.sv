// The functions of the arithmetic packages, one at a time: combinational, for a bench that compares numbers.
module fp_tb
  import systolith_pkg::*;
(
  input  logic [2:0]  what_i,  // as `What` of fp_bench.py
  input  logic [7:0]  op_i,    // micro-operation, function of xlu.reduce, element type, or a number below
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  input  logic [31:0] c_i,
  output logic [31:0] y_o
);

  // Operations that f32_pkg and f16_pkg have in common.
  function automatic logic [31:0] half(logic [7:0] op, logic [15:0] a, logic [15:0] b, logic [31:0] whole);
    unique case (op)
      8'd0:    half = 32'(f16_pkg::add(a, b));
      8'd1:    half = 32'(f16_pkg::sub(a, b));
      8'd2:    half = 32'(f16_pkg::mul(a, b));
      8'd3:    half = 32'(f16_pkg::div(a, b));
      8'd4:    half = 32'(f16_pkg::sqrt(a));
      8'd5:    half = 32'(f16_pkg::fmod(a, b));
      8'd6:    half = 32'(f16_pkg::min(a, b));
      8'd7:    half = 32'(f16_pkg::max(a, b));
      8'd8:    half = 32'(f16_pkg::eq(a, b));
      8'd9:    half = 32'(f16_pkg::lt(a, b));
      8'd10:   half = 32'(f16_pkg::le(a, b));
      8'd11:   half = 32'(f16_pkg::floor(a));
      8'd12:   half = 32'(f16_pkg::ceil(a));
      8'd13:   half = 32'(f16_pkg::rne(a));
      8'd14:   half = 32'(f16_pkg::rna(a));
      8'd15:   half = 32'(f16_pkg::trunc(a));
      8'd16:   half = 32'(f16_pkg::from_s32(whole));
      8'd17:   half = 32'(f16_pkg::from_u32(whole));
      8'd18:   half = f16_pkg::to_s32(a);
      8'd19:   half = f16_pkg::to_u32(a);
      default: half = '0;
    endcase
  endfunction

  always_comb begin
    unique case (what_i)
      3'd0:    y_o = alu_pkg::alu(microop_e'(op_i), a_i, b_i, c_i);
      3'd1:    y_o = alu_pkg::divide(microop_e'(op_i), a_i, b_i);
      3'd2:    y_o = alu_pkg::reduce(reduce_e'(op_i), a_i, b_i);
      3'd3:    y_o = formats_pkg::widen(dtype_e'(op_i[4:0]), a_i);
      3'd4:    y_o = formats_pkg::narrow(dtype_e'(op_i[4:0]), a_i);
      3'd5:    y_o = half(op_i, a_i[15:0], b_i[15:0], a_i);
      default: y_o = '0;
    endcase
  end

endmodule
