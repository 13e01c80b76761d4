// A processing element: x * weight + sum.
module mxu_mac (
  input  logic        valid_i,
  input  logic        is_integer_i,
  input  logic [15:0] x_i,
  input  logic [15:0] weight_i,
  input  logic [31:0] sum_i,
  output logic [31:0] sum_o
);

  logic signed [17:0] product;

  always_comb begin
    product = '0;
    sum_o   = '0;
    if (valid_i && is_integer_i) begin
      product = $signed(x_i[8:0]) * $signed(weight_i[8:0]);
      sum_o   = sum_i + 32'(product);
    end else if (valid_i) begin
      sum_o = bf16_pkg::fma(x_i, weight_i, sum_i);
    end
  end

endmodule
