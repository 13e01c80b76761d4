// SEQ, the scalar sequencer: fetches the program, executes its scalar instructions and issues the others to the units.
//
// A scalar instruction takes the cycle of its fetch.  A unit instruction is offered to its queue from the cycle after
// its last fetch on; in the cycle in which the queue accepts it the next instruction is fetched.  A taken branch waits
// BranchPenalty cycles.  `waits_o` and the addresses do not depend on the queues being ready: tokens decide
// about that, so it would be a loop.
module seq
  import systolith_pkg::*;
  import seq_pkg::*;
#(
  parameter int unsigned FetchWords = 8,
  parameter int unsigned BranchPenalty = 2,
  parameter int unsigned Queues = 6
) (
  input  logic                                      clk_i,
  input  logic                                      rst_ni,
  input  logic                                      go_i,            // the first cycle in which it is high is cycle 0
  // Instructions, by word; data in the same cycle.
  output logic [31:0]                               imem_address_o,
  input  logic [FetchWords-1:0][31:0]               imem_data_i,
  // Scalar memory, by byte; data in the same cycle.
  output logic [31:0]                               smem_address_o,
  input  logic [31:0]                               smem_data_i,
  output logic                                      smem_write_o,
  output logic [31:0]                               smem_data_o,
  // Queues: ld, st, vpu, xlu, w0, s0, w1, ...
  output logic [Queues-1:0]                         push_valid_o,    // at most one
  input  logic [Queues-1:0]                         push_ready_i,
  output core_pkg::issue_t                          push_o,
  output logic [core_pkg::VpuWords-1:0][31:0]       push_words_o,    // registers resolved, zero beyond the instruction
  // SEQ's own tokens.
  output logic [core_pkg::TokensPerInstr-1:0][7:0]  waits_o,
  input  logic                                      tokens_i,        // all of them are there
  output logic                                      sync_start_o,    // they are taken in this cycle
  output logic [31:0]                               sync_number_o,
  output logic                                      sync_retire_o,   // the cycle after
  output logic [core_pkg::TokensPerInstr-1:0][7:0]  sync_signals_o,
  // The end.
  output logic                                      halted_o,        // by a halt or a trap, from its end on
  output logic                                      trapped_o,
  output logic [15:0]                               trap_code_o
);

  localparam int unsigned PenaltyBits = (BranchPenalty > 1) ? $clog2(BranchPenalty + 1) : 1;

  logic                                     started_q, halted_q, trapped_q, sync_q;
  logic [15:0]                              trap_code_q;
  logic [31:0]                              address_q, number_q;
  logic [7:0]                               left, left_q;  // words left of a unit instruction; 0: an instruction begins
  logic [PenaltyBits-1:0]                   penalty_q;
  logic [NumRegisters-1:0][31:0]            registers_q;
  logic [core_pkg::TokensPerInstr-1:0][7:0] signals_q;

  logic        running, first, unit, looking, offered, accepted, fetch, last, step;
  logic        write, taken, enter, skip;
  scalar_t     scalar;
  logic [31:0] a, b, alu, result, next, target;

  // The fetch: `fetch` says that it takes place, `looking` that it may be of a scalar instruction.
  assign running = (go_i || started_q) && !halted_q && penalty_q == '0;
  assign first   = left_q == '0;
  assign left    = first ? length_of(imem_data_i[0]) : left_q;
  assign unit    = !first || is_unit(imem_data_i[HeadWords-1:0]);
  assign looking = running && !unit;
  assign fetch   = running && (!offered || accepted);
  assign last    = left <= 8'(FetchWords);

  seq_issue #(
    .FetchWords(FetchWords),
    .Queues    (Queues)
  ) u_issue (
    .clk_i,
    .rst_ni,
    .fetch_i    (fetch && unit),
    .first_i    (first),
    .left_i     (left),
    .words_i    (imem_data_i),
    .registers_i(registers_q),
    .push_valid_o,
    .push_ready_i,
    .number_i   (number_q),
    .push_o,
    .push_words_o,
    .offered_o  (offered),
    .accepted_o (accepted)
  );

  // Scalar instructions.
  always_comb begin
    scalar = '0;
    a      = '0;
    b      = '0;
    if (looking) begin
      scalar = to_scalar(imem_data_i[ScalarWords-1:0]);
      a      = registers_q[scalar.ra];
      b      = scalar.b_is_reg ? registers_q[scalar.b[4:0]] : scalar.b;
    end
  end

  seq_alu u_alu (
    .op_i    (scalar.op),
    .a_i     (a),
    .b_i     (b),
    .result_o(alu)
  );

  always_comb begin
    write  = 1'b0;
    result = alu;
    taken  = scalar.op == OpJmp || (is_branch(scalar.op) && alu[0]);
    enter  = scalar.op == OpLoop && $signed(b) > 0;
    skip   = scalar.op == OpLoop && $signed(b) <= 0;
    unique case (scalar.op)
      OpLi: begin
        write  = 1'b1;
        result = b;
      end
      OpLds: begin
        write  = 1'b1;
        result = smem_data_i;
      end
      default: write = is_alu(scalar.op);
    endcase
  end

  assign imem_address_o = address_q;
  assign smem_address_o = (scalar.op == OpLds || scalar.op == OpSts) ? a + b : '0;
  assign smem_data_o    = registers_q[scalar.rb];
  assign smem_write_o   = fetch && scalar.op == OpSts;
  assign waits_o        = (scalar.op == OpSync) ? imem_data_i[HeaderWait0Word] : '1;
  assign sync_start_o   = fetch && scalar.op == OpSync && tokens_i;
  assign sync_number_o  = number_q + 32'(accepted);

  // Where to go on.
  assign step = fetch && (unit ? last : scalar.op != OpSync || tokens_i);
  assign next = (taken || skip) ? scalar.target : address_q + 32'(left);

  seq_loops u_loops (
    .clk_i,
    .rst_ni,
    .step_i  (step),
    .next_i  (next),
    .enter_i (enter),
    .end_i   (scalar.target),
    .count_i (b),
    .target_o(target)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      started_q   <= 1'b0;
      address_q   <= '0;
      left_q      <= '0;
      penalty_q   <= '0;
      number_q    <= '0;
      registers_q <= '0;
    end else begin
      if (go_i) started_q <= 1'b1;
      if (penalty_q != '0) penalty_q <= penalty_q - PenaltyBits'(1);
      number_q <= number_q + 32'(accepted) + 32'(sync_start_o);
      if (step) begin
        address_q <= target;
        left_q    <= '0;
        if (taken) penalty_q <= PenaltyBits'(BranchPenalty);
        if (write && scalar.rd != '0) registers_q[scalar.rd] <= result;
      end else if (fetch && unit) begin
        address_q <= address_q + 32'(FetchWords);
        left_q    <= left - 8'(FetchWords);
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sync_q      <= 1'b0;
      signals_q   <= '1;
      halted_q    <= 1'b0;
      trapped_q   <= 1'b0;
      trap_code_q <= '0;
    end else begin
      sync_q <= sync_start_o;
      if (sync_start_o) signals_q <= imem_data_i[HeaderSignal0Word];
      if (fetch && !unit && scalar.op inside {OpHalt, OpTrap}) begin
        halted_q  <= 1'b1;
        trapped_q <= scalar.op == OpTrap;
        if (scalar.op == OpTrap) trap_code_q <= imem_data_i[TrapCodeWord][TrapCodeHi:TrapCodeLo];
      end
    end
  end

  assign sync_retire_o  = sync_q;
  assign sync_signals_o = signals_q;
  assign halted_o       = halted_q;
  assign trapped_o      = trapped_q;
  assign trap_code_o    = trap_code_q;

`ifndef SYNTHESIS
  initial begin
    assert (FetchWords >= ScalarWords)
    else $fatal(1, "seq: FetchWords %0d must be at least %0d, the longest scalar instruction", FetchWords, ScalarWords);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && fetch && !unit) begin
      assert (is_alu(scalar.op) || is_branch(scalar.op)
              || scalar.op inside {OpHalt, OpTrap, OpSync, OpNop, OpLi, OpLds, OpSts, OpJmp, OpLoop})
      else $error("seq: word %0d: opcode %0d is unknown", address_q, scalar.op);
      assert (smem_address_o[1:0] == '0)
      else $error("seq: word %0d: SMEM address %0d is not that of a word", address_q, smem_address_o);
      assert (32'(left) <= ScalarWords)
      else $error("seq: word %0d: a scalar instruction of %0d words", address_q, left);
    end
  end
`endif

endmodule
