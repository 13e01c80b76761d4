// A transcendental micro-operation, combinational: for the comparison with the model (trans_main.cpp).
module trans_tb (
  input  systolith_pkg::microop_e op_i,
  input  logic [31:0]             a_i,
  input  logic [31:0]             b_i,
  output logic [31:0]             y_o
);

  always_comb y_o = trans_pkg::trans(op_i, a_i, b_i);

endmodule
