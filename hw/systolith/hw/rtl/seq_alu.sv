// SEQ's arithmetic; for branches bit 0 says whether it is taken.
module seq_alu
  import systolith_pkg::*;
(
  input  opcode_e     op_i,
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] result_o
);

  always_comb begin
    result_o = '0;
    unique case (op_i)
      OpAdd:   result_o = a_i + b_i;
      OpSub:   result_o = a_i - b_i;
      OpMul:   result_o = a_i * b_i;
      OpMulhu: result_o = 32'((64'(a_i) * 64'(b_i)) >> 32);
      OpAnd:   result_o = a_i & b_i;
      OpOr:    result_o = a_i | b_i;
      OpXor:   result_o = a_i ^ b_i;
      OpShl:   result_o = a_i << b_i[4:0];
      OpShr:   result_o = a_i >> b_i[4:0];
      OpSra:   result_o = $signed(a_i) >>> b_i[4:0];
      OpSlt:   result_o = 32'($signed(a_i) < $signed(b_i));
      OpSltu:  result_o = 32'(a_i < b_i);
      OpMin:   result_o = ($signed(a_i) < $signed(b_i)) ? a_i : b_i;
      OpMax:   result_o = ($signed(a_i) > $signed(b_i)) ? a_i : b_i;
      OpDivu:  result_o = (b_i == '0) ? '1 : a_i / b_i;
      OpRemu:  result_o = (b_i == '0) ? a_i : a_i % b_i;
      OpBeq:   result_o = 32'(a_i == b_i);
      OpBne:   result_o = 32'(a_i != b_i);
      OpBlt:   result_o = 32'($signed(a_i) < $signed(b_i));
      OpBge:   result_o = 32'($signed(a_i) >= $signed(b_i));
      OpBltu:  result_o = 32'(a_i < b_i);
      OpBgeu:  result_o = 32'(a_i >= b_i);
      default: ;
    endcase
  end

endmodule
