// The two DMA units, the buffer table that they look HBM buffers up in, and the controller that grants them chunks.
module core_dma
  import core_pkg::*;
  import systolith_pkg::space_e;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Buffers = 256,
  parameter int unsigned HbmP = 16,
  parameter int unsigned HbmQ = 1,
  parameter int unsigned HbmChunk = 32,
  parameter int unsigned HbmGranule = 16,
  parameter int unsigned HbmLatency = 20,
  parameter int unsigned Segments = 2,
  parameter int unsigned LocalLatency = 6,
  parameter int unsigned HostP = 4,
  parameter int unsigned HostQ = 1,
  parameter int unsigned HostSetup = 8,
  parameter int unsigned HostLatency = 24,
  localparam int unsigned E = HbmChunk
) (
  input  logic                                  clk_i,
  input  logic                                  rst_ni,
  // 0: ld, 1: st.
  input  logic [1:0]                            start_i,
  input  logic [1:0][DmaWords-1:0][31:0]        words_i,
  input  pattern_t [1:0][1:0]                   pattern_i,
  output logic [1:0]                            done_o,
  output logic [1:0][31:0]                      tail_o,
  output logic [1:0]                            host_start_o,     // a transfer from (ld) or to (st) a host queue starts
  output logic [1:0][15:0]                      host_number_o,
  output logic [1:0][31:0]                      host_bytes_o,
  input  logic [1:0]                            host_ready_i,
  output logic                                  host_taken_o,     // that of ld ends
  output space_e [1:0]                          src_space_o,
  output logic [15:0]                           ld_number_o,      // host queue that ld reads
  output logic [1:0][E-1:0]                     src_read_o,
  output logic [1:0][E-1:0][HbmAddressBits-1:0] src_address_o,
  output logic [1:0][1:0]                       src_size_o,
  input  logic [1:0][E-1:0][31:0]               src_data_i,
  output space_e [1:0]                          dst_space_o,
  output logic [15:0]                           st_number_o,      // host queue or link that st writes
  output logic [1:0][E-1:0]                     dst_write_o,
  output logic [1:0][E-1:0][HbmAddressBits-1:0] dst_address_o,
  output logic [1:0][1:0]                       dst_size_o,
  output logic [1:0][E-1:0][31:0]               dst_data_o,
  output logic [1:0][1:0][E-1:0]                index_read_o,
  output logic [1:0][1:0][E-1:0][31:0]          index_address_o,
  input  logic [1:0][1:0][E-1:0][31:0]          index_data_i
);

  logic [1:0]                     request, grant, unused_out, taken;
  logic                           unused_taken;
  logic [1:0][15:0]               number, src_number, dst_number;
  logic [1:0][HbmAddressBits-1:0] base;

  hbm_ctrl #(
    .P    (HbmP),
    .Q    (HbmQ),
    .Chunk(HbmChunk)
  ) u_hbm_ctrl (
    .clk_i,
    .rst_ni,
    .request_i(request),
    .grant_o  (grant)
  );

  buffer_table #(
    .Entries(Buffers),
    .Ports  (2)
  ) u_buffers (
    .buffer_i(number),
    .base_o  (base)
  );

  assign host_taken_o = taken[0];
  assign unused_taken = taken[1];

  assign ld_number_o = src_number[0];
  assign st_number_o = dst_number[1];

  for (genvar d = 0; d < 2; d++) begin : gen_dma
    dma #(
      .HbmChunk    (HbmChunk),
      .HbmGranule  (HbmGranule),
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
      .start_i        (start_i[d]),
      .words_i        (words_i[d]),
      .pattern_i      (pattern_i[d]),
      .done_o         (done_o[d]),
      .tail_o         (tail_o[d]),
      .hbm_request_o  (request[d]),
      .hbm_grant_i    (grant[d]),
      .buffer_o       (number[d]),
      .buffer_base_i  (base[d]),
      .host_start_o   (host_start_o[d]),
      .host_out_o     (unused_out[d]),
      .host_number_o  (host_number_o[d]),
      .host_bytes_o   (host_bytes_o[d]),
      .host_ready_i   (host_ready_i[d]),
      .host_taken_o   (taken[d]),
      .src_space_o    (src_space_o[d]),
      .src_number_o   (src_number[d]),
      .src_read_o     (src_read_o[d]),
      .src_address_o  (src_address_o[d]),
      .src_size_o     (src_size_o[d]),
      .src_data_i     (src_data_i[d]),
      .dst_space_o    (dst_space_o[d]),
      .dst_number_o   (dst_number[d]),
      .dst_write_o    (dst_write_o[d]),
      .dst_address_o  (dst_address_o[d]),
      .dst_size_o     (dst_size_o[d]),
      .dst_data_o     (dst_data_o[d]),
      .index_read_o   (index_read_o[d]),
      .index_address_o(index_address_o[d]),
      .index_data_i   (index_data_i[d])
    );
  end

endmodule
