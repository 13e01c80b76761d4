// A lane of an alu slot.
module vpu_lane_alu
  import systolith_pkg::microop_e;
(
  input  logic             valid_i,
  input  microop_e         op_i,
  input  logic [2:0][31:0] operand_i,
  output logic [31:0]      result_o
);

  always_comb begin
    result_o = '0;
    if (valid_i) result_o = alu_pkg::alu(op_i, operand_i[0], operand_i[1], operand_i[2]);
  end

endmodule
