// A lane of a trans slot: divisions and remainders.
module vpu_lane_divide
  import systolith_pkg::microop_e;
(
  input  logic             valid_i,
  input  microop_e         op_i,
  input  logic [1:0][31:0] operand_i,
  output logic [31:0]      result_o
);

  always_comb begin
    result_o = '0;
    if (valid_i) result_o = alu_pkg::divide(op_i, operand_i[0], operand_i[1]);
  end

endmodule
