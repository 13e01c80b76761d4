// A memory of a bench: loaded and shown whole, written by elements of 1, 2 or 4 bytes, higher ones last.
module dma_memory #(
  parameter int unsigned Bytes = 4096,
  parameter int unsigned E = 32
) (
  input  logic                  clk_i,
  input  logic                  load_i,
  input  logic [Bytes-1:0][7:0] image_i,
  input  logic [E-1:0]          write_i,
  input  logic [E-1:0][39:0]    address_i,
  input  logic [1:0]            size_i,     // log2 of bytes
  input  logic [E-1:0][31:0]    data_i,
  output logic [Bytes-1:0][7:0] bytes_o
);

  localparam int unsigned Bits = $clog2(Bytes);

  logic [Bytes-1:0][7:0] written;

  always_comb begin
    written = bytes_o;
    if (write_i != '0) begin
      for (int unsigned e = 0; e < E; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (write_i[e] && b < 32'd1 << size_i) written[Bits'(address_i[e]) + Bits'(b)] = data_i[e][8*b+:8];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (load_i) bytes_o <= image_i;
    else if (write_i != '0) bytes_o <= written;
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned e = 0; e < E; e++) begin
      assert (!write_i[e] || address_i[e] + (40'd1 << size_i) <= 40'(Bytes))
      else $error("%m: element %0d is written at %0d", e, address_i[e]);
    end
  end

endmodule
