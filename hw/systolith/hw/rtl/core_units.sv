// The units that compute: vector, cross-lane and matrix.  The vector unit reaches the matrix units' accumulators here, all
// other memory through ports.
module core_units
  import core_pkg::*;
  import systolith_pkg::space_e, systolith_pkg::MaxStreams;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Mxus = 1,
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
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
  parameter int unsigned Kernels = 256,
  parameter int unsigned ControlRows = 8192,
  parameter int unsigned Constants = 4096,
  // Each with a queue: vector, cross-lane, then weights and stream of each matrix unit.
  localparam int unsigned Units = 2 + 2 * Mxus,
  localparam int unsigned Elements = Lanes * Sublanes,
  localparam int unsigned Lists = LoadSlots + StoreSlots + AluSlots
) (
  input  logic                                                      clk_i,
  input  logic                                                      rst_ni,
  input  logic [Units-1:0]                                          start_i,
  output logic [Units-1:0]                                          done_o,
  input  logic [VpuWords-1:0][31:0]                                 vpu_words_i,
  input  pattern_t [MaxStreams-1:0]                                 vpu_pattern_i,
  input  logic [XluWords-1:0][31:0]                                 xlu_words_i,
  input  pattern_t [1:0]                                            xlu_pattern_i,
  input  logic [Mxus-1:0][1:0][MxuWords-1:0][31:0]                  mxu_words_i,
  input  pattern_t [Mxus-1:0][1:0]                                  mxu_pattern_i,
  // The vector unit.  Loads from accumulators, which are here, leave aside the data that come.
  output space_e [LoadSlots-1:0]                                    load_space_o,
  output logic [LoadSlots-1:0][Elements-1:0]                        load_read_o,
  output logic [LoadSlots-1:0][Elements-1:0][31:0]                  load_address_o,
  output logic [LoadSlots-1:0][1:0]                                 load_size_o,
  input  logic [LoadSlots-1:0][Elements-1:0][31:0]                  load_data_i,
  output space_e [StoreSlots-1:0]                                   store_space_o,
  output logic [StoreSlots-1:0][Elements-1:0]                       store_write_o,
  output logic [StoreSlots-1:0][Elements-1:0][31:0]                 store_address_o,
  output logic [StoreSlots-1:0][1:0]                                store_size_o,
  output logic [StoreSlots-1:0][Elements-1:0][31:0]                 store_data_o,
  output logic [Lists-1:0][Elements-1:0]                            vpu_list_read_o,
  output logic [Lists-1:0][Elements-1:0][31:0]                      vpu_list_address_o,
  input  logic [Lists-1:0][Elements-1:0][31:0]                      vpu_list_data_i,
  // The cross-lane unit.
  output logic [Lanes-1:0]                                          xlu_read_o,
  output logic [Lanes-1:0][31:0]                                    xlu_read_address_o,
  output logic [1:0]                                                xlu_read_size_o,
  input  logic [Lanes-1:0][31:0]                                    xlu_read_data_i,
  output logic [Lanes-1:0]                                          xlu_write_o,
  output logic [Lanes-1:0][31:0]                                    xlu_write_address_o,
  output logic [1:0]                                                xlu_write_size_o,
  output logic [Lanes-1:0][31:0]                                    xlu_write_data_o,
  output logic [1:0][Lanes-1:0]                                     xlu_list_read_o,
  output logic [1:0][Lanes-1:0][31:0]                               xlu_list_address_o,
  input  logic [1:0][Lanes-1:0][31:0]                               xlu_list_data_i,
  // The matrix units.
  output logic [Mxus-1:0][1:0][Segments-1:0]                        segment_read_o,
  output logic [Mxus-1:0][1:0][Segments-1:0][31:0]                  segment_address_o,
  input  logic [Mxus-1:0][1:0][Segments-1:0][SegmentBytes-1:0][7:0] segment_data_i
);

  // Which matrix unit has the accumulators.
  logic [LoadSlots-1:0][15:0]               load_buffer;
  logic [StoreSlots-1:0][15:0]              store_buffer;
  logic [LoadSlots-1:0][Elements-1:0][31:0] unit_data;

  vpu #(
    .Lanes       (Lanes),
    .Sublanes    (Sublanes),
    .AluSlots    (AluSlots),
    .LoadSlots   (LoadSlots),
    .StoreSlots  (StoreSlots),
    .TransSlots  (TransSlots),
    .AluLatency  (AluLatency),
    .LoadLatency (VpuLoadLatency),
    .TransLatency(TransLatency),
    .Kernels     (Kernels),
    .ControlRows (ControlRows),
    .Constants   (Constants)
  ) u_vpu (
    .clk_i,
    .rst_ni,
    .start_i        (start_i[0]),
    .words_i        (vpu_words_i),
    .pattern_i      (vpu_pattern_i),
    .done_o         (done_o[0]),
    .load_space_o   (load_space_o),
    .load_buffer_o  (load_buffer),
    .load_read_o    (load_read_o),
    .load_address_o (load_address_o),
    .load_size_o    (load_size_o),
    .load_data_i    (unit_data),
    .store_space_o  (store_space_o),
    .store_buffer_o (store_buffer),
    .store_write_o  (store_write_o),
    .store_address_o(store_address_o),
    .store_size_o   (store_size_o),
    .store_data_o   (store_data_o),
    .index_read_o   (vpu_list_read_o),
    .index_address_o(vpu_list_address_o),
    .index_data_i   (vpu_list_data_i)
  );

  xlu #(
    .Lanes   (Lanes),
    .Sublanes(Sublanes),
    .Latency (XluLatency)
  ) u_xlu (
    .clk_i,
    .rst_ni,
    .start_i        (start_i[1]),
    .words_i        (xlu_words_i),
    .pattern_i      (xlu_pattern_i),
    .done_o         (done_o[1]),
    .src_read_o     (xlu_read_o),
    .src_address_o  (xlu_read_address_o),
    .src_size_o     (xlu_read_size_o),
    .src_data_i     (xlu_read_data_i),
    .dst_write_o    (xlu_write_o),
    .dst_address_o  (xlu_write_address_o),
    .dst_size_o     (xlu_write_size_o),
    .dst_data_o     (xlu_write_data_o),
    .index_read_o   (xlu_list_read_o),
    .index_address_o(xlu_list_address_o),
    .index_data_i   (xlu_list_data_i)
  );

  core_matrix #(
    .Mxus        (Mxus),
    .Rows        (Rows),
    .Cols        (Cols),
    .AccRows     (AccRows),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes),
    .Loads       (LoadSlots),
    .Stores      (StoreSlots),
    .Elements    (Elements)
  ) u_matrix (
    .clk_i,
    .rst_ni,
    .start_i          (start_i[Units-1:2]),
    .words_i          (mxu_words_i),
    .pattern_i        (mxu_pattern_i),
    .done_o           (done_o[Units-1:2]),
    .segment_read_o   (segment_read_o),
    .segment_address_o(segment_address_o),
    .segment_data_i   (segment_data_i),
    .load_space_i     (load_space_o),
    .load_buffer_i    (load_buffer),
    .load_read_i      (load_read_o),
    .load_address_i   (load_address_o),
    .vmem_data_i      (load_data_i),
    .load_data_o      (unit_data),
    .store_space_i    (store_space_o),
    .store_buffer_i   (store_buffer),
    .store_write_i    (store_write_o),
    .store_address_i  (store_address_o),
    .store_data_i     (store_data_o)
  );

endmodule
