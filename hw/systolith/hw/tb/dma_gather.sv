// A port that reads elements of 1, 2 or 4 bytes of a bench's memory, zero-extended, in the same cycle.
module dma_gather #(
  parameter int unsigned Bytes = 4096,
  parameter int unsigned E = 32
) (
  input  logic                  clk_i,      // for the assertion
  input  logic [Bytes-1:0][7:0] bytes_i,
  input  logic [E-1:0]          read_i,
  input  logic [E-1:0][39:0]    address_i,
  input  logic [1:0]            size_i,     // log2 of bytes
  output logic [E-1:0][31:0]    data_o
);

  localparam int unsigned Bits = $clog2(Bytes);

  always_comb begin
    data_o = '0;
    if (read_i != '0) begin
      for (int unsigned e = 0; e < E; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (read_i[e] && b < 32'd1 << size_i) data_o[e][8*b+:8] = bytes_i[Bits'(address_i[e])+Bits'(b)];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned e = 0; e < E; e++) begin
      assert (!read_i[e] || address_i[e] + (40'd1 << size_i) <= 40'(Bytes))
      else $error("%m: element %0d is read at %0d", e, address_i[e]);
    end
  end

endmodule
