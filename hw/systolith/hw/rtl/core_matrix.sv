// The matrix units, and the vector unit's way to their accumulators.
module core_matrix
  import core_pkg::*;
  import systolith_pkg::space_e, systolith_pkg::SpaceAcc;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Mxus = 1,
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned Loads = 1,
  parameter int unsigned Stores = 1,
  parameter int unsigned Elements = 16
) (
  input  logic                                                      clk_i,
  input  logic                                                      rst_ni,
  // 0: weights, 1: stream.
  input  logic [Mxus-1:0][1:0]                                      start_i,
  input  logic [Mxus-1:0][1:0][MxuWords-1:0][31:0]                  words_i,
  input  pattern_t [Mxus-1:0][1:0]                                  pattern_i,
  output logic [Mxus-1:0][1:0]                                      done_o,
  output logic [Mxus-1:0][1:0][Segments-1:0]                        segment_read_o,
  output logic [Mxus-1:0][1:0][Segments-1:0][31:0]                  segment_address_o,
  input  logic [Mxus-1:0][1:0][Segments-1:0][SegmentBytes-1:0][7:0] segment_data_i,
  // The vector unit's loads and stores; data of loads that are not from accumulators come from VMEM.
  input  space_e [Loads-1:0]                                        load_space_i,
  input  logic [Loads-1:0][15:0]                                    load_buffer_i,
  input  logic [Loads-1:0][Elements-1:0]                            load_read_i,
  input  logic [Loads-1:0][Elements-1:0][31:0]                      load_address_i,
  input  logic [Loads-1:0][Elements-1:0][31:0]                      vmem_data_i,
  output logic [Loads-1:0][Elements-1:0][31:0]                      load_data_o,
  input  space_e [Stores-1:0]                                       store_space_i,
  input  logic [Stores-1:0][15:0]                                   store_buffer_i,
  input  logic [Stores-1:0][Elements-1:0]                           store_write_i,
  input  logic [Stores-1:0][Elements-1:0][31:0]                     store_address_i,
  input  logic [Stores-1:0][Elements-1:0][31:0]                     store_data_i
);

  logic [Mxus-1:0][Loads-1:0][Elements-1:0]       read;
  logic [Mxus-1:0][Stores-1:0][Elements-1:0]      write;
  logic [Mxus-1:0][Loads-1:0][Elements-1:0][31:0] data;

  for (genvar m = 0; m < int'(Mxus); m++) begin : gen_mxu
    for (genvar s = 0; s < int'(Loads); s++) begin : gen_loads
      assign read[m][s] = (load_space_i[s] == SpaceAcc && load_buffer_i[s] == 16'(m)) ? load_read_i[s] : '0;
    end

    for (genvar s = 0; s < int'(Stores); s++) begin : gen_stores
      assign write[m][s] = (store_space_i[s] == SpaceAcc && store_buffer_i[s] == 16'(m)) ? store_write_i[s] : '0;
    end

    mxu #(
      .Rows        (Rows),
      .Cols        (Cols),
      .AccRows     (AccRows),
      .Segments    (Segments),
      .SegmentBytes(SegmentBytes),
      .Gathers     (Loads),
      .Scatters    (Stores),
      .Elements    (Elements)
    ) u_mxu (
      .clk_i,
      .rst_ni,
      .start_i            (start_i[m]),
      .words_i            (words_i[m]),
      .pattern_i          (pattern_i[m]),
      .done_o             (done_o[m]),
      .read_o             (segment_read_o[m]),
      .address_o          (segment_address_o[m]),
      .data_i             (segment_data_i[m]),
      .acc_read_i         (read[m]),
      .acc_read_address_i (load_address_i),
      .acc_data_o         (data[m]),
      .acc_write_i        (write[m]),
      .acc_write_address_i(store_address_i),
      .acc_write_data_i   (store_data_i)
    );
  end

  for (genvar s = 0; s < int'(Loads); s++) begin : gen_load_data
    always_comb begin
      load_data_o[s] = vmem_data_i[s];
      for (int unsigned m = 0; m < Mxus; m++) begin
        if (load_space_i[s] == SpaceAcc && load_buffer_i[s] == 16'(m)) load_data_o[s] = data[m][s];
      end
    end
  end

endmodule
