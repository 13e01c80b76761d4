// Counting tokens: signals add, waits take.  What is signalled in a cycle can be taken in the same.
module token_counters
  import mxu_pkg::*;
#(
  parameter int unsigned Max = 15,      // a count above it is an overflow
  parameter int unsigned Signals = 4,   // signals that may come in a cycle
  parameter int unsigned Queues = 2,    // queues that wait
  parameter int unsigned Taken = 4      // tokens that others may take in a cycle
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic [Signals-1:0]                         signal_valid_i,
  input  logic [Signals-1:0][7:0]                    signal_i,
  input  logic [Queues-1:0][TokensPerInstr-1:0][7:0] waits_i,      // of the head of each queue
  output logic [Queues-1:0]                          available_o,  // all of them are there
  input  logic [Queues-1:0]                          take_i,       // and are taken
  input  logic [Taken-1:0][7:0]                      taken_i,
  output logic                                       overflow_o
);

  localparam int unsigned Bits = $clog2(Max + Signals + 1);

  logic [Tokens-1:0][Bits-1:0] count_q, sum, count_d;

  always_comb begin
    sum = count_q;
    for (int unsigned i = 0; i < Signals; i++) begin
      if (signal_valid_i[i] && signal_i[i] != NoToken) sum[signal_i[i]] += Bits'(1);
    end
  end

  always_comb begin
    available_o = '1;
    for (int unsigned q = 0; q < Queues; q++) begin
      for (int unsigned w = 0; w < TokensPerInstr; w++) begin
        if (waits_i[q][w] != NoToken && sum[waits_i[q][w]] == '0) available_o[q] = 1'b0;
      end
    end
  end

  always_comb begin
    count_d = sum;
    for (int unsigned q = 0; q < Queues; q++) begin
      for (int unsigned w = 0; w < TokensPerInstr; w++) begin
        if (take_i[q] && waits_i[q][w] != NoToken) count_d[waits_i[q][w]] -= Bits'(1);
      end
    end
    for (int unsigned t = 0; t < Taken; t++) begin
      if (taken_i[t] != NoToken) count_d[taken_i[t]] -= Bits'(1);
    end
  end

  // Only a token that is signalled can grow too large.
  always_comb begin
    overflow_o = 1'b0;
    for (int unsigned i = 0; i < Signals; i++) begin
      if (signal_valid_i[i] && signal_i[i] != NoToken && count_d[signal_i[i]] > Bits'(Max)) overflow_o = 1'b1;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) count_q <= '0;
    else count_q <= count_d;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    for (int unsigned q = 0; q < Queues; q++) begin
      assert (!rst_ni || !take_i[q] || available_o[q])
      else $error("token_counters: queue %0d takes a token that is not there", q);
    end
  end
`endif

endmodule
