// a + b in f32: IEEE 754, nearest even, subnormals kept, NaN canonical.
module fadd_f32 (
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] sum_o
);

  logic [7:0] exponent;

  assign exponent = a_i[30:23];

  f32_sum u_sum (
    .sign_i(a_i[31]),
    .exp_i ($signed({4'b0, (exponent == '0) ? 8'd1 : exponent}) - 12'sd150),
    .mant_i({exponent != '0, a_i[22:0]}),
    .inf_i (a_i[30:0] == 31'h7F80_0000),
    .nan_i (a_i[30:0] > 31'h7F80_0000),
    .c_i   (b_i),
    .sum_o
  );

endmodule
