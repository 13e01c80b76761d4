// A DMA unit with memories, host queues, HBM's arbiter and another client of it: runs a list of copies.
module dma_tb
  import walk_pkg::*;
#(
  parameter int unsigned Chunk = 32,
  parameter int unsigned Granule = 16,
  parameter int unsigned HbmLatency = 20,
  parameter int unsigned Segments = 2,
  parameter int unsigned LocalLatency = 6,
  parameter int unsigned HostP = 4,
  parameter int unsigned HostQ = 1,
  parameter int unsigned HostSetup = 8,
  parameter int unsigned HostLatency = 24,
  parameter int unsigned P = 16,
  parameter int unsigned Q = 1,
  parameter int unsigned Bytes = 4096,        // of each memory, and of each host queue
  parameter int unsigned Length = 8,          // of the list
  parameter int unsigned BufferBytes = 2048,  // buffer n starts at n * BufferBytes
  localparam int unsigned Bits = $clog2(Length + 1),
  localparam int unsigned Memories = 5,
  localparam int unsigned Sources = 3,        // of the memories, those that copies read
  localparam int unsigned Queues = 2
) (
  input  logic                                            clk_i,
  input  logic                                            rst_ni,
  input  logic                                            load_i,
  input  logic                                            run_i,
  input  logic [Bits-1:0]                                 count_i,
  input  logic [Length-1:0][7:0]                          gaps_i,
  input  logic [Length-1:0][core_pkg::DmaWords-1:0][31:0] words_i,
  input  pattern_t [Length-1:0][1:0]                      patterns_i,  // of source and destination
  input  logic [7:0]                                      other_i,     // how often the other client asks, of 256
  input  logic [Memories-1:0][Bytes-1:0][7:0]             images_i,    // HBM, VMEM, SMEM, links 0 and 1
  input  logic [Queues-1:0][Bytes/4-1:0][31:0]            infeed_i,
  output logic [Memories-1:0][Bytes-1:0][7:0]             images_o,
  output logic [Queues-1:0][Bytes/4-1:0][31:0]            outfeed_o,   // when finished
  output logic [Queues-1:0][31:0]                         outfeed_size_o,
  output logic [Length-1:0][31:0]                         start_at_o,
  output logic [Length-1:0][31:0]                         done_at_o,
  output logic [Length-1:0][31:0]                         tails_o,
  output logic [Length-1:0][31:0]                         grants_o,
  output logic                                            finished_o
);

  localparam int unsigned SlotBits = $clog2(Length);

  logic                                           start, done, request, finished;
  logic [1:0]                                     grant;
  logic [31:0]                                    tail;
  logic [SlotBits-1:0]                            now, last;
  logic [15:0]                                    buffer;
  systolith_pkg::space_e                          src_space, dst_space;
  logic [15:0]                                    src_number, dst_number, host_number;
  logic                                           host_start, host_out, host_taken;
  logic [31:0]                                    host_bytes;
  logic [1:0]                                     host_ready;
  logic [Chunk-1:0]                               src_read, dst_write;
  logic [Chunk-1:0][core_pkg::HbmAddressBits-1:0] src_address, dst_address;
  logic [1:0]                                     src_size, dst_size;
  logic [Chunk-1:0][31:0]                         src_data, dst_data;
  logic [1:0][Chunk-1:0]                          index_read;
  logic [1:0][Chunk-1:0][31:0]                    index_address, index_data;

  assign last = now - SlotBits'(1);

  dma_list #(
    .Length(Length)
  ) u_list (
    .clk_i,
    .run_i,
    .count_i,
    .gaps_i,
    .done_i    (done),
    .start_o   (start),
    .next_o    (now),
    .start_at_o,
    .done_at_o,
    .finished_o(finished)
  );

  dma #(
    .HbmChunk    (Chunk),
    .HbmGranule  (Granule),
    .HbmLatency  (HbmLatency),
    .Segments    (Segments),
    .LocalLatency(LocalLatency),
    .HostP       (HostP),
    .HostQ       (HostQ),
    .HostSetup   (HostSetup),
    .HostLatency (HostLatency)
  ) u_dma (
    .clk_i,
    .rst_ni,
    .start_i        (start),
    .words_i        (words_i[now]),
    .pattern_i      (patterns_i[now]),
    .done_o         (done),
    .tail_o         (tail),
    .hbm_request_o  (request),
    .hbm_grant_i    (grant[0]),
    .buffer_o       (buffer),
    .buffer_base_i  (40'(buffer) * 40'(BufferBytes)),
    .host_start_o   (host_start),
    .host_out_o     (host_out),
    .host_number_o  (host_number),
    .host_bytes_o   (host_bytes),
    .host_ready_i   (host_ready[host_out]),
    .host_taken_o   (host_taken),
    .src_space_o    (src_space),
    .src_number_o   (src_number),
    .src_read_o     (src_read),
    .src_address_o  (src_address),
    .src_size_o     (src_size),
    .src_data_i     (src_data),
    .dst_space_o    (dst_space),
    .dst_number_o   (dst_number),
    .dst_write_o    (dst_write),
    .dst_address_o  (dst_address),
    .dst_size_o     (dst_size),
    .dst_data_o     (dst_data),
    .index_read_o   (index_read),
    .index_address_o(index_address),
    .index_data_i   (index_data)
  );

  // The other client of HBM.
  logic [31:0] random;
  logic        other;

  logic unused_grant;
  assign other        = random[7:0] < other_i;
  assign unused_grant = grant[1];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) random <= 32'd1;
    else random <= random * 32'd1664525 + 32'd1013904223 ^ random >> 16;
  end

  hbm_ctrl #(
    .P    (P),
    .Q    (Q),
    .Chunk(Chunk)
  ) u_hbm_ctrl (
    .clk_i,
    .rst_ni   (rst_ni && run_i),
    .request_i({other, request}),
    .grant_o  (grant)
  );

  always_ff @(posedge clk_i) begin
    if (!run_i) grants_o <= '0;
    else if (grant[0]) grants_o[start ? now : last] <= grants_o[start ? now : last] + 32'd1;
    if (done) tails_o[last] <= tail;
  end

  // Memories, and what the copy reads.
  logic [Memories-1:0]                 dst_here;
  logic [Sources-1:0]                  src_here;
  logic [Sources-1:0][Chunk-1:0][31:0] read_data;
  logic [Chunk-1:0][31:0]              host_data;

  always_comb begin
    src_here = '0;
    dst_here = '0;
    unique case (src_space)
      systolith_pkg::SpaceHbm:  src_here[0] = 1'b1;
      systolith_pkg::SpaceVmem: src_here[1] = 1'b1;
      systolith_pkg::SpaceSmem: src_here[2] = 1'b1;
      default:                  src_here = '0;
    endcase
    unique case (dst_space)
      systolith_pkg::SpaceHbm:  dst_here[0] = 1'b1;
      systolith_pkg::SpaceVmem: dst_here[1] = 1'b1;
      systolith_pkg::SpaceSmem: dst_here[2] = 1'b1;
      systolith_pkg::SpaceLink: dst_here[(dst_number == '0) ? 3 : 4] = 1'b1;
      default:                  dst_here = '0;
    endcase
  end

  for (genvar m = 0; m < int'(Memories); m++) begin : gen_memories
    dma_memory #(
      .Bytes(Bytes),
      .E    (Chunk)
    ) u_memory (
      .clk_i,
      .load_i,
      .image_i  (images_i[m]),
      .write_i  (dst_here[m] ? dst_write : '0),
      .address_i(dst_address),
      .size_i   (dst_size),
      .data_i   (dst_data),
      .bytes_o  (images_o[m])
    );
  end

  for (genvar m = 0; m < int'(Sources); m++) begin : gen_sources
    dma_gather #(
      .Bytes(Bytes),
      .E    (Chunk)
    ) u_gather (
      .clk_i,
      .bytes_i  (images_o[m]),
      .read_i   (src_here[m] ? src_read : '0),
      .address_i(src_address),
      .size_i   (src_size),
      .data_o   (read_data[m])
    );
  end

  assign src_data = (src_space == systolith_pkg::SpaceHost) ? host_data : read_data[0] | read_data[1] | read_data[2];

  for (genvar n = 0; n < 2; n++) begin : gen_lists
    logic [Chunk-1:0][39:0] address;

    always_comb begin
      for (int unsigned e = 0; e < Chunk; e++) address[e] = 40'(index_address[n][e]);
    end

    dma_gather #(
      .Bytes(Bytes),
      .E    (Chunk)
    ) u_gather (
      .clk_i,
      .bytes_i  (images_o[1]),
      .read_i   (index_read[n]),
      .address_i(address),
      .size_i   (2'd2),
      .data_o   (index_data[n])
    );
  end

  // Host queues.
  host_queues #(
    .Queues(Queues),
    .Bytes (Bytes),
    .Room  (Bytes),
    .Times (4),
    .E     (Chunk)
  ) u_host (
    .clk_i,
    .rst_ni,
    .start_i       ({host_start && host_out, host_start && !host_out}),
    .start_number_i({2{host_number}}),
    .start_bytes_i ({2{host_bytes}}),
    .ready_o       (host_ready),
    .taken_i       (host_taken),
    .pop_i        ((src_space == systolith_pkg::SpaceHost) ? src_read : '0),
    .pop_number_i (src_number),
    .pop_size_i   (src_size),
    .pop_data_o   (host_data),
    .push_i       ((dst_space == systolith_pkg::SpaceHost) ? dst_write : '0),
    .push_number_i(dst_number),
    .push_size_i  (dst_size),
    .push_data_i  (dst_data)
  );

  always_ff @(posedge clk_i) begin
    if (load_i) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        for (int unsigned w = 0; w < Bytes / 4; w++) u_host.model_poke(64'(q * Bytes + 4 * w), infeed_i[q][w]);
        u_host.model_poke(64'(Queues * Bytes + 4 * q), Bytes);
      end
    end
    finished_o <= finished;
    if (finished && !finished_o) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        for (int unsigned w = 0; w < Bytes / 4; w++) outfeed_o[q][w] <= u_host.model_peek(64'(q * Bytes + 4 * w));
        outfeed_size_o[q] <= u_host.model_peek(64'(Queues * Bytes + 4 * q));
      end
    end
  end

endmodule
