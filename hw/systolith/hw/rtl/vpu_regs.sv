// The vector registers, and the operands that are not registers: constants and scalars go to every lane.
module vpu_regs
  import systolith_pkg::*;
  import vpu_pkg::Registers;
#(
  parameter int unsigned Elements = 16,
  parameter int unsigned Reads = 9,
  parameter int unsigned Writes = 4
) (
  input  logic                                clk_i,
  input  logic [Reads-1:0]                    read_i,
  input  logic [Reads-1:0][7:0]               operand_i,
  output logic [Reads-1:0][Elements-1:0][31:0] value_o,
  input  logic [31:0]                         constants_i,  // where the kernel's begin
  input  logic [NumScalars-1:0][31:0]         scalar_i,
  output logic [Reads-1:0]                    constant_read_o,
  output logic [Reads-1:0][31:0]              constant_address_o,
  input  logic [Reads-1:0][31:0]              constant_i,
  input  logic [Writes-1:0]                   write_i,
  input  logic [Writes-1:0][5:0]              dst_i,
  input  logic [Writes-1:0][Elements-1:0][31:0] data_i
);

  logic [Elements-1:0][31:0] regs_q[Registers];

  always_comb begin
    constant_read_o    = '0;
    constant_address_o = '0;
    for (int unsigned r = 0; r < Reads; r++) begin
      if (read_i[r] && operand_i[r] >= 8'(FirstConstant) && operand_i[r] < 8'(FirstScalar)) begin
        constant_read_o[r]    = 1'b1;
        constant_address_o[r] = constants_i + 32'(operand_i[r]) - FirstConstant;
      end
    end
  end

  for (genvar r = 0; r < int'(Reads); r++) begin : gen_reads
    always_comb begin
      value_o[r] = '0;
      if (read_i[r]) begin
        if (operand_i[r] < 8'(FirstConstant)) value_o[r] = regs_q[operand_i[r][5:0]];
        else if (operand_i[r] < 8'(FirstScalar)) value_o[r] = {Elements{constant_i[r]}};
        else value_o[r] = {Elements{scalar_i[operand_i[r][1:0]]}};
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned w = 0; w < Writes; w++) begin
      if (write_i[w]) regs_q[dst_i[w]] <= data_i[w];
    end
  end

endmodule
