// A pattern made ready to be walked by additions only.
//
// c / div and c mod div of each coordinate are kept apart, so the coefficients are divided here, once, when an instruction
// enters its queue.  What a coordinate adds to the address becomes part of the loops' strides; `add_step` puts in what a
// carry out of a remainder adds.
module walk_prepare
  import mxu_pkg::*;
#(
  parameter int unsigned SegmentBytes = 32
) (
  input  pattern_t   pattern_i,
  input  logic [3:0] row_loops_i,
  output walk_t      walk_o
);

  // Floor of the quotient, and the remainder from 0 to div - 1.
  function automatic logic [63:0] floor_div(logic [31:0] value, logic [31:0] div);
    logic signed [32:0] quotient, remainder, divisor;
    divisor   = $signed({1'b0, div});
    quotient  = 33'($signed(value)) / divisor;
    remainder = 33'($signed(value)) % divisor;
    if (remainder < 0) begin
      quotient  -= 33'sd1;
      remainder += divisor;
    end
    floor_div = {quotient[31:0], remainder[31:0]};
  endfunction

  // Entry Loops is where the walk starts, entry k what loop k adds.
  localparam int unsigned Points = Loops + 1;

  point_t [Points-1:0] points;
  bounds_t             bounds;
  logic [Coords-1:0]   uneven;  // the innermost loop moves the address by a fraction of the coordinate
  logic [31:0]         stride;  // bytes that it adds otherwise

  for (genvar j = 0; j < int'(Coords); j++) begin : gen_bounds
    assign bounds.lo[j]     = pattern_i.coords[j].lo;
    assign bounds.hi[j]     = pattern_i.coords[j].hi;
    assign bounds.div[j]    = pattern_i.coords[j].div;
    assign bounds.stride[j] = pattern_i.coords[j].stride;
  end

  for (genvar k = 0; k < int'(Points); k++) begin : gen_points
    logic [Coords-1:0][31:0] moved;  // bytes of the address by each coordinate
    logic [31:0]             address;

    for (genvar j = 0; j < int'(Coords); j++) begin : gen_coords
      logic [31:0] value, quotient, remainder;
      if (k < int'(Loops)) begin : gen_step
        assign value = pattern_i.coords[j].coefs[k];
      end else begin : gen_start
        assign value = pattern_i.coords[j].offset + (pattern_i.use_bias[j][0] ? pattern_i.bias[0] : '0)
                       + (pattern_i.use_bias[j][1] ? pattern_i.bias[1] : '0);
      end
      assign {quotient, remainder}  = floor_div(value, pattern_i.coords[j].div);
      assign moved[j]               = quotient * pattern_i.coords[j].stride;
      assign points[k].quotient[j]  = quotient;
      assign points[k].remainder[j] = remainder;
      if (k == int'(Loops) - 1) begin : gen_innermost
        assign uneven[j] = remainder != '0 && pattern_i.coords[j].stride != '0;
      end
    end

    if (k < int'(Loops)) begin : gen_stride
      assign address = pattern_i.strides[k] + moved[0] + moved[1] + moved[2] + moved[3];
    end else begin : gen_base
      assign address = pattern_i.base + moved[0] + moved[1] + moved[2] + moved[3];
    end
    assign points[k].address = address;
    if (k == int'(Loops) - 1) begin : gen_innermost
      assign stride = address;
    end
  end

  // The innermost loop of a row is a segment if it goes from element to element, or stays at one.
  logic        even, broadcast;
  logic [31:0] size, stretch;

  assign size = 32'd1 << size_log2(pattern_i.dtype);
  assign even = row_loops_i < 4'(Loops) && uneven == '0;

  always_comb begin
    broadcast = even && stride == '0;
    if (broadcast) stretch = pattern_i.counts[Loops-1];
    else if (even && stride == size) stretch = 32'(SegmentBytes) >> size_log2(pattern_i.dtype);
    else stretch = 32'd1;
  end

  assign walk_o.dtype     = pattern_i.dtype;
  assign walk_o.row_loops = row_loops_i;
  assign walk_o.broadcast = broadcast;
  assign walk_o.stretch   = stretch;
  assign walk_o.fill      = pattern_i.fill;
  assign walk_o.counts    = pattern_i.counts;
  assign walk_o.steps     = points[Loops-1:0];
  assign walk_o.first     = points[Loops];
  assign walk_o.bounds    = bounds;

endmodule
