// Tells the harness the events of each cycle.  Not for synthesis.
module core_trace #(
  parameter int unsigned Queues = 6,
  parameter int unsigned Slots = 8
) (
  input logic                    clk_i,
  input logic                    rst_ni,
  input logic [Queues-1:0]       push_i,           // accepted
  input logic [31:0]             push_number_i,
  input logic [Queues-1:0]       start_i,
  input logic [Queues-1:0][31:0] start_number_i,
  input logic [Slots-1:0]        retire_i,
  input logic [Slots-1:0][31:0]  retire_number_i,
  input logic                    sync_start_i,
  input logic [31:0]             sync_number_i
);

`ifndef SYNTHESIS
  import "DPI-C" function void systolith_event(int kind, int unit, int number);

  // A unit is the number of its queue, or `Queues` for SEQ.  Of a retirement the number says whose it is.
  localparam int Issue = 0;
  localparam int Start = 1;
  localparam int Retire = 2;

  always_ff @(posedge clk_i) begin
    if (rst_ni) begin
      if (push_i != '0) begin
        for (int unsigned q = 0; q < Queues; q++) if (push_i[q]) systolith_event(Issue, int'(q), int'(push_number_i));
      end
      if (start_i != '0) begin
        for (int unsigned q = 0; q < Queues; q++) if (start_i[q]) systolith_event(Start, int'(q), int'(start_number_i[q]));
      end
      if (retire_i != '0) begin
        for (int unsigned s = 0; s < Slots; s++) if (retire_i[s]) systolith_event(Retire, -1, int'(retire_number_i[s]));
      end
      if (sync_start_i) systolith_event(Start, int'(Queues), int'(sync_number_i));
    end
  end
`endif

endmodule
