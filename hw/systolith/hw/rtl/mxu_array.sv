// Rows x Cols processing elements, weight-stationary.
//
// Processing element (r, c) has a weight that works, one that waits in its shadow, and makes a multiplication and an addition a
// cycle.  The stream comes from the left, sums from above; weights from above or, of transposed tiles, from the left.  The
// switch to the shadow weights comes with the stream, so each element switches between the rows before and after it.
//
// Everything is skewed: a row entering in one cycle reaches element (r, c) r + c cycles later, lane by lane through a register
// a cycle.  The registers in front of an element are of stage r + c.  Column c of a row's sums leaves Rows + c cycles after
// the row was in stage 0.
module mxu_array
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  wave_t                 wave_i,
  input  logic [Rows-1:0][15:0] x_i,
  input  load_t                 down_i,          // a row of a tile
  input  logic [Cols-1:0][15:0] down_weights_i,
  input  load_t                 right_i,         // a column of a transposed tile
  input  logic [Rows-1:0][15:0] right_weights_i,
  output logic [Cols-1:0][31:0] sums_o
);

  localparam int unsigned Stages = Rows + Cols - 1;

  // Registers of values that travel; they change only where one does.
  logic [Stages-1:0]     row_q, latch_q, down_q, right_q;
  logic [Stages-1:0]     integer_q;
  logic [15:0]           down_number_q  [Stages];
  logic [15:0]           right_number_q [Stages];
  logic [Rows-1:0][15:0] x_q            [Stages];
  logic [Cols-1:0][15:0] down_weights_q [Stages];
  logic [Rows-1:0][15:0] right_weights_q[Stages];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      row_q   <= '0;
      latch_q <= '0;
      down_q  <= '0;
      right_q <= '0;
    end else begin
      row_q   <= {row_q[Stages-2:0], wave_i.valid};
      latch_q <= {latch_q[Stages-2:0], wave_i.latch};
      down_q  <= {down_q[Stages-2:0], down_i.valid};
      right_q <= {right_q[Stages-2:0], right_i.valid};
    end
  end

  always_ff @(posedge clk_i) begin
    if (wave_i.valid || row_q != '0) begin
      integer_q <= {integer_q[Stages-2:0], wave_i.is_integer};
      for (int unsigned s = 0; s < Stages; s++) x_q[s] <= (s == 0) ? x_i : x_q[s-1];
    end
    if (down_i.valid || down_q != '0) begin
      for (int unsigned s = 0; s < Stages; s++) begin
        down_number_q[s]  <= (s == 0) ? down_i.number : down_number_q[s-1];
        down_weights_q[s] <= (s == 0) ? down_weights_i : down_weights_q[s-1];
      end
    end
    if (right_i.valid || right_q != '0) begin
      for (int unsigned s = 0; s < Stages; s++) begin
        right_number_q[s]  <= (s == 0) ? right_i.number : right_number_q[s-1];
        right_weights_q[s] <= (s == 0) ? right_weights_i : right_weights_q[s-1];
      end
    end
  end

  // Weights, which stay.  The first row or column of a tile clears the shadow on its way: elements beyond the tile are 0.
  logic [15:0] weight_q[Rows][Cols];
  logic [15:0] weight_d[Rows][Cols];
  logic [15:0] shadow_q[Rows][Cols];
  logic [15:0] shadow_d[Rows][Cols];

  always_comb begin
    shadow_d = shadow_q;
    weight_d = weight_q;
    if (down_q != '0 || right_q != '0) begin
      for (int unsigned r = 0; r < Rows; r++) begin
        for (int unsigned c = 0; c < Cols; c++) begin
          if (down_q[r+c]) begin
            if (down_number_q[r+c] == 16'(r)) shadow_d[r][c] = down_weights_q[r+c][c];
            else if (down_number_q[r+c] == '0) shadow_d[r][c] = '0;
          end
          if (right_q[r+c]) begin
            if (right_number_q[r+c] == 16'(c)) shadow_d[r][c] = right_weights_q[r+c][r];
            else if (right_number_q[r+c] == '0) shadow_d[r][c] = '0;
          end
        end
      end
    end
    if (latch_q != '0) begin
      for (int unsigned r = 0; r < Rows; r++) begin
        for (int unsigned c = 0; c < Cols; c++) begin
          if (latch_q[r+c]) weight_d[r][c] = shadow_q[r][c];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (down_q != '0 || right_q != '0) shadow_q <= shadow_d;
    if (latch_q != '0) weight_q <= weight_d;
  end

  // Sums.
  logic [31:0] sum_q[Rows][Cols];
  logic [31:0] sum_d[Rows][Cols];

  for (genvar r = 0; r < int'(Rows); r++) begin : gen_rows
    for (genvar c = 0; c < int'(Cols); c++) begin : gen_cols
      logic [31:0] above;

      if (r == 0) begin : gen_first
        assign above = '0;
      end else begin : gen_later
        assign above = sum_q[r-1][c];
      end

      mxu_mac u_mac (
        .valid_i     (row_q[r+c]),
        .is_integer_i(integer_q[r+c]),
        .x_i         (x_q[r+c][r]),
        .weight_i    (weight_q[r][c]),
        .sum_i       (above),
        .sum_o       (sum_d[r][c])
      );
    end
  end

  always_ff @(posedge clk_i) begin
    if (row_q != '0) begin
      for (int unsigned r = 0; r < Rows; r++) begin
        for (int unsigned c = 0; c < Cols; c++) begin
          if (row_q[r+c]) sum_q[r][c] <= sum_d[r][c];
        end
      end
    end
  end

  always_comb begin
    for (int unsigned c = 0; c < Cols; c++) sums_o[c] = sum_q[Rows-1][c];
  end

endmodule
