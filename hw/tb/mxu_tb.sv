// What the bench drives: a matrix unit and the memory it reads from.
module mxu_tb
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned FifoDepth = 4,
  parameter int unsigned TokenMax = 15,
  parameter int unsigned LoadLatency = 2,
  parameter int unsigned Pipeline = 4,
  parameter int unsigned VmemBytes = 262144,
  localparam int unsigned Others = 8,
  localparam int unsigned WriteBytes = 64
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,
  input  logic [1:0]                 valid_i,
  output logic [1:0]                 ready_o,
  input  logic [$bits(instr_t)-1:0]  instr_i,
  input  logic [Others-1:0][7:0]     signalled_i,
  input  logic [Others-1:0][7:0]     taken_i,
  output logic                       overflow_o,
  output logic [1:0]                 start_o,
  output logic [1:0][15:0]           retired_o,        // how many retire in this cycle
  input  logic                       write_clk_i,
  input  logic [WriteBytes-1:0]      write_i,
  input  logic [31:0]                write_address_i,
  input  logic [WriteBytes-1:0][7:0] write_data_i,
  output logic                       acc_write_o,      // a row, once its last column is written
  output logic [31:0]                acc_write_row_o,
  output logic [Cols-1:0][31:0]      acc_write_data_o,
  input  logic [31:0]                acc_row_i,
  output logic [Cols-1:0][31:0]      acc_data_o
);

  logic [LoadLatency+1:0]                          weights_retire;
  logic [Rows+Cols+Pipeline+1:0]                   stream_retire;
  logic [1:0][Segments-1:0]                        read;
  logic [1:0][Segments-1:0][31:0]                  address;
  logic [1:0][Segments-1:0][SegmentBytes-1:0][7:0] data;

  localparam int unsigned RowBits = $clog2(AccRows);

  logic [Cols-1:0]              write;
  logic [Cols-1:0][RowBits-1:0] write_row;
  logic [Cols-1:0][31:0]        write_data;

  mxu #(
    .Rows        (Rows),
    .Cols        (Cols),
    .AccRows     (AccRows),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes),
    .FifoDepth   (FifoDepth),
    .TokenMax    (TokenMax),
    .LoadLatency (LoadLatency),
    .Pipeline    (Pipeline),
    .Others      (Others)
  ) u_mxu (
    .clk_i,
    .rst_ni,
    .valid_i,
    .ready_o,
    .instr_i,
    .signalled_i,
    .taken_i,
    .overflow_o,
    .start_o,
    .weights_retire_o(weights_retire),
    .stream_retire_o (stream_retire),
    .read_o          (read),
    .address_o       (address),
    .data_i          (data),
    .acc_write_o     (write),
    .acc_write_row_o (write_row),
    .acc_write_data_o(write_data),
    .acc_row_i       (acc_row_i[RowBits-1:0]),
    .acc_data_o
  );

  // Columns are written one cycle after the other: all wait for the last.
  logic [Cols-1:0]              aligned;
  logic [Cols-1:0][RowBits-1:0] aligned_row;

  for (genvar c = 0; c < int'(Cols); c++) begin : gen_align
    delay_line #(
      .Width (1 + RowBits + 32),
      .Cycles(Cols - 1 - c)
    ) u_align (
      .clk_i,
      .rst_ni,
      .data_i({write[c], write_row[c], write_data[c]}),
      .data_o({aligned[c], aligned_row[c], acc_write_data_o[c]})
    );
  end

  assign acc_write_o     = aligned[0];
  assign acc_write_row_o = 32'(aligned_row[0]);

  always_ff @(posedge clk_i) begin
    assert (!rst_ni || aligned == {Cols{aligned[0]}})
    else $error("mxu_tb: the columns of a row are not written one after the other");
  end

  assign retired_o[0] = 16'($countones(weights_retire));
  assign retired_o[1] = 16'($countones(stream_retire));

  vmem_model #(
    .Bytes       (VmemBytes),
    .Ports       (2 * Segments),
    .SegmentBytes(SegmentBytes),
    .WriteBytes  (WriteBytes)
  ) u_vmem (
    .clk_i,
    .write_clk_i,
    .read_i         (read),
    .address_i      (address),
    .data_o         (data),
    .write_i,
    .write_address_i,
    .write_data_i
  );

  logic unused_row;
  assign unused_row = ^{acc_row_i[31:RowBits], aligned_row};

endmodule
