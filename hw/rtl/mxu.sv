// The matrix unit: two queues, the array, its accumulators, and the tokens that its queues wait for and signal.
module mxu
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,       // segments a port reads a cycle
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned FifoDepth = 4,
  parameter int unsigned TokenMax = 15,
  parameter int unsigned LoadLatency = 2,    // at least 1
  parameter int unsigned Pipeline = 4,       // at least 3: memory, gathering and widening, accumulator
  parameter int unsigned Others = 8,         // tokens that other queues may signal, and take, in a cycle
  localparam int unsigned RowBits = $clog2(AccRows),
  localparam int unsigned WeightsFlying = LoadLatency + 2,
  localparam int unsigned StreamFlying = Rows + Cols + Pipeline + 2
) (
  input  logic                                            clk_i,
  input  logic                                            rst_ni,
  // Instructions, their operands resolved; queue 0 is the weights', queue 1 the stream's.
  input  logic [1:0]                                      valid_i,
  output logic [1:0]                                      ready_o,
  input  instr_t                                          instr_i,
  // Tokens of other queues: what retires there, what starts there (NoToken: none).
  input  logic [Others-1:0][7:0]                          signalled_i,
  input  logic [Others-1:0][7:0]                          taken_i,
  output logic                                            overflow_o,
  // What happens in this cycle.
  output logic [1:0]                                      start_o,
  output logic [WeightsFlying-1:0]                        weights_retire_o,
  output logic [StreamFlying-1:0]                         stream_retire_o,
  // VMEM, a port a queue: data comes in the cycle after the address, at any alignment.
  output logic [1:0][Segments-1:0]                        read_o,
  output logic [1:0][Segments-1:0][31:0]                  address_o,
  input  logic [1:0][Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  // Accumulators: what is written in this cycle, by column; what is read, a cycle after the row was named.
  output logic [Cols-1:0]                                 acc_write_o,
  output logic [Cols-1:0][RowBits-1:0]                    acc_write_row_o,
  output logic [Cols-1:0][31:0]                           acc_write_data_o,
  input  logic [RowBits-1:0]                              acc_row_i,
  output logic [Cols-1:0][31:0]                           acc_data_o
);

  localparam int unsigned Lanes = (Rows > Cols) ? Rows : Cols;
  localparam int unsigned Own = (WeightsFlying + StreamFlying) * TokensPerInstr;

  work_t work;

  assign work.waits   = instr_i.waits;
  assign work.signals = instr_i.signals;
  assign work.fence   = instr_i.fence;
  assign work.command = instr_i.command;

  walk_prepare #(.SegmentBytes(SegmentBytes)) u_prepare (
    .pattern_i  (instr_i.pattern),
    .row_loops_i(instr_i.row_loops),
    .walk_o     (work.walk)
  );

  // Tokens.
  logic [1:0][TokensPerInstr-1:0][7:0]               waits;
  logic [1:0]                                        tokens;
  logic [WeightsFlying-1:0][TokensPerInstr-1:0][7:0] weights_signals;
  logic [StreamFlying-1:0][TokensPerInstr-1:0][7:0]  stream_signals;
  logic [Own-1:0]                                    own_valid;

  always_comb begin
    for (int unsigned f = 0; f < Own / TokensPerInstr; f++) begin
      own_valid[f*TokensPerInstr+:TokensPerInstr] = {
          TokensPerInstr{(f < WeightsFlying) ? weights_retire_o[f % WeightsFlying]
                                             : stream_retire_o[(f - WeightsFlying) % StreamFlying]}};
    end
  end

  token_counters #(
    .Max    (TokenMax),
    .Signals(Own + Others),
    .Taken  (Others)
  ) u_tokens (
    .clk_i,
    .rst_ni,
    .signal_valid_i({{Others{1'b1}}, own_valid}),
    .signal_i      ({signalled_i, stream_signals, weights_signals}),
    .waits_i       (waits),
    .available_o   (tokens),
    .take_i        (start_o),
    .taken_i,
    .overflow_o
  );

  // Queues.
  logic                   weights_valid, weights_first, weights_transpose;
  logic [15:0]            weights_number;
  logic [Lanes-1:0][15:0] weights;

  mxu_weights #(
    .Rows        (Rows),
    .Cols        (Cols),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes),
    .Depth       (FifoDepth),
    .LoadLatency (LoadLatency)
  ) u_weights (
    .clk_i,
    .rst_ni,
    .valid_i            (valid_i[0]),
    .ready_o            (ready_o[0]),
    .work_i             (work),
    .waits_o            (waits[0]),
    .tokens_i           (tokens[0]),
    .start_o            (start_o[0]),
    .retire_o           (weights_retire_o),
    .signals_o          (weights_signals),
    .read_o             (read_o[0]),
    .address_o          (address_o[0]),
    .data_i             (data_i[0]),
    .weights_valid_o    (weights_valid),
    .weights_first_o    (weights_first),
    .weights_transpose_o(weights_transpose),
    .weights_number_o   (weights_number),
    .weights_o          (weights)
  );

  wave_t                 wave;
  sum_t                  sum;
  logic [Rows-1:0][15:0] x;
  logic [Cols-1:0][31:0] sums;

  mxu_stream #(
    .Rows        (Rows),
    .Cols        (Cols),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes),
    .Depth       (FifoDepth),
    .Pipeline    (Pipeline)
  ) u_stream (
    .clk_i,
    .rst_ni,
    .valid_i  (valid_i[1]),
    .ready_o  (ready_o[1]),
    .work_i   (work),
    .waits_o  (waits[1]),
    .tokens_i (tokens[1]),
    .start_o  (start_o[1]),
    .retire_o (stream_retire_o),
    .signals_o(stream_signals),
    .read_o   (read_o[1]),
    .address_o(address_o[1]),
    .data_i   (data_i[1]),
    .wave_o   (wave),
    .x_o      (x),
    .sum_o    (sum)
  );

  mxu_array #(
    .Rows(Rows),
    .Cols(Cols)
  ) u_array (
    .clk_i,
    .rst_ni,
    .wave_i             (wave),
    .x_i                (x),
    .weights_valid_i    (weights_valid),
    .weights_first_i    (weights_first),
    .weights_transpose_i(weights_transpose),
    .weights_number_i   (weights_number),
    .weights_i          (weights),
    .sums_o             (sums)
  );

  mxu_acc #(
    .Cols   (Cols),
    .AccRows(AccRows),
    .Delay  (Rows)
  ) u_acc (
    .clk_i,
    .rst_ni,
    .sum_i       (sum),
    .sums_i      (sums),
    .write_o     (acc_write_o),
    .write_row_o (acc_write_row_o),
    .write_data_o(acc_write_data_o),
    .row_i       (acc_row_i),
    .data_o      (acc_data_o)
  );

`ifndef SYNTHESIS
  // The last sum is written at the end of cycle (last access + 3 + Rows + Cols - 1), and must be there at retirement.
  initial begin
    assert (Pipeline >= 3)
    else $fatal(1, "mxu: Pipeline is %0d, must be at least 3", Pipeline);
    assert (LoadLatency >= 1)
    else $fatal(1, "mxu: LoadLatency is %0d, must be at least 1", LoadLatency);
    assert (SegmentBytes >= 4)
    else $fatal(1, "mxu: SegmentBytes is %0d, must be at least 4", SegmentBytes);
  end

  logic dtype_ok;

  always_comb begin
    unique case (instr_i.pattern.dtype)
      systolith_pkg::DtypePred, systolith_pkg::DtypeS4, systolith_pkg::DtypeU4,
      systolith_pkg::DtypeS8, systolith_pkg::DtypeU8: dtype_ok = instr_i.command.is_integer;
      systolith_pkg::DtypeBf16, systolith_pkg::DtypeF16, systolith_pkg::DtypeF32,
      systolith_pkg::DtypeF8e4m3fn, systolith_pkg::DtypeF8e5m2,
      systolith_pkg::DtypeF8e4m3fnuz, systolith_pkg::DtypeF8e5m2fnuz: dtype_ok = !instr_i.command.is_integer;
      default: dtype_ok = 1'b0;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && |(valid_i & ready_o) && (instr_i.command.op == OpLoad || instr_i.command.op == OpMatmul)) begin
      assert (dtype_ok)
      else $error("mxu: element type %0d with integer = %0d", instr_i.pattern.dtype, instr_i.command.is_integer);
      assert (!instr_i.command.is_integer || instr_i.pattern.fill + 32'd256 < 32'd512)
      else $error("mxu: fill %0d is not an operand of the integer mode", $signed(instr_i.pattern.fill));
    end
    assert (!rst_ni || !overflow_o)
    else $error("mxu: a token was signalled beyond %0d", TokenMax);
  end
`endif

endmodule
