// VMEM: gathered and scattered elements, entries of index lists, and the segments that the matrix units read, whose data come in the next cycle.
module vmem #(
  parameter int unsigned Bytes = 262144,
  parameter int unsigned Lists = 4,
  parameter int unsigned Reads = 4,
  parameter int unsigned Writes = 4,
  parameter int unsigned Segments = 4,       // of all matrix units
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                                       clk_i,
  input  logic [Lists-1:0]                           list_i,
  input  logic [Lists-1:0][31:0]                     list_address_i,
  output logic [Lists-1:0][31:0]                     list_data_o,
  input  logic [Reads-1:0]                           read_i,
  input  logic [Reads-1:0][31:0]                     read_address_i,
  input  logic [Reads-1:0][1:0]                      read_size_i,      // log2 of the bytes
  output logic [Reads-1:0][31:0]                     read_data_o,
  input  logic [Writes-1:0]                          write_i,
  input  logic [Writes-1:0][31:0]                    write_address_i,
  input  logic [Writes-1:0][1:0]                     write_size_i,
  input  logic [Writes-1:0][31:0]                    write_data_i,
  input  logic [Segments-1:0]                        segment_read_i,
  input  logic [Segments-1:0][31:0]                  segment_address_i,
  output logic [Segments-1:0][SegmentBytes-1:0][7:0] segment_data_o
);

  // A segment is some words at any address.  Bytes of it beyond the end of the memory belong to no element.
  localparam int unsigned SegmentWords = SegmentBytes / 4;
  localparam int unsigned Words = Segments * SegmentWords;

  logic [Words-1:0]       word_read;
  logic [Words-1:0][31:0] word_address, word_data;
  logic [Reads-1:0][31:0] data;

  always_comb begin
    word_read    = '0;
    word_address = '0;
    for (int unsigned s = 0; s < Segments; s++) begin
      if (segment_read_i[s]) begin
        for (int unsigned w = 0; w < SegmentWords; w++) begin
          word_read[s*SegmentWords+w]    = 1'b1;
          word_address[s*SegmentWords+w] = segment_address_i[s] + 4 * w;
        end
      end
    end
  end

  memory #(
    .Bytes (Bytes),
    .Lists (Lists),
    .Reads (Reads + Words),
    .Writes(Writes),
    .Loose (Words)
  ) u_memory (
    .clk_i,
    .list_i,
    .list_address_i,
    .list_data_o,
    .read_i        ({word_read, read_i}),
    .read_address_i({word_address, read_address_i}),
    .read_size_i   ({{Words{2'd2}}, read_size_i}),
    .read_data_o   ({word_data, data}),
    .write_i,
    .write_address_i,
    .write_size_i,
    .write_data_i
  );

  assign read_data_o = data;

  always_ff @(posedge clk_i) begin
    if (segment_read_i != '0) segment_data_o <= word_data;
  end

endmodule
