// A word, `Cycles` cycles later.
module delay_line #(
  parameter int unsigned Width = 1,
  parameter int unsigned Cycles = 1
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Cycles == 0) begin : gen_wire
    logic unused_clock;
    assign unused_clock = ^{clk_i, rst_ni};
    assign data_o       = data_i;
  end else begin : gen_line
    logic [Cycles-1:0][Width-1:0] line_q;

    assign data_o = line_q[Cycles-1];

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) line_q <= '0;
      else begin
        for (int unsigned i = 0; i < Cycles; i++) line_q[i] <= (i == 0) ? data_i : line_q[i-1];
      end
    end
  end

endmodule
