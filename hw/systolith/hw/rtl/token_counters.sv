// Counting tokens, those of the whole core: signals add, waits take.  A signal can be taken in its own cycle.
module token_counters
  import core_pkg::*;
#(
  parameter int unsigned Max = 15,     // a count above it is an overflow
  parameter int unsigned Slots = 8,    // instructions that may retire in a cycle
  parameter int unsigned Queues = 2    // queues that wait
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic [Slots-1:0]                           retire_i,
  input  logic [Slots-1:0][TokensPerInstr-1:0][7:0]  signals_i,
  input  logic [Queues-1:0][TokensPerInstr-1:0][7:0] waits_i,      // of the head of each queue
  output logic [Queues-1:0]                          available_o,  // all of them are there
  input  logic [Queues-1:0]                          take_i,       // and are taken
  output logic                                       overflow_o
);

  // Room for all signals of a cycle, if no one takes any.
  localparam int unsigned Bits = $clog2(Max + Slots * TokensPerInstr + 1);

  logic [Bits-1:0] count_q[Tokens], sum[Tokens], count_d[Tokens];

  always_comb begin
    sum = count_q;
    if (retire_i != '0) begin
      for (int unsigned s = 0; s < Slots; s++) begin
        if (retire_i[s]) begin
          for (int unsigned k = 0; k < TokensPerInstr; k++) begin
            if (signals_i[s][k] != NoToken) sum[signals_i[s][k]] += Bits'(1);
          end
        end
      end
    end
  end

  always_comb begin
    available_o = '1;
    for (int unsigned q = 0; q < Queues; q++) begin
      for (int unsigned k = 0; k < TokensPerInstr; k++) begin
        if (waits_i[q][k] != NoToken && sum[waits_i[q][k]] == '0) available_o[q] = 1'b0;
      end
    end
  end

  always_comb begin
    count_d = sum;
    if (take_i != '0) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        for (int unsigned k = 0; k < TokensPerInstr; k++) begin
          if (take_i[q] && waits_i[q][k] != NoToken) count_d[waits_i[q][k]] -= Bits'(1);
        end
      end
    end
  end

  // Only a token that is signalled can grow too large.
  always_comb begin
    overflow_o = 1'b0;
    if (retire_i != '0) begin
      for (int unsigned s = 0; s < Slots; s++) begin
        for (int unsigned k = 0; k < TokensPerInstr; k++) begin
          if (retire_i[s] && signals_i[s][k] != NoToken && count_d[signals_i[s][k]] > Bits'(Max)) overflow_o = 1'b1;
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int unsigned t = 0; t < Tokens; t++) count_q[t] <= '0;
    end else if (retire_i != '0 || take_i != '0) begin
      count_q <= count_d;
    end
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
