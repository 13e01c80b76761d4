// a x b + c: a and b in bf16, c and the result in f32.  The product is exact; the sum is rounded once, to nearest even.
// Subnormals are kept, a NaN result is the canonical one.
module fma_bf16 (
  input  logic [15:0] a_i,
  input  logic [15:0] b_i,
  input  logic [31:0] c_i,
  output logic [31:0] sum_o
);

  logic       a_zero, b_zero, a_inf, b_inf, a_nan, b_nan;
  logic [7:0] a_exp, b_exp;

  assign a_zero = a_i[14:0] == '0;
  assign b_zero = b_i[14:0] == '0;
  assign a_inf  = a_i[14:0] == 15'h7F80;
  assign b_inf  = b_i[14:0] == 15'h7F80;
  assign a_nan  = a_i[14:0] > 15'h7F80;
  assign b_nan  = b_i[14:0] > 15'h7F80;
  assign a_exp  = (a_i[14:7] == '0) ? 8'd1 : a_i[14:7];
  assign b_exp  = (b_i[14:7] == '0) ? 8'd1 : b_i[14:7];

  // Exact product of the significands, its first one moved to bit 15 (subnormal operands have leading zeros).
  logic [15:0] product, normal;
  logic [3:0]  zeros;

  assign product = {8'b0, a_i[14:7] != '0, a_i[6:0]} * {8'b0, b_i[14:7] != '0, b_i[6:0]};

  always_comb begin
    normal = product;
    zeros  = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      if (normal >> (16 - (8 >> i)) == '0) begin
        zeros |= 4'(8 >> i);
        normal <<= 8 >> i;
      end
    end
  end

  // The product's last bit weighs 2^(a_exp + b_exp - 2 x 134); eight zeros follow it to make 24 bits.
  f32_sum u_sum (
    .sign_i(a_i[15] ^ b_i[15]),
    .exp_i ($signed({4'b0, a_exp}) + $signed({4'b0, b_exp}) - 12'sd276 - $signed({8'b0, zeros})),
    .mant_i({normal, 8'b0}),
    .inf_i (a_inf || b_inf),
    .nan_i (a_nan || b_nan || (a_inf && b_zero) || (b_inf && a_zero)),
    .c_i,
    .sum_o
  );

endmodule
