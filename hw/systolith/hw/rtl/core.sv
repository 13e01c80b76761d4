// The core: SEQ, queues, units and memories.  Parameters are the fields of a chip, with the values of `tiny`.
module core
  import core_pkg::*;
  import systolith_pkg::space_e, systolith_pkg::MaxStreams;
  import walk_pkg::pattern_t;
#(
  // SEQ, scalar memory, queues, tokens.
  parameter int unsigned FetchWords = 8,
  parameter int unsigned BranchPenalty = 2,
  parameter int unsigned SmemBytes = 4096,
  parameter int unsigned FifoDepth = 4,
  parameter int unsigned TokenMax = 15,
  // Matrix units.
  parameter int unsigned Mxus = 1,
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned LoadLatency = 2,
  parameter int unsigned Pipeline = 4,
  // Vector unit, cross-lane unit, VMEM.
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  parameter int unsigned AluSlots = 2,
  parameter int unsigned LoadSlots = 1,
  parameter int unsigned StoreSlots = 1,
  parameter int unsigned TransSlots = 1,
  parameter int unsigned AluLatency = 2,
  parameter int unsigned VpuLoadLatency = 3,
  parameter int unsigned TransLatency = 8,
  parameter int unsigned XluLatency = 4,
  parameter int unsigned VmemBytes = 262144,
  // HBM, DMA, host, links.
  parameter longint unsigned HbmBytes = 64'd16777216,
  parameter int unsigned HbmP = 16,
  parameter int unsigned HbmQ = 1,
  parameter int unsigned HbmChunk = 32,
  parameter int unsigned HbmGranule = 16,
  parameter int unsigned HbmLatency = 20,
  parameter int unsigned DmaSegments = 2,
  parameter int unsigned DmaLocalLatency = 6,
  parameter int unsigned HostQueues = 2,
  parameter int unsigned HostP = 4,
  parameter int unsigned HostQ = 1,
  parameter int unsigned HostSetup = 8,
  parameter int unsigned HostLatency = 24,
  parameter int unsigned HostRoom = 16384,
  parameter int unsigned Links = 2,
  // Capacities of the models of tables and memories.
  parameter int unsigned ImemWords = 65536,
  parameter int unsigned Patterns = 1024,
  parameter int unsigned Buffers = 256,
  parameter int unsigned Kernels = 256,
  parameter int unsigned ControlRows = 8192,
  parameter int unsigned Constants = 4096,
  parameter int unsigned HbmModelBytes = 16777216,
  parameter int unsigned HostBytes = 65536,
  parameter int unsigned HostTimes = 1024
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        go_i,         // the cycle after the first in which it is high is cycle 0
  output logic        done_o,       // SEQ has halted and everything has retired
  output logic        trapped_o,
  output logic [15:0] trap_code_o
);

  localparam int unsigned Queues = 4 + 2 * Mxus;
  localparam int unsigned Elements = Lanes * Sublanes;
  localparam int unsigned Lists = LoadSlots + StoreSlots + AluSlots;
  localparam int unsigned MemoryTail = (HbmLatency > DmaLocalLatency) ? HbmLatency : DmaLocalLatency;
  localparam int unsigned DmaTail = (MemoryTail > HostLatency) ? MemoryTail : HostLatency;
  localparam int unsigned StreamTail = Rows + Cols + Pipeline;

  // SEQ and the queues.
  logic [31:0]                              smem_address, smem_in, smem_out;
  logic                                     smem_write;
  logic [Queues-1:0]                        start, done;
  logic [1:0][31:0]                         dma_tail;
  logic [1:0][DmaWords-1:0][31:0]           dma_words;
  logic [VpuWords-1:0][31:0]                vpu_words;
  logic [XluWords-1:0][31:0]                xlu_words;
  logic [Mxus-1:0][1:0][MxuWords-1:0][31:0] mxu_words;
  pattern_t [1:0][1:0]                      dma_pattern;
  pattern_t [MaxStreams-1:0]                vpu_pattern;
  pattern_t [1:0]                           xlu_pattern;
  pattern_t [Mxus-1:0][1:0]                 mxu_pattern;

  core_issue #(
    .ImemWords    (ImemWords),
    .FetchWords   (FetchWords),
    .BranchPenalty(BranchPenalty),
    .Patterns     (Patterns),
    .Mxus         (Mxus),
    .FifoDepth    (FifoDepth),
    .TokenMax     (TokenMax),
    .DmaTail      (DmaTail),
    .WeightsTail  (LoadLatency),
    .StreamTail   (StreamTail)
  ) u_issue (
    .clk_i,
    .rst_ni,
    .go_i,
    .done_o,
    .trapped_o,
    .trap_code_o,
    .smem_address_o(smem_address),
    .smem_data_i   (smem_out),
    .smem_write_o  (smem_write),
    .smem_data_o   (smem_in),
    .unit_start_o  (start),
    .dma_words_o   (dma_words),
    .dma_pattern_o (dma_pattern),
    .vpu_words_o   (vpu_words),
    .vpu_pattern_o (vpu_pattern),
    .xlu_words_o   (xlu_words),
    .xlu_pattern_o (xlu_pattern),
    .mxu_words_o   (mxu_words),
    .mxu_pattern_o (mxu_pattern),
    .done_i        (done),
    .dma_tail_i    (dma_tail)
  );

  // DMA.
  space_e [1:0]                                 src_space, dst_space;
  logic [15:0]                                  ld_number, st_number;
  logic [1:0]                                   host_start, host_ready;
  logic                                         host_taken;
  logic [1:0][15:0]                             host_number;
  logic [1:0][31:0]                             host_bytes;
  logic [1:0][HbmChunk-1:0]                     src_read, dst_write;
  logic [1:0][HbmChunk-1:0][HbmAddressBits-1:0] src_address, dst_address;
  logic [1:0][1:0]                              src_size, dst_size;
  logic [1:0][HbmChunk-1:0][31:0]               src_data, dst_data;
  logic [1:0][1:0][HbmChunk-1:0]                dma_list_read;
  logic [1:0][1:0][HbmChunk-1:0][31:0]          dma_list_address, dma_list_data;

  core_dma #(
    .Buffers     (Buffers),
    .HbmP        (HbmP),
    .HbmQ        (HbmQ),
    .HbmChunk    (HbmChunk),
    .HbmGranule  (HbmGranule),
    .HbmLatency  (HbmLatency),
    .Segments    (DmaSegments),
    .LocalLatency(DmaLocalLatency),
    .HostP       (HostP),
    .HostQ       (HostQ),
    .HostSetup   (HostSetup),
    .HostLatency (HostLatency)
  ) u_dma (
    .clk_i,
    .rst_ni,
    .start_i        (start[1:0]),
    .words_i        (dma_words),
    .pattern_i      (dma_pattern),
    .done_o         (done[1:0]),
    .tail_o         (dma_tail),
    .host_start_o   (host_start),
    .host_number_o  (host_number),
    .host_bytes_o   (host_bytes),
    .host_ready_i   (host_ready),
    .host_taken_o   (host_taken),
    .src_space_o    (src_space),
    .ld_number_o    (ld_number),
    .src_read_o     (src_read),
    .src_address_o  (src_address),
    .src_size_o     (src_size),
    .src_data_i     (src_data),
    .dst_space_o    (dst_space),
    .st_number_o    (st_number),
    .dst_write_o    (dst_write),
    .dst_address_o  (dst_address),
    .dst_size_o     (dst_size),
    .dst_data_o     (dst_data),
    .index_read_o   (dma_list_read),
    .index_address_o(dma_list_address),
    .index_data_i   (dma_list_data)
  );

  // The vector, cross-lane and matrix units.
  space_e [LoadSlots-1:0]                                    load_space;
  logic [LoadSlots-1:0][Elements-1:0]                        load_read;
  logic [LoadSlots-1:0][Elements-1:0][31:0]                  load_address, load_data;
  logic [LoadSlots-1:0][1:0]                                 load_size;
  space_e [StoreSlots-1:0]                                   store_space;
  logic [StoreSlots-1:0][Elements-1:0]                       store_write;
  logic [StoreSlots-1:0][Elements-1:0][31:0]                 store_address, store_data;
  logic [StoreSlots-1:0][1:0]                                store_size;
  logic [Lists-1:0][Elements-1:0]                            vpu_list_read;
  logic [Lists-1:0][Elements-1:0][31:0]                      vpu_list_address, vpu_list_data;
  logic [Lanes-1:0]                                          xlu_read, xlu_write;
  logic [Lanes-1:0][31:0]                                    xlu_read_address, xlu_read_data;
  logic [Lanes-1:0][31:0]                                    xlu_write_address, xlu_write_data;
  logic [1:0]                                                xlu_read_size, xlu_write_size;
  logic [1:0][Lanes-1:0]                                     xlu_list_read;
  logic [1:0][Lanes-1:0][31:0]                               xlu_list_address, xlu_list_data;
  logic [Mxus-1:0][1:0][Segments-1:0]                        segment_read;
  logic [Mxus-1:0][1:0][Segments-1:0][31:0]                  segment_address;
  logic [Mxus-1:0][1:0][Segments-1:0][SegmentBytes-1:0][7:0] segment_data;

  core_units #(
    .Mxus          (Mxus),
    .Rows          (Rows),
    .Cols          (Cols),
    .AccRows       (AccRows),
    .Segments      (Segments),
    .SegmentBytes  (SegmentBytes),
    .Lanes         (Lanes),
    .Sublanes      (Sublanes),
    .AluSlots      (AluSlots),
    .LoadSlots     (LoadSlots),
    .StoreSlots    (StoreSlots),
    .TransSlots    (TransSlots),
    .AluLatency    (AluLatency),
    .VpuLoadLatency(VpuLoadLatency),
    .TransLatency  (TransLatency),
    .XluLatency    (XluLatency),
    .Kernels       (Kernels),
    .ControlRows   (ControlRows),
    .Constants     (Constants)
  ) u_units (
    .clk_i,
    .rst_ni,
    .start_i            (start[Queues-1:2]),
    .done_o             (done[Queues-1:2]),
    .vpu_words_i        (vpu_words),
    .vpu_pattern_i      (vpu_pattern),
    .xlu_words_i        (xlu_words),
    .xlu_pattern_i      (xlu_pattern),
    .mxu_words_i        (mxu_words),
    .mxu_pattern_i      (mxu_pattern),
    .load_space_o       (load_space),
    .load_read_o        (load_read),
    .load_address_o     (load_address),
    .load_size_o        (load_size),
    .load_data_i        (load_data),
    .store_space_o      (store_space),
    .store_write_o      (store_write),
    .store_address_o    (store_address),
    .store_size_o       (store_size),
    .store_data_o       (store_data),
    .vpu_list_read_o    (vpu_list_read),
    .vpu_list_address_o (vpu_list_address),
    .vpu_list_data_i    (vpu_list_data),
    .xlu_read_o         (xlu_read),
    .xlu_read_address_o (xlu_read_address),
    .xlu_read_size_o    (xlu_read_size),
    .xlu_read_data_i    (xlu_read_data),
    .xlu_write_o        (xlu_write),
    .xlu_write_address_o(xlu_write_address),
    .xlu_write_size_o   (xlu_write_size),
    .xlu_write_data_o   (xlu_write_data),
    .xlu_list_read_o    (xlu_list_read),
    .xlu_list_address_o (xlu_list_address),
    .xlu_list_data_i    (xlu_list_data),
    .segment_read_o     (segment_read),
    .segment_address_o  (segment_address),
    .segment_data_i     (segment_data)
  );

  core_memories #(
    .VmemBytes   (VmemBytes),
    .SmemBytes   (SmemBytes),
    .HbmBytes    (HbmBytes),
    .ModelBytes  (HbmModelBytes),
    .HostQueues  (HostQueues),
    .HostBytes   (HostBytes),
    .HostRoom    (HostRoom),
    .HostTimes   (HostTimes),
    .Links       (Links),
    .DmaElements (HbmChunk),
    .VpuElements (Elements),
    .XluElements (Lanes),
    .Loads       (LoadSlots),
    .Stores      (StoreSlots),
    .Lists       (Lists),
    .Segments    (2 * Mxus * Segments),
    .SegmentBytes(SegmentBytes)
  ) u_memories (
    .clk_i,
    .rst_ni,
    .seq_address_i      (smem_address),
    .seq_data_o         (smem_out),
    .seq_write_i        (smem_write),
    .seq_data_i         (smem_in),
    .host_start_i       (host_start),
    .host_number_i      (host_number),
    .host_bytes_i       (host_bytes),
    .host_ready_o       (host_ready),
    .host_taken_i       (host_taken),
    .ld_number_i        (ld_number),
    .st_number_i        (st_number),
    .dma_src_space_i    (src_space),
    .dma_src_read_i     (src_read),
    .dma_src_address_i  (src_address),
    .dma_src_size_i     (src_size),
    .dma_src_data_o     (src_data),
    .dma_dst_space_i    (dst_space),
    .dma_dst_write_i    (dst_write),
    .dma_dst_address_i  (dst_address),
    .dma_dst_size_i     (dst_size),
    .dma_dst_data_i     (dst_data),
    .dma_list_read_i    (dma_list_read),
    .dma_list_address_i (dma_list_address),
    .dma_list_data_o    (dma_list_data),
    .vpu_read_space_i   (load_space),
    .vpu_read_i         (load_read),
    .vpu_read_address_i (load_address),
    .vpu_read_size_i    (load_size),
    .vpu_read_data_o    (load_data),
    .vpu_write_space_i  (store_space),
    .vpu_write_i        (store_write),
    .vpu_write_address_i(store_address),
    .vpu_write_size_i   (store_size),
    .vpu_write_data_i   (store_data),
    .vpu_list_read_i    (vpu_list_read),
    .vpu_list_address_i (vpu_list_address),
    .vpu_list_data_o    (vpu_list_data),
    .xlu_read_i         (xlu_read),
    .xlu_read_address_i (xlu_read_address),
    .xlu_read_size_i    (xlu_read_size),
    .xlu_read_data_o    (xlu_read_data),
    .xlu_write_i        (xlu_write),
    .xlu_write_address_i(xlu_write_address),
    .xlu_write_size_i   (xlu_write_size),
    .xlu_write_data_i   (xlu_write_data),
    .xlu_list_read_i    (xlu_list_read),
    .xlu_list_address_i (xlu_list_address),
    .xlu_list_data_o    (xlu_list_data),
    .segment_read_i     (segment_read),
    .segment_address_i  (segment_address),
    .segment_data_o     (segment_data)
  );

endmodule
