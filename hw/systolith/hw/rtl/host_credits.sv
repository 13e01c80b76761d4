// Credits of the infeed queues, one a byte: the host sends what it offers as far as it has credits, and gets those of a
// transfer back when the transfer ends.  They may be spent in the cycle in which they come.
module host_credits #(
  parameter int unsigned Queues = 2,
  parameter int unsigned Room = 16384    // bytes of a queue
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    count_i,     // this is a cycle of the run
  input  logic [Queues-1:0][31:0] offered_i,   // bytes that the host has had for a queue so far
  input  logic [Queues-1:0]       return_i,    // a transfer ends
  input  logic [31:0]             returned_i,  // its bytes
  output logic [Queues-1:0][31:0] sent_o,      // bytes that the host has sent so far, in this cycle too
  output logic [Queues-1:0][31:0] held_o       // cycles of the run before this one in which it had bytes and no credits
);

  localparam int unsigned Bits = $clog2(Room + 1);

  for (genvar n = 0; n < int'(Queues); n++) begin : gen_queue
    logic [31:0]     sent_q, held_q, waiting, credits;
    logic [Bits-1:0] left_q;
    logic            held;

    assign waiting   = offered_i[n] - sent_q;
    assign credits   = 32'(left_q) + (return_i[n] ? returned_i : 32'd0);
    assign held      = waiting > credits;
    assign sent_o[n] = sent_q + (held ? credits : waiting);
    assign held_o[n] = held_q;

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        sent_q <= '0;
        held_q <= '0;
        left_q <= Bits'(Room);
      end else begin
        sent_q <= sent_o[n];
        held_q <= held_q + 32'(held && count_i);
        left_q <= Bits'(credits - (sent_o[n] - sent_q));
      end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk_i) begin
      if (rst_ni) begin
        assert (credits <= Room)
        else $error("host_credits: %0d credits of infeed queue %0d, which holds %0d", credits, n, Room);
      end
    end
`endif
  end

endmodule
