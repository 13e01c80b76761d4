// Starts a list of instructions, each as soon as the one before is done and its gap since the last start is over, and takes
// down when.
module dma_list #(
  parameter int unsigned Length = 8,  // a power of two
  localparam int unsigned Bits = $clog2(Length + 1),
  localparam int unsigned SlotBits = $clog2(Length)
) (
  input  logic                    clk_i,
  input  logic                    run_i,      // while low, nothing happens and the list is at its first
  input  logic [Bits-1:0]         count_i,
  input  logic [Length-1:0][7:0]  gaps_i,
  input  logic                    done_i,
  output logic                    start_o,
  output logic [SlotBits-1:0]     next_o,     // the instruction that starts next, modulo the length
  output logic [Length-1:0][31:0] start_at_o,
  output logic [Length-1:0][31:0] done_at_o,
  output logic                    finished_o
);

  logic                busy;
  logic [7:0]          wait_left;
  logic [31:0]         cycle;
  logic [Bits-1:0]     started, after;
  logic [SlotBits-1:0] last;

  assign start_o    = run_i && started < count_i && wait_left == '0 && (!busy || done_i);
  assign next_o     = SlotBits'(started);
  assign last       = next_o - SlotBits'(1);
  assign after      = started + Bits'(1);
  assign finished_o = run_i && started == count_i && !busy && wait_left == '0;

  always_ff @(posedge clk_i) begin
    if (!run_i) begin
      busy      <= 1'b0;
      wait_left <= gaps_i[0];
      cycle     <= '0;
      started   <= '0;
    end else begin
      cycle <= cycle + 32'd1;
      busy  <= start_o || busy && !done_i;
      if (done_i && busy) done_at_o[last] <= cycle;
      if (start_o) begin
        start_at_o[next_o] <= cycle;
        started            <= after;
        wait_left          <= (after < count_i) ? gaps_i[SlotBits'(after)] : 8'd4;
      end else if (wait_left != '0 && (started < count_i || !busy)) begin
        wait_left <= wait_left - 8'd1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    assert (!run_i || !done_i || busy)
    else $error("done, and nothing is under way");
  end

endmodule
