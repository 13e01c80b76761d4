// Rows x Cols processing elements, weight-stationary.
//
// What enters in one cycle is skewed here: lane r of the stream and of transposed weights by r cycles, lane c of weights by c
// cycles.  Column c of a row's sums leaves Rows + c cycles after the row entered.
module mxu_array
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  localparam int unsigned Lanes = (Rows > Cols) ? Rows : Cols
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  wave_t                  wave_i,
  input  logic [Rows-1:0][15:0]  x_i,
  input  logic                   weights_valid_i,
  input  logic                   weights_first_i,      // of its tile: the rest of the tile becomes zero
  input  logic                   weights_transpose_i,  // the weights are a column of the tile; otherwise a row
  input  logic [15:0]            weights_number_i,     // which
  input  logic [Lanes-1:0][15:0] weights_i,
  output logic [Cols-1:0][31:0]  sums_o
);

  wave_t   [Rows-1:0][Cols:0]       wave;
  logic    [Rows-1:0][Cols:0][15:0] x;
  weight_t [Rows-1:0][Cols:0]       right;
  weight_t [Rows:0][Cols-1:0]       down;
  logic    [Rows:0][Cols-1:0][31:0] sum;

  for (genvar r = 0; r < int'(Rows); r++) begin : gen_left
    weight_t weight;
    assign weight.valid = weights_valid_i && weights_transpose_i;
    assign weight.clear = weights_first_i;
    assign weight.hops  = weights_number_i;
    assign weight.value = weights_i[r];
    delay_line #(
      .Width ($bits(wave_i) + 16 + $bits(weight)),
      .Cycles(r)
    ) u_skew (
      .clk_i,
      .rst_ni,
      .data_i({wave_i, x_i[r], weight}),
      .data_o({wave[r][0], x[r][0], right[r][0]})
    );
  end

  for (genvar c = 0; c < int'(Cols); c++) begin : gen_top
    weight_t weight;
    assign weight.valid = weights_valid_i && !weights_transpose_i;
    assign weight.clear = weights_first_i;
    assign weight.hops  = weights_number_i;
    assign weight.value = weights_i[c];
    delay_line #(
      .Width ($bits(weight)),
      .Cycles(c)
    ) u_skew (
      .clk_i,
      .rst_ni,
      .data_i(weight),
      .data_o(down[0][c])
    );
    assign sum[0][c] = '0;
  end

  for (genvar r = 0; r < int'(Rows); r++) begin : gen_rows
    for (genvar c = 0; c < int'(Cols); c++) begin : gen_cols
      mxu_pe u_pe (
        .clk_i,
        .rst_ni,
        .wave_i (wave[r][c]),
        .x_i    (x[r][c]),
        .sum_i  (sum[r][c]),
        .down_i (down[r][c]),
        .right_i(right[r][c]),
        .wave_o (wave[r][c+1]),
        .x_o    (x[r][c+1]),
        .sum_o  (sum[r+1][c]),
        .down_o (down[r+1][c]),
        .right_o(right[r][c+1])
      );
    end
  end

  assign sums_o = sum[Rows];

  logic unused_edges;
  always_comb begin
    unused_edges = ^down[Rows];
    for (int unsigned r = 0; r < Rows; r++) unused_edges ^= ^{wave[r][Cols], x[r][Cols], right[r][Cols]};
  end

endmodule
