// SEQ's arithmetic, many lanes at once: combinational.
module seq_alu_tb #(
  parameter int unsigned Lanes = 256
) (
  input  logic [7:0]             op_i,
  input  logic [Lanes-1:0][31:0] a_i,
  input  logic [Lanes-1:0][31:0] b_i,
  output logic [Lanes-1:0][31:0] result_o
);

  for (genvar l = 0; l < int'(Lanes); l++) begin : gen_lanes
    seq_alu u_alu (
      .op_i    (systolith_pkg::opcode_e'(op_i)),
      .a_i     (a_i[l]),
      .b_i     (b_i[l]),
      .result_o(result_o[l])
    );
  end

endmodule
