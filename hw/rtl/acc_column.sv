// One column of the accumulators: a sum a cycle is added to a row, or to +0.
module acc_column
  import mxu_pkg::*;
#(
  parameter int unsigned AccRows = 256,
  localparam int unsigned RowBits = $clog2(AccRows)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  sum_t               next_i,   // what comes in the next cycle
  input  logic [31:0]        sum_i,
  // What is written in this cycle.
  output logic               write_o,
  output logic [RowBits-1:0] write_row_o,
  output logic [31:0]        write_data_o,
  // Reading, for whoever collects results: data comes in the next cycle.
  input  logic [RowBits-1:0] row_i,
  output logic [31:0]        data_o
);

  logic [31:0] memory[AccRows];

  // The row is read a cycle before its sum comes; if it is being written in that cycle, what is written is taken instead.
  sum_t        now_q;
  logic        forward_q;
  logic [31:0] read_q, written_q, old, added, result;

  assign old    = !now_q.accumulate ? '0 : forward_q ? written_q : read_q;
  assign result = now_q.is_integer ? old + sum_i : added;

  assign write_o      = now_q.valid;
  assign write_row_o  = now_q.row[RowBits-1:0];
  assign write_data_o = result;

  fadd_f32 u_add (
    .a_i  (old),
    .b_i  (sum_i),
    .sum_o(added)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      now_q     <= '0;
      forward_q <= 1'b0;
      written_q <= '0;
    end else begin
      now_q     <= next_i;
      forward_q <= now_q.valid && now_q.row == next_i.row;
      written_q <= result;
    end
  end

  always_ff @(posedge clk_i) begin
    read_q <= memory[next_i.row[RowBits-1:0]];
    data_o <= memory[row_i];
    if (write_o) memory[write_row_o] <= write_data_o;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    assert (!rst_ni || !next_i.valid || next_i.row < AccRows)
    else $error("accumulator row %0d of %0d", next_i.row, AccRows);
  end
`endif

endmodule
