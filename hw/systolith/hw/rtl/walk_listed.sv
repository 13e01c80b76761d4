// The addition of an index list's entry to a point: the listed multiple of a loop's step.
module walk_listed
  import walk_pkg::*;
(
  input  logic        valid_i,
  input  point_t      step_i,
  input  logic [31:0] times_i,
  input  bounds_t     bounds_i,
  output point_t      point_o
);

  always_comb begin
    point_o = '0;
    if (valid_i) point_o = times_step(step_i, times_i, bounds_i);
  end

endmodule
