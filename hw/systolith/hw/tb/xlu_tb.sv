// The cross-lane unit with a memory: runs a list of instructions.
module xlu_tb
  import walk_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  parameter int unsigned Latency = 4,
  parameter int unsigned Bytes = 4096,
  parameter int unsigned Length = 8,
  localparam int unsigned Bits = $clog2(Length + 1)
) (
  input  logic                                            clk_i,
  input  logic                                            rst_ni,
  input  logic                                            load_i,
  input  logic                                            run_i,
  input  logic [Bits-1:0]                                 count_i,
  input  logic [Length-1:0][7:0]                          gaps_i,
  input  logic [Length-1:0][core_pkg::XluWords-1:0][31:0] words_i,
  input  pattern_t [Length-1:0][1:0]                      patterns_i,  // of source and destination
  input  logic [Bytes-1:0][7:0]                           images_i,
  output logic [Bytes-1:0][7:0]                           images_o,
  output logic [Length-1:0][31:0]                         start_at_o,
  output logic [Length-1:0][31:0]                         done_at_o,
  output logic                                            finished_o
);

  localparam int unsigned SlotBits = $clog2(Length);

  logic                        start, done;
  logic [SlotBits-1:0]         now;
  logic [Lanes-1:0]            src_read, dst_write;
  logic [Lanes-1:0][31:0]      src_address, src_data, dst_address, dst_data;
  logic [Lanes-1:0][39:0]      src_place, dst_place;
  logic [1:0]                  src_size, dst_size;
  logic [1:0][Lanes-1:0]       index_read;
  logic [1:0][Lanes-1:0][31:0] index_address, index_data;

  dma_list #(
    .Length(Length)
  ) u_list (
    .clk_i,
    .run_i,
    .count_i,
    .gaps_i,
    .done_i   (done),
    .start_o  (start),
    .next_o   (now),
    .start_at_o,
    .done_at_o,
    .finished_o
  );

  xlu #(
    .Lanes   (Lanes),
    .Sublanes(Sublanes),
    .Latency (Latency)
  ) u_xlu (
    .clk_i,
    .rst_ni,
    .start_i        (start),
    .words_i        (words_i[now]),
    .pattern_i      (patterns_i[now]),
    .done_o         (done),
    .src_read_o     (src_read),
    .src_address_o  (src_address),
    .src_size_o     (src_size),
    .src_data_i     (src_data),
    .dst_write_o    (dst_write),
    .dst_address_o  (dst_address),
    .dst_size_o     (dst_size),
    .dst_data_o     (dst_data),
    .index_read_o   (index_read),
    .index_address_o(index_address),
    .index_data_i   (index_data)
  );

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) src_place[l] = 40'(src_address[l]);
  end

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) dst_place[l] = 40'(dst_address[l]);
  end

  dma_memory #(
    .Bytes(Bytes),
    .E    (Lanes)
  ) u_memory (
    .clk_i,
    .load_i,
    .image_i  (images_i),
    .write_i  (dst_write),
    .address_i(dst_place),
    .size_i   (dst_size),
    .data_i   (dst_data),
    .bytes_o  (images_o)
  );

  dma_gather #(
    .Bytes(Bytes),
    .E    (Lanes)
  ) u_gather (
    .clk_i,
    .bytes_i  (images_o),
    .read_i   (src_read),
    .address_i(src_place),
    .size_i   (src_size),
    .data_o   (src_data)
  );

  for (genvar n = 0; n < 2; n++) begin : gen_lists
    logic [Lanes-1:0][39:0] place;

    always_comb begin
      for (int unsigned l = 0; l < Lanes; l++) place[l] = 40'(index_address[n][l]);
    end

    dma_gather #(
      .Bytes(Bytes),
      .E    (Lanes)
    ) u_gather (
      .clk_i,
      .bytes_i  (images_o),
      .read_i   (index_read[n]),
      .address_i(place),
      .size_i   (2'd2),
      .data_o   (index_data[n])
    );
  end

endmodule
