// Types of the matrix unit: what its queues are fed with, and what travels between its modules.
package mxu_pkg;

  // Limits of the instruction set, the same for every chip.
  parameter int unsigned Loops = systolith_pkg::MaxLoops;
  parameter int unsigned Coords = systolith_pkg::MaxCoords;
  parameter int unsigned Tokens = 256;
  parameter int unsigned TokensPerInstr = systolith_pkg::MaxWaits;  // waits, and as many signals
  parameter logic [7:0] NoToken = 8'(systolith_pkg::NoToken);
  parameter logic [31:0] CanonicalNan = 32'h7FC0_0000;

  typedef enum logic [1:0] {
    OpNop,
    OpLoad,
    OpLatch,
    OpMatmul
  } op_e;

  // A coordinate of a pattern.  Coefficients, offset, bounds and stride are signed; div is at least 1.
  typedef struct packed {
    logic [Loops-1:0][31:0] coefs;
    logic [31:0]            offset;
    logic [31:0]            lo;
    logic [31:0]            hi;
    logic [31:0]            div;
    logic [31:0]            stride;
  } coord_t;

  // An address pattern with its run-time operands.  Loop Loops-1 is the innermost; loops that the pattern lacks are
  // outermost with count 1.  Coordinates that it lacks have coefs 0, div 1 and no bounds.
  typedef struct packed {
    systolith_pkg::dtype_e  dtype;
    logic [Coords-1:0][1:0] use_bias;  // bit b of coordinate j: bias b is added
    logic [31:0]            fill;
    logic [31:0]            base;
    logic [1:0][31:0]       bias;
    logic [Loops-1:0][31:0] counts;
    logic [Loops-1:0][31:0] strides;
    coord_t [Coords-1:0]    coords;
  } pattern_t;

  // What an instruction is besides its pattern and its tokens.
  typedef struct packed {
    op_e         op;
    logic        transpose;
    logic        accumulate;
    logic        is_integer;
    logic [1:0]  part;
    logic [31:0] acc_row;  // accumulator row of the first row
  } command_t;

  typedef struct packed {
    logic [TokensPerInstr-1:0][7:0] waits;
    logic [TokensPerInstr-1:0][7:0] signals;
    logic                           fence;
    command_t                       command;
    logic [3:0]                     row_loops;  // outermost loops that count rows, those that are missing included
    pattern_t                       pattern;
  } instr_t;

  // A pattern ready to be walked: every step is an addition.  c_j / div_j and c_j mod div_j are kept apart.
  typedef struct packed {
    logic [Coords-1:0][31:0] quotient;
    logic [Coords-1:0][31:0] remainder;
    logic [31:0]             address;
  } point_t;

  typedef struct packed {
    logic [Coords-1:0][31:0] lo;
    logic [Coords-1:0][31:0] hi;
    logic [Coords-1:0][31:0] div;
    logic [Coords-1:0][31:0] stride;
  } bounds_t;

  typedef struct packed {
    systolith_pkg::dtype_e  dtype;
    logic [3:0]             row_loops;
    logic                   broadcast;  // an access gives one element for all of its stretch
    logic [31:0]            stretch;    // elements of the innermost loop that one access gives
    logic [31:0]            fill;
    logic [Loops-1:0][31:0] counts;
    point_t [Loops-1:0]     steps;
    point_t                 first;
    bounds_t                bounds;
  } walk_t;

  // Where a walk is: the index of each loop, and for each loop the point with the loops inside it at 0.
  typedef struct packed {
    logic [Loops-1:0][31:0] index;
    point_t [Loops-1:0]     point;
    logic [31:0]            lane;  // element number within the row
  } place_t;

  typedef struct packed {
    logic [TokensPerInstr-1:0][7:0] waits;
    logic [TokensPerInstr-1:0][7:0] signals;
    logic                           fence;
    command_t                       command;
    walk_t                          walk;
  } work_t;

  // A weight on its way through the array; `hops` more processing elements and it is where it belongs.
  typedef struct packed {
    logic        valid;
    logic        clear;  // the first row of a tile: zero every shadow weight on the way
    logic [15:0] hops;
    logic [15:0] value;
  } weight_t;

  // What travels with a row of the stream.
  typedef struct packed {
    logic latch;
    logic is_integer;
  } wave_t;

  // What becomes of a row at the accumulators.
  typedef struct packed {
    logic        valid;
    logic        accumulate;
    logic        is_integer;
    logic [31:0] row;
  } sum_t;

  // Bytes of an element in memory, as a shift.
  function automatic logic [1:0] size_log2(systolith_pkg::dtype_e dtype);
    unique case (dtype)
      systolith_pkg::DtypeF32: size_log2 = 2'd2;
      systolith_pkg::DtypeBf16, systolith_pkg::DtypeF16: size_log2 = 2'd1;
      default:   size_log2 = 2'd0;
    endcase
  endfunction

  // Sum of two points, with carries out of the remainders.
  function automatic point_t add_step(point_t from, point_t step, bounds_t bounds);
    point_t to;
    logic [32:0] remainder;
    to.address = from.address + step.address;
    for (int unsigned j = 0; j < Coords; j++) begin
      remainder = {1'b0, from.remainder[j]} + {1'b0, step.remainder[j]};
      to.quotient[j] = from.quotient[j] + step.quotient[j];
      if (remainder >= {1'b0, bounds.div[j]}) begin
        remainder -= {1'b0, bounds.div[j]};
        to.quotient[j] += 32'd1;
        to.address += bounds.stride[j];
      end
      to.remainder[j] = remainder[31:0];
    end
    add_step = to;
  endfunction

  // Whether the element at a point exists.
  function automatic logic is_inside(point_t point, bounds_t bounds);
    logic inside_all;
    inside_all = 1'b1;
    for (int unsigned j = 0; j < Coords; j++) begin
      inside_all &= point.remainder[j] == '0
                    && $signed(bounds.lo[j]) <= $signed(point.quotient[j])
                    && $signed(point.quotient[j]) < $signed(bounds.hi[j]);
    end
    is_inside = inside_all;
  endfunction

  // f32 to the nearest bf16, ties to even; any NaN gives the canonical one.
  function automatic logic [15:0] round_bf16(logic [31:0] x);
    logic [31:0] rounded;
    rounded = x + 32'h0000_7FFF + 32'(x[16]);
    round_bf16 = (x[30:0] > 31'h7F80_0000) ? CanonicalNan[31:16] : rounded[31:16];
  endfunction

endpackage
