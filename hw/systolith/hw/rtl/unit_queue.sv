// A queue: the FIFO in front of a unit, the rule by which instructions start, and their retirement.
//
//   start  = at the head (the cycle after the push at the earliest), the occupancy of the one before is over, its tokens are
//            there and, with a fence, everything before it has retired
//   retire = `tail_i` cycles after the end of the occupancy for those that the unit works on, one cycle after the start for
//            idle ones, but never before the one before it; `alone` ones one cycle after their start, by themselves
module unit_queue
  import core_pkg::*;
#(
  parameter int unsigned Depth = 4,
  parameter int unsigned Words = MxuWords,
  parameter int unsigned Flying = 22  // instructions that have started and not retired: at least the largest tail + 2
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  // In; a slot is free in the cycle in which its instruction starts.
  input  logic                                       push_valid_i,
  output logic                                       push_ready_o,
  input  issue_t                                     push_i,
  input  logic [Words-1:0][31:0]                     push_words_i,
  // Tokens of the head (NoToken while there is none), and whether all are there.
  output logic [TokensPerInstr-1:0][7:0]             waits_o,
  input  logic                                       tokens_i,
  // The head, in the cycle of its start; `unit_start_o` is for those that the unit works on.
  output logic                                       start_o,
  output issue_t                                     head_o,
  output logic [Words-1:0][31:0]                     head_words_o,
  output logic                                       unit_start_o,
  // The unit: the occupancy of the one under way is over, and the cycles left until it retires.
  input  logic                                       done_i,
  input  logic [31:0]                                tail_i,
  // Those that retire in this cycle.
  output logic [Flying-1:0]                          retire_o,
  output logic [Flying-1:0][TokensPerInstr-1:0][7:0] signals_o,
  output logic [Flying-1:0][31:0]                    number_o,
  output logic                                       idle_o    // nothing is queued, under way or in flight
);

  localparam int unsigned DepthBits = $clog2(Depth + 1);
  localparam int unsigned SlotBits = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int unsigned FlyingBits = $clog2(Flying);
  localparam int unsigned TimeBits = $clog2(Flying + 1);

  // FIFO.
  issue_t                 issue_q[Depth];
  logic [Words-1:0][31:0] words_q[Depth];
  logic [SlotBits-1:0]    read_q, write_q;
  logic [DepthBits-1:0]   count_q;
  logic                   push;

  function automatic logic [SlotBits-1:0] next_slot(logic [SlotBits-1:0] slot);
    next_slot = (slot == SlotBits'(Depth - 1)) ? '0 : slot + SlotBits'(1);
  endfunction

  assign head_o       = issue_q[read_q];
  assign head_words_o = words_q[read_q];
  assign push_ready_o = count_q < DepthBits'(Depth) || start_o;
  assign push         = push_valid_i && push_ready_o;
  assign waits_o      = (count_q != '0) ? head_o.waits : {TokensPerInstr{NoToken}};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      read_q  <= '0;
      write_q <= '0;
      count_q <= '0;
    end else begin
      if (push) write_q <= next_slot(write_q);
      if (start_o) read_q <= next_slot(read_q);
      count_q <= count_q + DepthBits'(push) - DepthBits'(start_o);
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) begin
      issue_q[write_q] <= push_i;
      words_q[write_q] <= push_words_i;
    end
  end

  // In flight: an entry is made at the start.  When one retires is known at once, or at the end of its occupancy (`busy`), as
  // a time on a clock that just does not repeat within the largest tail.  `horizon` is how far off the last retirement is.
  logic [Flying-1:0]                          valid_q, busy_q;
  logic [Flying-1:0][TokensPerInstr-1:0][7:0] signals_q;
  logic [Flying-1:0][31:0]                    number_q;
  logic [TimeBits-1:0]                        time_q, at_q[Flying];
  logic [FlyingBits-1:0]                      next_q;
  logic [TimeBits-1:0]                        tail, horizon, horizon_q, own, last;
  logic                                       is_busy, occupies, drained;

  assign is_busy  = busy_q != '0;
  assign occupies = !head_o.idle && !head_o.alone;
  assign tail     = TimeBits'(tail_i);
  assign horizon  = (done_i && tail > horizon_q) ? tail : horizon_q;
  assign own      = (head_o.alone || horizon == '0) ? TimeBits'(1) : horizon;
  assign last     = (start_o && !occupies && horizon == '0) ? TimeBits'(1) : horizon;

  always_comb begin
    retire_o = '0;
    if (valid_q != '0) begin
      for (int unsigned f = 0; f < Flying; f++) begin
        retire_o[f] = valid_q[f] && (busy_q[f] ? done_i && horizon == '0 : at_q[f] == time_q);
      end
    end
  end

  assign drained      = (valid_q & ~retire_o) == '0;
  assign start_o      = count_q != '0 && tokens_i && (!is_busy || done_i) && (!head_o.fence || drained);
  assign unit_start_o = start_o && !head_o.idle;
  assign signals_o    = signals_q;
  assign number_o     = number_q;
  assign idle_o       = count_q == '0 && drained;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q   <= '0;
      busy_q    <= '0;
      next_q    <= '0;
      time_q    <= '0;
      horizon_q <= '0;
    end else begin
      time_q    <= time_q + TimeBits'(1);
      horizon_q <= (last == '0) ? '0 : last - TimeBits'(1);
      if (retire_o != '0) valid_q <= valid_q & ~retire_o;
      if (done_i) busy_q <= '0;
      if (start_o) begin
        valid_q[next_q] <= 1'b1;
        busy_q[next_q]  <= occupies;
        next_q          <= (next_q == FlyingBits'(Flying - 1)) ? '0 : next_q + FlyingBits'(1);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (done_i) begin
      for (int unsigned f = 0; f < Flying; f++) begin
        if (busy_q[f]) at_q[f] <= time_q + horizon;
      end
    end
    if (start_o) begin
      at_q[next_q]      <= time_q + own;
      signals_q[next_q] <= head_o.signals;
      number_q[next_q]  <= head_o.number;
    end
  end

`ifndef SYNTHESIS
  initial begin
    assert (Depth >= 1 && Flying >= 2)
    else $fatal(1, "unit_queue: Depth %0d must be at least 1, Flying %0d at least 2", Depth, Flying);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && done_i) begin
      assert (is_busy)
      else $error("unit_queue: done, and nothing is under way");
      assert (tail_i + 32'd2 <= Flying)
      else $error("unit_queue: a tail of %0d, %0d instructions can be in flight", tail_i, Flying);
    end
    if (rst_ni && start_o) begin
      assert (!valid_q[next_q] || retire_o[next_q])
      else $error("unit_queue: more than %0d instructions in flight", Flying);
    end
  end
`endif

endmodule
