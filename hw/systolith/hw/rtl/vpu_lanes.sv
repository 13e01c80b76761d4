// An issue slot for arithmetic: the same micro-operation in every lane.
module vpu_lanes
  import systolith_pkg::*;
#(
  parameter int unsigned Elements = 16,
  parameter bit Trans = 1'b0  // the slot is one for transcendental functions, roots and divisions
) (
  input  logic                            valid_i,
  input  microop_e                        op_i,
  input  logic [2:0][Elements-1:0][31:0]  operand_i,
  output logic [Elements-1:0][31:0]       result_o
);

  if (Trans) begin : gen_trans
    logic divides, unused_operand;

    assign divides        = op_i inside {[MopDivF32 : MopRemU32], MopRemF32};
    assign unused_operand = ^operand_i[2];

    for (genvar e = 0; e < int'(Elements); e++) begin : gen_lanes
      logic [31:0] quotient, value;

      vpu_lane_divide u_divide (
        .valid_i  (valid_i && divides),
        .op_i,
        .operand_i({operand_i[1][e], operand_i[0][e]}),
        .result_o (quotient)
      );

      vpu_lane_trans u_trans (
        .valid_i  (valid_i && !divides),
        .op_i,
        .operand_i({operand_i[1][e], operand_i[0][e]}),
        .result_o (value)
      );

      assign result_o[e] = divides ? quotient : value;
    end
  end else begin : gen_alu
    for (genvar e = 0; e < int'(Elements); e++) begin : gen_lanes
      vpu_lane_alu u_alu (
        .valid_i,
        .op_i,
        .operand_i({operand_i[2][e], operand_i[1][e], operand_i[0][e]}),
        .result_o (result_o[e])
      );
    end
  end

endmodule
