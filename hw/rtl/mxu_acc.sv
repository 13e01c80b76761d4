// Accumulators: AccRows x Cols words of 32 bits behind the array.
//
// A row's sums come `Delay` cycles after `sum_i`, and column c another c cycles later.
module mxu_acc
  import mxu_pkg::*;
#(
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Delay = 8,  // at least 1
  localparam int unsigned RowBits = $clog2(AccRows)
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,
  input  sum_t                          sum_i,
  input  logic [Cols-1:0][31:0]         sums_i,
  output logic [Cols-1:0]               write_o,       // what is written in this cycle, by column
  output logic [Cols-1:0][RowBits-1:0]  write_row_o,
  output logic [Cols-1:0][31:0]         write_data_o,
  input  logic [RowBits-1:0]            row_i,         // what is read in the next
  output logic [Cols-1:0][31:0]         data_o
);

  sum_t [Cols-1:0] next;

  delay_line #(
    .Width ($bits(sum_i)),
    .Cycles(Delay - 1)
  ) u_delay (
    .clk_i,
    .rst_ni,
    .data_i(sum_i),
    .data_o(next[0])
  );

  for (genvar c = 0; c < int'(Cols); c++) begin : gen_columns
    if (c > 0) begin : gen_skew
      delay_line #(
        .Width ($bits(sum_i)),
        .Cycles(1)
      ) u_skew (
        .clk_i,
        .rst_ni,
        .data_i(next[c-1]),
        .data_o(next[c])
      );
    end
    acc_column #(.AccRows(AccRows)) u_column (
      .clk_i,
      .rst_ni,
      .next_i      (next[c]),
      .sum_i       (sums_i[c]),
      .write_o     (write_o[c]),
      .write_row_o (write_row_o[c]),
      .write_data_o(write_data_o[c]),
      .row_i,
      .data_o      (data_o[c])
    );
  end

endmodule
