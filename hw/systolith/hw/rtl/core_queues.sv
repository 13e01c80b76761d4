// The queues in front of all units, and the tokens that they and SEQ wait for and signal.
//
// Queues: 0 ld, 1 st, 2 vpu, 3 xlu, 4 + 2 i the weights and 5 + 2 i the stream of matrix unit i.
module core_queues
  import core_pkg::*;
#(
  parameter int unsigned Mxus = 1,
  parameter int unsigned Depth = 4,
  parameter int unsigned TokenMax = 15,
  parameter int unsigned DmaTail = 20,      // the largest of each kind of unit
  parameter int unsigned WeightsTail = 2,
  parameter int unsigned StreamTail = 20,
  localparam int unsigned Queues = 4 + 2 * Mxus,
  localparam int unsigned Slots = 2 * (DmaTail + 2) + 4 + Mxus * (WeightsTail + StreamTail + 4)  // instructions in flight
) (
  input  logic                                     clk_i,
  input  logic                                     rst_ni,
  // From SEQ; its own tokens.
  input  logic [Queues-1:0]                        push_valid_i,
  output logic [Queues-1:0]                        push_ready_o,
  input  issue_t                                   push_i,
  input  logic [VpuWords-1:0][31:0]                push_words_i,
  input  logic [TokensPerInstr-1:0][7:0]           sync_waits_i,
  output logic                                     sync_tokens_o,
  input  logic                                     sync_start_i,
  input  logic                                     sync_retire_i,
  input  logic [TokensPerInstr-1:0][7:0]           sync_signals_i,
  // To the units: a start, unless the instruction is idle, and the words of the heads.
  output logic [Queues-1:0]                        unit_start_o,
  output logic [1:0][DmaWords-1:0][31:0]           dma_words_o,
  output logic [VpuWords-1:0][31:0]                vpu_words_o,
  output logic [XluWords-1:0][31:0]                xlu_words_o,
  output logic [Mxus-1:0][1:0][MxuWords-1:0][31:0] mxu_words_o,   // 0: weights, 1: stream
  input  logic [Queues-1:0]                        done_i,
  input  logic [Queues-1:0][31:0]                  tail_i,
  output logic                                     idle_o,        // nothing is queued, under way or in flight
  // Events of this cycle, for traces.
  output logic [Queues-1:0]                        start_o,
  output logic [Queues-1:0][31:0]                  start_number_o,
  output logic [Slots-1:0]                         retire_o,
  output logic [Slots-1:0][31:0]                   retire_number_o
);

  function automatic int unsigned words_of(int unsigned queue);
    if (queue < 2) words_of = DmaWords;
    else if (queue == 2) words_of = VpuWords;
    else words_of = (queue == 3) ? XluWords : MxuWords;
  endfunction

  function automatic int unsigned flying_of(int unsigned queue);
    if (queue < 2) flying_of = DmaTail + 2;
    else if (queue < 4) flying_of = 2;
    else flying_of = (queue % 2 == 0) ? WeightsTail + 2 : StreamTail + 2;
  endfunction

  function automatic int unsigned first_slot(int unsigned queue);
    first_slot = 0;
    for (int unsigned q = 0; q < queue; q++) first_slot += flying_of(q);
  endfunction

  logic [Slots-1:0][TokensPerInstr-1:0][7:0]  signals;
  logic [Queues-1:0][TokensPerInstr-1:0][7:0] waits;
  logic [Queues-1:0]                          tokens, idle;
  logic                                       overflow;  // a token is signalled beyond its largest count

  for (genvar q = 0; q < int'(Queues); q++) begin : gen_queues
    localparam int unsigned Words = words_of(q);
    localparam int unsigned Flying = flying_of(q);
    localparam int unsigned First = first_slot(q);

    logic [Words-1:0][31:0] words;
    issue_t                 head;

    unit_queue #(
      .Depth (Depth),
      .Words (Words),
      .Flying(Flying)
    ) u_queue (
      .clk_i,
      .rst_ni,
      .push_valid_i(push_valid_i[q]),
      .push_ready_o(push_ready_o[q]),
      .push_i,
      .push_words_i(push_words_i[Words-1:0]),
      .waits_o     (waits[q]),
      .tokens_i    (tokens[q]),
      .start_o     (start_o[q]),
      .head_o      (head),
      .head_words_o(words),
      .unit_start_o(unit_start_o[q]),
      .done_i      (done_i[q]),
      .tail_i      (tail_i[q]),
      .retire_o    (retire_o[First+:Flying]),
      .signals_o   (signals[First+:Flying]),
      .number_o    (retire_number_o[First+:Flying]),
      .idle_o      (idle[q])
    );

    assign start_number_o[q] = head.number;

    if (q < 2) begin : gen_dma
      assign dma_words_o[q] = words;
    end else if (q == 2) begin : gen_vpu
      assign vpu_words_o = words;
    end else if (q == 3) begin : gen_xlu
      assign xlu_words_o = words;
    end else begin : gen_mxu
      assign mxu_words_o[(q-4)/2][q%2] = words;
    end
  end

  assign idle_o = &idle && !sync_retire_i;

  token_counters #(
    .Max   (TokenMax),
    .Slots (Slots + 1),
    .Queues(Queues + 1)
  ) u_tokens (
    .clk_i,
    .rst_ni,
    .retire_i   ({sync_retire_i, retire_o}),
    .signals_i  ({sync_signals_i, signals}),
    .waits_i    ({sync_waits_i, waits}),
    .available_o({sync_tokens_o, tokens}),
    .take_i     ({sync_start_i, start_o}),
    .overflow_o (overflow)
  );

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    assert (!rst_ni || !overflow)
    else $error("core_queues: a token is signalled beyond %0d", TokenMax);
  end
`endif

endmodule
