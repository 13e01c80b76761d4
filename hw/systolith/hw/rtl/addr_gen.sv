// Address generator: walks a pattern, up to `Segments` accesses a cycle, a new row every time in a new cycle.
//
// A walk that starts in cycle s has its first accesses in cycle s + 1; a row of n accesses takes ceil(n / Segments) cycles,
// which no one can stall.  The next walk may start in the cycle of the last accesses (`last_o`).
module addr_gen
  import mxu_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                            clk_i,
  input  logic                            rst_ni,
  // The walk: a pattern with its operands, of which the first `row_loops_i` loops count rows.
  input  logic                            start_i,
  input  pattern_t                        pattern_i,
  input  logic [3:0]                      row_loops_i,
  input  logic [31:0]                     base_i,
  input  logic [1:0][31:0]                bias_i,
  output systolith_pkg::dtype_e           dtype_o,     // of the walk under way,
  output logic [31:0]                     fill_o,
  output logic                            broadcast_o, // whose accesses bring one element each, for all their lanes
  // Accesses: the address of the first element, its number in the row, how many, and which of them exist.
  output logic [Segments-1:0]             valid_o,
  output logic [Segments-1:0][31:0]       address_o,
  output logic [Segments-1:0][31:0]       lane_o,
  output logic [Segments-1:0][31:0]       elements_o,
  output logic [Segments-1:0][Lanes-1:0]  inside_o,
  output logic [31:0]                     row_o,       // they are of that row,
  output logic                            row_last_o,  // complete it,
  output logic                            last_o       // complete the walk
);

  localparam int unsigned LoopBits = $clog2(Loops);

  logic        busy_q;
  walk_t       walk_q;
  logic [31:0] counts_q[Loops];
  point_t      steps_q [Loops];

  // Where the walk is: how far each loop is, and the point with the loops inside it at 0.
  logic [31:0] index_q[Loops];
  logic [31:0] index_d[Loops];
  point_t      point_q[Loops];
  point_t      point_d[Loops];
  logic [31:0] lane_q, lane_d, row_q;

  // Elements from a point on: which of them exist, and the point after them.
  typedef struct packed {
    logic [Lanes-1:0] exists;
    point_t           after;
  } elements_t;

  function automatic elements_t along(point_t from, point_t step, bounds_t bounds, logic [31:0] count);
    /* verilator no_inline_task */
    elements_t found;
    found.exists = '0;
    found.after  = from;
    for (int unsigned e = 0; e < Lanes; e++) begin
      if (e < count) begin
        found.exists[e] = is_inside(found.after, bounds);
        found.after     = add_step(found.after, step, bounds);
      end
    end
    along = found;
  endfunction

  always_comb begin
    logic                carries;  // the access is the last of the innermost loop
    logic [LoopBits-1:0] carry_to;
    logic [31:0]         left;     // elements of the innermost loop
    elements_t           found;
    carries    = 1'b0;
    carry_to   = '0;
    left       = '0;
    found      = '0;
    index_d    = index_q;
    point_d    = point_q;
    lane_d     = lane_q;
    valid_o    = '0;
    address_o  = '0;
    lane_o     = '0;
    elements_o = '0;
    inside_o   = '0;
    row_last_o = 1'b0;
    last_o     = 1'b0;
    for (int unsigned s = 0; s < Segments; s++) begin
      // The cycle ends with its last port or with the row.
      if (busy_q && !row_last_o) begin
        left          = counts_q[Inner] - index_d[Inner];
        carries       = left <= walk_q.stretch;
        valid_o[s]    = 1'b1;
        address_o[s]  = point_d[Inner].address;
        lane_o[s]     = lane_d;
        elements_o[s] = carries ? left : walk_q.stretch;
        found         = along(point_d[Inner], steps_q[Inner], walk_q.bounds, elements_o[s]);
        inside_o[s]   = found.exists;
        // Where next: further along the innermost loop, or the innermost of the others that is not at its end goes on and
        // those inside it start again.
        carry_to = LoopBits'(Inner);
        if (carries) begin
          last_o = 1'b1;
          for (int unsigned k = 0; k < Inner; k++) begin
            if (index_d[k] + 32'd1 < counts_q[k]) begin
              carry_to = LoopBits'(k);
              last_o   = 1'b0;
            end
          end
          found = along(point_d[carry_to], steps_q[carry_to], walk_q.bounds, 32'd1);
          for (int unsigned k = 0; k < Loops; k++) begin
            if (k == 32'(carry_to)) index_d[k] = index_d[k] + 32'd1;
            if (k > 32'(carry_to)) index_d[k] = '0;
            if (k >= 32'(carry_to)) point_d[k] = found.after;
          end
        end else begin
          index_d[Inner] = index_d[Inner] + walk_q.stretch;
          point_d[Inner] = found.after;
        end
        row_last_o = last_o || walk_q.row_loops == 4'(Loops) || (carries && 4'(carry_to) < walk_q.row_loops);
        lane_d     = row_last_o ? '0 : lane_d + elements_o[s];
      end
    end
  end

  point_t first;

  always_comb begin
    first = '0;
    if (start_i) first = start_of(pattern_i, base_i, bias_i);
  end

  assign row_o       = row_q;
  assign dtype_o     = walk_q.dtype;
  assign fill_o      = walk_q.fill;
  assign broadcast_o = walk_q.broadcast;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) busy_q <= 1'b0;
    else if (start_i) busy_q <= 1'b1;
    else if (last_o) busy_q <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      walk_q <= to_walk(pattern_i, row_loops_i, SegmentBytes);
      lane_q <= '0;
      row_q  <= '0;
      for (int unsigned k = 0; k < Loops; k++) begin
        counts_q[k] <= pattern_i.counts[k];
        steps_q[k]  <= pattern_i.steps[k];
        index_q[k]  <= '0;
        point_q[k]  <= first;
      end
    end else if (busy_q) begin
      index_q <= index_d;
      point_q <= point_d;
      lane_q  <= lane_d;
      row_q   <= row_q + 32'(row_last_o);
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    for (int unsigned s = 0; s < Segments; s++) begin
      if (rst_ni && valid_o[s]) begin
        assert (lane_o[s] + elements_o[s] <= Lanes)
        else $error("a row has more than %0d elements", Lanes);
      end
    end
    if (rst_ni && start_i) begin
      assert (!busy_q || last_o)
      else $error("a walk starts before the one under way is over");
    end
  end
`endif

endmodule
