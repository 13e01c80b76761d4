// The stream queue: nop, mxu.latch and mxu.matmul.
module mxu_stream
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned Depth = 4,
  parameter int unsigned Pipeline = 4,
  localparam int unsigned Lanes = (Rows > Cols) ? Rows : Cols,
  localparam int unsigned Flying = Rows + Cols + Pipeline + 2
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic                                       valid_i,
  output logic                                       ready_o,
  input  work_t                                      work_i,
  output logic [TokensPerInstr-1:0][7:0]             waits_o,
  input  logic                                       tokens_i,
  output logic                                       start_o,
  output logic [Flying-1:0]                          retire_o,
  output logic [Flying-1:0][TokensPerInstr-1:0][7:0] signals_o,
  output logic [Segments-1:0]                        read_o,
  output logic [Segments-1:0][31:0]                  address_o,
  input  logic [Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  output wave_t                                      wave_o,
  output logic [Rows-1:0][15:0]                      x_o,
  output sum_t                                       sum_o
);

  logic                   busy, last, valid, first;
  command_t               started, command;
  walk_t                  walk;
  logic [Lanes-1:0][15:0] operands;
  logic                   unused_ok;

  work_queue #(
    .Depth(Depth),
    .Tail (Rows + Cols + Pipeline)
  ) u_queue (
    .clk_i,
    .rst_ni,
    .valid_i,
    .ready_o,
    .work_i,
    .waits_o,
    .tokens_i,
    .start_o,
    .command_o(started),
    .walk_o   (walk),
    .busy_i   (busy),
    .last_i   (last),
    .retire_o,
    .signals_o
  );

  row_reader #(
    .Lanes       (Lanes),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes)
  ) u_reader (
    .clk_i,
    .rst_ni,
    .start_i   (start_o),
    .command_i (started),
    .walk_i    (walk),
    .busy_o    (busy),
    .last_o    (last),
    .read_o,
    .address_o,
    .data_i,
    .valid_o   (valid),
    .first_o   (first),
    .command_o (command),
    .operands_o(operands)
  );

  // Accumulator rows follow one another.
  logic [31:0] row_q;

  assign wave_o.latch      = valid && command.op == OpLatch;
  assign wave_o.is_integer = command.is_integer;
  assign x_o               = operands[Rows-1:0];
  assign sum_o.valid       = valid && command.op == OpMatmul;
  assign sum_o.accumulate  = command.accumulate;
  assign sum_o.is_integer  = command.is_integer;
  assign sum_o.row         = first ? command.acc_row : row_q;
  assign unused_ok         = ^{operands, command.transpose, command.part};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) row_q <= '0;
    else if (sum_o.valid) row_q <= sum_o.row + 32'd1;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni && start_o) begin
      assert (started.op != OpLoad)
      else $error("the stream queue was given a load");
    end
  end
`endif

endmodule
