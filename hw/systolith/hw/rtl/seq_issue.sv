// The instruction register: puts the fetches of a unit instruction together and offers it to its queue.
module seq_issue
  import systolith_pkg::*;
  import seq_pkg::*;
#(
  parameter int unsigned FetchWords = 8,
  parameter int unsigned Queues = 6
) (
  input  logic                                clk_i,
  input  logic                                rst_ni,
  // Fetches; none comes while an instruction is offered and not accepted.
  input  logic                                fetch_i,
  input  logic                                first_i,
  input  logic [7:0]                          left_i,       // words of the instruction from this fetch on
  input  logic [FetchWords-1:0][31:0]         words_i,
  input  logic [NumRegisters-1:0][31:0]       registers_i,
  // From the cycle after the last fetch on.
  output logic [Queues-1:0]                   push_valid_o,
  input  logic [Queues-1:0]                   push_ready_i,
  input  logic [31:0]                         number_i,
  output core_pkg::issue_t                    push_o,
  output logic [core_pkg::VpuWords-1:0][31:0] push_words_o,
  output logic                                offered_o,
  output logic                                accepted_o
);

  localparam int unsigned Rows = (core_pkg::VpuWords + FetchWords - 1) / FetchWords;
  localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1;

  logic [Rows*FetchWords-1:0][31:0] words_q;
  logic [FetchWords-1:0][31:0]      resolved;
  logic [RowBits-1:0]               row, row_q;
  logic [7:0]                       at;
  logic                             offered_q;
  logic [4:0]                       queue;

  assign row = first_i ? '0 : row_q;
  assign at  = 8'(row) * 8'(FetchWords);

  seq_resolve #(
    .FetchWords(FetchWords)
  ) u_resolve (
    .clk_i,
    .rst_ni,
    .valid_i(fetch_i),
    .at_i   (at),
    .left_i,
    .words_i,
    .registers_i,
    .words_o(resolved)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      words_q   <= '0;
      row_q     <= '0;
      offered_q <= 1'b0;
    end else begin
      if (accepted_o) offered_q <= 1'b0;
      if (fetch_i) begin
        offered_q <= left_i <= 8'(FetchWords);
        row_q     <= row + RowBits'(1);
        if (first_i) words_q <= '0;
        words_q[at+:FetchWords] <= resolved;
      end
    end
  end

  always_comb begin
    queue        = '0;
    push_valid_o = '0;
    push_o       = '0;
    if (offered_q) begin
      queue = queue_of(words_q[HeadWords-1:0]);
      for (int unsigned q = 0; q < Queues; q++) push_valid_o[q] = queue == 5'(q);
      push_o.waits   = words_q[HeaderWait0Word];
      push_o.signals = words_q[HeaderSignal0Word];
      push_o.fence   = words_q[HeaderFenceWord][HeaderFenceLo];
      push_o.idle    = opcode_of(words_q[0]) == OpNop;
      push_o.alone   = opcode_of(words_q[0]) == OpMxuLatch;
      push_o.number  = number_i;
    end
  end

  assign push_words_o = words_q[core_pkg::VpuWords-1:0];
  assign offered_o    = offered_q;
  assign accepted_o   = |(push_valid_o & push_ready_i);

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni) begin
      assert (!offered_q || queue < 5'(Queues))
      else $error("seq_issue: queue %0d, there are %0d", queue, Queues);
      assert (!fetch_i || !offered_q || accepted_o)
      else $error("seq_issue: a fetch while an instruction waits for its queue");
      assert (!fetch_i || 32'(at) + 32'(left_i) <= core_pkg::VpuWords)
      else $error("seq_issue: an instruction of %0d words", 32'(at) + 32'(left_i));
    end
  end
`endif

endmodule
