// SEQ with its program, the queues into which it issues, and the patterns of starting instructions.
module core_issue
  import core_pkg::*;
  import systolith_pkg::MaxStreams;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned ImemWords = 65536,
  parameter int unsigned FetchWords = 8,
  parameter int unsigned BranchPenalty = 2,
  parameter int unsigned Patterns = 1024,
  parameter int unsigned Mxus = 1,
  parameter int unsigned FifoDepth = 4,
  parameter int unsigned TokenMax = 15,
  parameter int unsigned DmaTail = 20,      // the largest of each kind of unit
  parameter int unsigned WeightsTail = 2,
  parameter int unsigned StreamTail = 20,
  localparam int unsigned Queues = 4 + 2 * Mxus
) (
  input  logic                                     clk_i,
  input  logic                                     rst_ni,
  input  logic                                     go_i,            // cycle 0 is the one after
  output logic                                     done_o,          // SEQ has halted and everything has retired
  output logic                                     trapped_o,
  output logic [15:0]                              trap_code_o,
  output logic [31:0]                              smem_address_o,
  input  logic [31:0]                              smem_data_i,
  output logic                                     smem_write_o,
  output logic [31:0]                              smem_data_o,
  // To the units: a start, unless the instruction is idle; words of the heads; patterns of starting instructions.
  output logic [Queues-1:0]                        unit_start_o,
  output logic [1:0][DmaWords-1:0][31:0]           dma_words_o,
  output pattern_t [1:0][1:0]                      dma_pattern_o,
  output logic [VpuWords-1:0][31:0]                vpu_words_o,
  output pattern_t [MaxStreams-1:0]                vpu_pattern_o,
  output logic [XluWords-1:0][31:0]                xlu_words_o,
  output pattern_t [1:0]                           xlu_pattern_o,
  output logic [Mxus-1:0][1:0][MxuWords-1:0][31:0] mxu_words_o,
  output pattern_t [Mxus-1:0][1:0]                 mxu_pattern_o,
  input  logic [Queues-1:0]                        done_i,
  input  logic [1:0][31:0]                         dma_tail_i
);

  localparam int unsigned Slots = 2 * (DmaTail + 2) + 4 + Mxus * (WeightsTail + StreamTail + 4);

  logic [31:0]                    imem_address, sync_number;
  logic [FetchWords-1:0][31:0]    imem_data;
  logic [Queues-1:0]              push_valid, push_ready, start;
  issue_t                         push;
  logic [VpuWords-1:0][31:0]      push_words;
  logic [TokensPerInstr-1:0][7:0] sync_waits, sync_signals;
  logic                           sync_tokens, sync_start, sync_retire, halted, idle, go_q;
  logic [Queues-1:0][31:0]        tail, start_number;
  logic [Slots-1:0]               retire;
  logic [Slots-1:0][31:0]         retire_number;

  // Nothing that the core does in a cycle depends on an input.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) go_q <= 1'b0;
    else go_q <= go_i;
  end

  assign done_o = halted && idle;

  imem #(
    .Words     (ImemWords),
    .FetchWords(FetchWords)
  ) u_imem (
    .address_i(imem_address),
    .data_o   (imem_data)
  );

  seq #(
    .FetchWords   (FetchWords),
    .BranchPenalty(BranchPenalty),
    .Queues       (Queues)
  ) u_seq (
    .clk_i,
    .rst_ni,
    .go_i          (go_q),
    .imem_address_o(imem_address),
    .imem_data_i   (imem_data),
    .smem_address_o,
    .smem_data_i,
    .smem_write_o,
    .smem_data_o,
    .push_valid_o  (push_valid),
    .push_ready_i  (push_ready),
    .push_o        (push),
    .push_words_o  (push_words),
    .waits_o       (sync_waits),
    .tokens_i      (sync_tokens),
    .sync_start_o  (sync_start),
    .sync_number_o (sync_number),
    .sync_retire_o (sync_retire),
    .sync_signals_o(sync_signals),
    .halted_o      (halted),
    .trapped_o,
    .trap_code_o
  );

  assign tail[1:0] = dma_tail_i;
  assign tail[3:2] = '0;

  for (genvar m = 0; m < int'(Mxus); m++) begin : gen_tails
    assign tail[4+2*m] = WeightsTail;
    assign tail[5+2*m] = StreamTail;
  end

  core_queues #(
    .Mxus       (Mxus),
    .Depth      (FifoDepth),
    .TokenMax   (TokenMax),
    .DmaTail    (DmaTail),
    .WeightsTail(WeightsTail),
    .StreamTail (StreamTail)
  ) u_queues (
    .clk_i,
    .rst_ni,
    .push_valid_i   (push_valid),
    .push_ready_o   (push_ready),
    .push_i         (push),
    .push_words_i   (push_words),
    .sync_waits_i   (sync_waits),
    .sync_tokens_o  (sync_tokens),
    .sync_start_i   (sync_start),
    .sync_retire_i  (sync_retire),
    .sync_signals_i (sync_signals),
    .unit_start_o,
    .dma_words_o,
    .vpu_words_o,
    .xlu_words_o,
    .mxu_words_o,
    .done_i,
    .tail_i         (tail),
    .idle_o         (idle),
    .start_o        (start),
    .start_number_o (start_number),
    .retire_o       (retire),
    .retire_number_o(retire_number)
  );

  core_patterns #(
    .Entries(Patterns),
    .Mxus   (Mxus)
  ) u_patterns (
    .dma_start_i(unit_start_o[1:0]),
    .dma_words_i(dma_words_o),
    .dma_pattern_o,
    .vpu_start_i(unit_start_o[2]),
    .vpu_words_i(vpu_words_o),
    .vpu_pattern_o,
    .xlu_start_i(unit_start_o[3]),
    .xlu_words_i(xlu_words_o),
    .xlu_pattern_o,
    .mxu_start_i(unit_start_o[Queues-1:4]),
    .mxu_words_i(mxu_words_o),
    .mxu_pattern_o
  );

  core_trace #(
    .Queues(Queues),
    .Slots (Slots)
  ) u_trace (
    .clk_i,
    .rst_ni,
    .push_i         (push_valid & push_ready),
    .push_number_i  (push.number),
    .start_i        (start),
    .start_number_i (start_number),
    .retire_i       (retire),
    .retire_number_i(retire_number),
    .sync_start_i   (sync_start),
    .sync_number_i  (sync_number)
  );

endmodule
