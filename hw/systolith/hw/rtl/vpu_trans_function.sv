// One transcendental function.
module vpu_trans_function
  import systolith_pkg::microop_e;
#(
  parameter microop_e Op = systolith_pkg::MopExpF32
) (
  input  logic             valid_i,
  input  logic [1:0][31:0] operand_i,
  output logic [31:0]      result_o    // 0 unless valid
);

  always_comb begin
    result_o = '0;
    if (valid_i) result_o = trans_pkg::trans(Op, operand_i[0], operand_i[1]);
  end

endmodule
