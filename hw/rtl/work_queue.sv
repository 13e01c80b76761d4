// A queue: the FIFO in front of a unit, the rule by which instructions start, and their retirement.
//
//   start  = when it is at the head (the cycle after its push at the earliest), the occupancy of the one before is over, its
//            tokens are there and, with a fence, all before it have retired
//   retire = `Tail` cycles after the end of the occupancy for instructions with a walk, one cycle after the start for the
//            others, but never before the one before it, unless it is a latch: latches retire alone
module work_queue
  import mxu_pkg::*;
#(
  parameter int unsigned Depth = 4,
  parameter int unsigned Tail = 20,
  localparam int unsigned Flying = Tail + 2  // started and not retired: one walks, one more may start in each cycle of Tail
) (
  input  logic                                         clk_i,
  input  logic                                         rst_ni,
  // In; a slot is free in the cycle in which its instruction starts.
  input  logic                                         valid_i,
  output logic                                         ready_o,
  input  work_t                                        work_i,
  // Tokens of the head (meaningless while there is none), and whether all are there.
  output logic [TokensPerInstr-1:0][7:0]               waits_o,
  input  logic                                         tokens_i,
  // To the unit.
  output logic                                         start_o,
  output command_t                                     command_o,
  output walk_t                                        walk_o,
  input  logic                                         busy_i,
  input  logic                                         last_i,   // last cycle of the occupancy of what walks
  // Those that retire in this cycle.
  output logic [Flying-1:0]                            retire_o,
  output logic [Flying-1:0][TokensPerInstr-1:0][7:0]   signals_o
);

  localparam int unsigned DepthBits = $clog2(Depth + 1);
  localparam int unsigned SlotBits = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int unsigned FlyingBits = $clog2(Flying);

  // FIFO.
  work_t [Depth-1:0]    fifo_q;
  logic [SlotBits-1:0]  read_q, write_q;
  logic [DepthBits-1:0] count_q;
  logic                 push;
  work_t                head;

  function automatic logic [SlotBits-1:0] next_slot(logic [SlotBits-1:0] slot);
    next_slot = (slot == SlotBits'(Depth - 1)) ? '0 : slot + SlotBits'(1);
  endfunction

  assign head      = fifo_q[read_q];
  assign ready_o   = count_q < DepthBits'(Depth) || start_o;
  assign push      = valid_i && ready_o;
  assign waits_o   = head.waits;
  assign command_o = head.command;
  assign walk_o    = head.walk;

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
    if (push) fifo_q[write_q] <= work_i;
  end

  // In flight.  Each entry counts the cycles to its retirement down; that of the one that walks is not known (`walks`) until
  // the last cycle of its walk.  `horizon` is the same of the last to retire.
  logic [Flying-1:0]                          valid_q, walks_q;
  logic [Flying-1:0][31:0]                    left_q;
  logic [Flying-1:0][TokensPerInstr-1:0][7:0] signals_q;
  logic [FlyingBits-1:0]                      next_q;
  logic [31:0]                                horizon, horizon_q, delay;
  logic                                       has_walk, alone, drained;

  assign has_walk = head.command.op == OpLoad || head.command.op == OpMatmul;
  assign alone    = head.command.op == OpLatch;
  assign horizon  = last_i ? 32'(Tail) : horizon_q;
  assign delay    = (alone || horizon == '0) ? 32'd1 : horizon;
  assign drained  = (valid_q & ~retire_o) == '0;
  assign start_o  = count_q != '0 && tokens_i && (!busy_i || last_i) && (!head.fence || (drained && !busy_i));

  always_comb begin
    for (int unsigned f = 0; f < Flying; f++) retire_o[f] = valid_q[f] && !walks_q[f] && left_q[f] == '0;
  end

  assign signals_o = signals_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q   <= '0;
      walks_q   <= '0;
      left_q    <= '0;
      signals_q <= '0;
      next_q    <= '0;
      horizon_q <= '0;
    end else begin
      for (int unsigned f = 0; f < Flying; f++) begin
        if (valid_q[f] && !walks_q[f]) left_q[f] <= left_q[f] - 32'd1;
        if (retire_o[f]) valid_q[f] <= 1'b0;
        if (walks_q[f] && last_i) begin
          walks_q[f] <= 1'b0;
          left_q[f]  <= 32'(Tail - 1);
        end
      end
      if (start_o) begin
        valid_q[next_q]   <= 1'b1;
        walks_q[next_q]   <= has_walk;
        left_q[next_q]    <= delay - 32'd1;
        signals_q[next_q] <= head.signals;
        next_q            <= (next_q == FlyingBits'(Flying - 1)) ? '0 : next_q + FlyingBits'(1);
      end
      horizon_q <= (horizon == '0) ? '0 : horizon - 32'd1;
    end
  end

`ifndef SYNTHESIS
  initial begin
    assert (Tail >= 1 && Depth >= 1)
    else $fatal(1, "work_queue: Tail %0d and Depth %0d must be at least 1", Tail, Depth);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && start_o) begin
      assert (!valid_q[next_q] || retire_o[next_q])
      else $error("work_queue: more than %0d instructions in flight", Flying);
    end
  end
`endif

endmodule
