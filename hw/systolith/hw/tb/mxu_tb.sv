// Top of the bench: a matrix unit with its queues and their tokens, and the memory it reads from.
module mxu_tb
  import core_pkg::*;
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
  localparam int unsigned Others = 2,        // instructions of other queues that retire, and that start, in a cycle
  localparam int unsigned WriteBytes = 64,
  localparam int unsigned Elements = 16      // of an accumulator port
) (
  input  logic                                        clk_i,
  input  logic                                        rst_ni,
  // Queue 0 is the weights', queue 1 the stream's.
  input  logic [1:0]                                  push_i,
  input  logic [$bits(issue_t)-1:0]                   issue_i,
  input  logic [MxuWords-1:0][31:0]                   words_i,
  input  logic [$bits(walk_pkg::pattern_t)-1:0]       pattern_i,        // of the instruction pushed
  output logic [1:0]                                  ready_o,
  input  logic [Others-1:0][TokensPerInstr-1:0][7:0]  signalled_i,
  input  logic [Others-1:0][TokensPerInstr-1:0][7:0]  taken_i,
  output logic [1:0]                                  start_o,
  output logic [1:0][15:0]                            retired_o,        // how many retire in this cycle
  output logic                                        idle_o,
  input  logic                                        write_clk_i,
  input  logic [WriteBytes-1:0]                       write_i,
  input  logic [31:0]                                 write_address_i,
  input  logic [WriteBytes-1:0][7:0]                  write_data_i,
  output logic                                        row_write_o,      // a row, once its last column is written
  output logic [31:0]                                 row_address_o,
  output logic [Cols-1:0][31:0]                       row_data_o,
  input  logic [Elements-1:0]                         acc_read_i,
  input  logic [Elements-1:0]                         acc_write_i,
  input  logic [Elements-1:0][31:0]                   acc_address_i,
  input  logic [Elements-1:0][31:0]                   acc_data_i,
  output logic [Elements-1:0][31:0]                   acc_data_o
);

  // The pattern of an instruction goes through the queue with it, where the core looks it up at the start.
  localparam int unsigned PatternWords = ($bits(walk_pkg::pattern_t) + 31) / 32;
  localparam int unsigned Words = MxuWords + PatternWords;
  localparam int unsigned LoadFlying = LoadLatency + 2;
  localparam int unsigned StreamFlying = Rows + Cols + Pipeline + 2;
  localparam int unsigned Flying = (LoadFlying > StreamFlying) ? LoadFlying : StreamFlying;
  localparam int unsigned Slots = 2 * Flying + Others;

  logic [1:0][MxuWords-1:0][31:0]                    words;
  walk_pkg::pattern_t [1:0]                          pattern;
  logic [1:0]                                        unit_start, done, idle, tokens;
  logic [1:0][TokensPerInstr-1:0][7:0]               waits;
  logic [1:0][Flying-1:0]                            retire;
  logic [1:0][Flying-1:0][TokensPerInstr-1:0][7:0]   signals;
  logic [Others-1:0]                                 unused_tokens;
  logic                                              overflow;

  for (genvar q = 0; q < 2; q++) begin : gen_queues
    logic [Words-1:0][31:0]   head_words;
    issue_t                   unused_head;
    logic [Flying-1:0][31:0]  unused_numbers;

    unit_queue #(
      .Depth (FifoDepth),
      .Words (Words),
      .Flying(Flying)
    ) u_queue (
      .clk_i,
      .rst_ni,
      .push_valid_i(push_i[q]),
      .push_ready_o(ready_o[q]),
      .push_i      (issue_i),
      .push_words_i({(PatternWords * 32)'(pattern_i), words_i}),
      .waits_o     (waits[q]),
      .tokens_i    (tokens[q]),
      .start_o     (start_o[q]),
      .head_o      (unused_head),
      .head_words_o(head_words),
      .unit_start_o(unit_start[q]),
      .done_i      (done[q]),
      .tail_i      ((q == 0) ? LoadLatency : Rows + Cols + Pipeline),
      .retire_o    (retire[q]),
      .signals_o   (signals[q]),
      .number_o    (unused_numbers),
      .idle_o      (idle[q])
    );

    assign words[q]     = head_words[MxuWords-1:0];
    assign pattern[q]   = $bits(walk_pkg::pattern_t)'(head_words[Words-1:MxuWords]);
    assign retired_o[q] = 16'($countones(retire[q]));
  end

  assign idle_o = idle == '1;

  token_counters #(
    .Max   (TokenMax),
    .Slots (Slots),
    .Queues(2 + Others)
  ) u_tokens (
    .clk_i,
    .rst_ni,
    .retire_i   ({{Others{1'b1}}, retire}),
    .signals_i  ({signalled_i, signals}),
    .waits_i    ({taken_i, waits}),
    .available_o({unused_tokens, tokens}),
    .take_i     ({{Others{1'b1}}, start_o}),
    .overflow_o (overflow)
  );

  always_ff @(posedge clk_i) begin
    assert (!rst_ni || !overflow)
    else $error("mxu_tb: a token was signalled beyond %0d", TokenMax);
  end

  logic [1:0][Segments-1:0]                        read;
  logic [1:0][Segments-1:0][31:0]                  address;
  logic [1:0][Segments-1:0][SegmentBytes-1:0][7:0] data;

  mxu #(
    .Rows        (Rows),
    .Cols        (Cols),
    .AccRows     (AccRows),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes),
    .Gathers     (1),
    .Scatters    (1),
    .Elements    (Elements)
  ) u_mxu (
    .clk_i,
    .rst_ni,
    .start_i            (unit_start),
    .words_i            (words),
    .pattern_i          (pattern),
    .done_o             (done),
    .read_o             (read),
    .address_o          (address),
    .data_i             (data),
    .acc_read_i         (acc_read_i),
    .acc_read_address_i (acc_address_i),
    .acc_data_o,
    .acc_write_i        (acc_write_i),
    .acc_write_address_i(acc_address_i),
    .acc_write_data_i   (acc_data_i)
  );

  // Columns are written one cycle after the other: all wait for the last.
  logic [Cols-1:0]       aligned;
  logic [Cols-1:0][31:0] aligned_address;

  for (genvar c = 0; c < int'(Cols); c++) begin : gen_align
    delay_line #(
      .Width (1 + 32 + 32),
      .Cycles(Cols - 1 - c)
    ) u_align (
      .clk_i,
      .rst_ni,
      .data_i({u_mxu.u_acc.write[c], u_mxu.u_acc.write_address[c], u_mxu.u_acc.write_data[c]}),
      .data_o({aligned[c], aligned_address[c], row_data_o[c]})
    );

    always_ff @(posedge clk_i) begin
      assert (!rst_ni || (aligned[c] == aligned[0] && (!aligned[0] || aligned_address[c] == aligned_address[0] + 4 * c)))
      else $error("mxu_tb: the columns of a row are not written one after the other");
    end
  end

  assign row_write_o   = aligned[0];
  assign row_address_o = aligned_address[0];

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

endmodule
