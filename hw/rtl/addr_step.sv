// One access of a pattern's walk: which elements it brings, and where the walk is after it.
module addr_step
  import mxu_pkg::*;
#(
  parameter int unsigned Lanes = 8  // elements of the longest row
) (
  input  walk_t                       walk_i,
  input  place_t                      place_i,
  output logic [31:0]                 address_o,   // of the first element
  output logic [31:0]                 lane_o,      // its number in the row
  output logic [31:0]                 elements_o,
  output logic [Lanes-1:0]            inside_o,    // for each of the elements
  output place_t                      next_o,
  output logic                        row_last_o,  // the access is the last of a row,
  output logic                        last_o       // of the walk
);

  localparam int unsigned Inner = Loops - 1;

  // The elements along the innermost loop; `beyond` is the point after each.
  point_t [Lanes-1:0] beyond;
  logic [31:0]        left;

  always_comb begin
    point_t here;
    here = place_i.point[Inner];
    for (int unsigned e = 0; e < Lanes; e++) begin
      inside_o[e] = is_inside(here, walk_i.bounds);
      here        = add_step(here, walk_i.steps[Inner], walk_i.bounds);
      beyond[e]   = here;
    end
  end

  assign left       = walk_i.counts[Inner] - place_i.index[Inner];
  assign address_o  = place_i.point[Inner].address;
  assign lane_o     = place_i.lane;
  assign elements_o = (left < walk_i.stretch) ? left : walk_i.stretch;

  // Where next: further along the innermost loop, or the innermost of the others that is not at its end goes on and those
  // inside it start again.
  logic [$clog2(Loops)-1:0] carry_to;
  logic                     carries;
  point_t                   moved;
  point_t                   further;

  always_comb begin
    carries  = left <= walk_i.stretch;
    carry_to = '0;
    last_o   = carries;
    for (int unsigned k = 0; k < Inner; k++) begin
      if (place_i.index[k] + 32'd1 < walk_i.counts[k]) begin
        carry_to = ($clog2(Loops))'(k);
        last_o   = 1'b0;
      end
    end
    row_last_o = last_o || walk_i.row_loops == 4'(Loops) || (carries && 4'(carry_to) < walk_i.row_loops);
  end

  assign moved   = add_step(place_i.point[carry_to], walk_i.steps[carry_to], walk_i.bounds);
  assign further = beyond[($clog2(Lanes))'(walk_i.stretch - 32'd1)];

  always_comb begin
    next_o      = place_i;
    next_o.lane = row_last_o ? '0 : place_i.lane + elements_o;
    if (!carries) begin
      next_o.index[Inner] = place_i.index[Inner] + walk_i.stretch;
      next_o.point[Inner] = further;
    end else begin
      for (int unsigned k = 0; k < Loops; k++) begin
        if (k == 32'(carry_to)) next_o.index[k] = place_i.index[k] + 32'd1;
        if (k > 32'(carry_to)) next_o.index[k] = '0;
        if (k >= 32'(carry_to)) next_o.point[k] = moved;
      end
    end
  end

endmodule
