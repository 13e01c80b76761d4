// A lane of a trans slot: transcendental functions and roots.
module vpu_lane_trans
  import systolith_pkg::microop_e;
  import trans_pkg::FunctionCount, trans_pkg::Functions;
(
  input  logic             valid_i,
  input  microop_e         op_i,
  input  logic [1:0][31:0] operand_i,
  output logic [31:0]      result_o
);

  logic [FunctionCount-1:0][31:0] value;

  for (genvar f = 0; f < int'(FunctionCount); f++) begin : gen_functions
    vpu_trans_function #(
      .Op(Functions[f])
    ) u_function (
      .valid_i  (valid_i && op_i == Functions[f]),
      .operand_i,
      .result_o (value[f])
    );
  end

  always_comb begin
    result_o = '0;
    if (valid_i) begin
      for (int unsigned f = 0; f < FunctionCount; f++) result_o |= value[f];
    end
  end

endmodule
