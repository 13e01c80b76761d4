// VMEM as the matrix unit sees it: any aligned or unaligned segments, data in the next cycle.  A model: the banks are not.
module vmem_model #(
  parameter int unsigned Bytes = 262144,      // bytes of a segment beyond them are of no element
  parameter int unsigned Ports = 4,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned WriteBytes = 64
) (
  input  logic                                    clk_i,
  input  logic                                    write_clk_i,      // apart, so that any number of bytes is written at once
  input  logic [Ports-1:0]                        read_i,
  input  logic [Ports-1:0][31:0]                  address_i,
  output logic [Ports-1:0][SegmentBytes-1:0][7:0] data_o,
  input  logic [WriteBytes-1:0]                   write_i,          // by byte
  input  logic [31:0]                             write_address_i,
  input  logic [WriteBytes-1:0][7:0]              write_data_i
);

  localparam int unsigned Bits = $clog2(Bytes);

  logic [7:0] memory[Bytes];

  always_ff @(posedge write_clk_i) begin
    for (int unsigned b = 0; b < WriteBytes; b++) begin
      if (write_i[b]) memory[Bits'(write_address_i + b)] <= write_data_i[b];
    end
  end

  for (genvar p = 0; p < int'(Ports); p++) begin : gen_ports
    always_ff @(posedge clk_i) begin
      if (read_i[p]) begin
        for (int unsigned b = 0; b < SegmentBytes; b++) data_o[p][b] <= memory[Bits'(address_i[p] + b)];
      end
    end
  end

endmodule
