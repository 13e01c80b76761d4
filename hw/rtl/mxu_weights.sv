// The weight queue: nop and mxu.load.
module mxu_weights
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned Depth = 4,
  parameter int unsigned LoadLatency = 2,
  localparam int unsigned Lanes = (Rows > Cols) ? Rows : Cols,
  localparam int unsigned Flying = LoadLatency + 2
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
  output logic                                       weights_valid_o,
  output logic                                       weights_first_o,
  output logic                                       weights_transpose_o,
  output logic [15:0]                                weights_number_o,
  output logic [Lanes-1:0][15:0]                     weights_o
);

  logic     busy, last, valid, first;
  command_t started, command;
  walk_t    walk;

  work_queue #(
    .Depth(Depth),
    .Tail (LoadLatency)
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
    .operands_o(weights_o)
  );

  // Rows (transposed: columns) of a tile are numbered as they come.
  logic [15:0] number_q;

  assign weights_valid_o     = valid;
  assign weights_first_o     = first;
  assign weights_transpose_o = command.transpose;
  assign weights_number_o    = first ? '0 : number_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) number_q <= '0;
    else if (valid) number_q <= weights_number_o + 16'd1;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni && start_o) begin
      assert (started.op == OpNop || started.op == OpLoad)
      else $error("the weight queue was given operation %0d", started.op);
    end
    if (rst_ni && valid) begin
      assert (weights_number_o < 16'(command.transpose ? Cols : Rows))
      else $error("mxu.load: row %0d of a tile of %0d x %0d", weights_number_o, Rows, Cols);
    end
  end
`endif

endmodule
