// Walking a pattern: the fields of an entry of the pattern table, and how addresses and coordinates move with the loops.
//
// c_j / div_j and c_j mod div_j of a coordinate are kept apart, each loop's coefficient is divided when the table is
// written: so a step of a loop is an addition, and a carry out of a remainder adds one to the quotient and the coordinate's
// stride to the address.
package walk_pkg;

  parameter int unsigned Loops = systolith_pkg::MaxLoops;
  parameter int unsigned Coords = systolith_pkg::MaxCoords;
  parameter logic [3:0] NotIndirect = 4'd8;

  typedef struct packed {
    logic [Coords-1:0][31:0] quotient;
    logic [Coords-1:0][31:0] remainder;  // 0 to div - 1
    logic [31:0]             address;
  } point_t;

  typedef struct packed {
    logic [Coords-1:0][31:0] lo;
    logic [Coords-1:0][31:0] hi;
    logic [Coords-1:0][31:0] div;     // at least 1
    logic [Coords-1:0][31:0] stride;  // bytes
  } bounds_t;

  // An entry of the pattern table.  Loop Loops-1 is the innermost; loops that the pattern lacks are outermost with count 1 and
  // no step.  Coordinates that it lacks have div 1, no bounds, no steps.  `first` is the offsets, divided.
  typedef struct packed {
    systolith_pkg::dtype_e  dtype;
    logic [3:0]             loops;     // how many the pattern has
    logic [3:0]             indirect;  // the loop whose counter goes through the index list, or NotIndirect
    logic [Coords-1:0][1:0] use_bias;  // bit b of coordinate j: bias b is added
    logic [31:0]            fill;
    logic [Loops-1:0][31:0] counts;
    point_t [Loops-1:0]     steps;
    point_t                 first;
    bounds_t                bounds;
  } pattern_t;

  // Bytes of an element in memory, as a shift.
  function automatic logic [1:0] size_log2(systolith_pkg::dtype_e dtype);
    case (dtype)
      systolith_pkg::DtypeF32, systolith_pkg::DtypeS32, systolith_pkg::DtypeU32: size_log2 = 2'd2;
      systolith_pkg::DtypeBf16, systolith_pkg::DtypeF16, systolith_pkg::DtypeS16, systolith_pkg::DtypeU16: size_log2 = 2'd1;
      default: size_log2 = 2'd0;
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

  // Floor of the quotient (high word), and the remainder from 0 to div - 1.
  function automatic logic [63:0] floor_div(logic [31:0] value, logic [31:0] div);
    logic signed [32:0] quotient, remainder, divisor;
    if (div == 32'd1) floor_div = {value, 32'd0};
    else begin
      divisor   = $signed({1'b0, div});
      quotient  = 33'($signed(value)) / divisor;
      remainder = 33'($signed(value)) % divisor;
      if (remainder < 0) begin
        quotient  -= 33'sd1;
        remainder += divisor;
      end
      floor_div = {quotient[31:0], remainder[31:0]};
    end
  endfunction

  // Where a walk starts: the pattern's first point with the stream's base and biases.
  function automatic point_t start_of(pattern_t pattern, logic [31:0] base, logic [1:0][31:0] bias);
    point_t shift;
    logic [31:0] value;
    logic [63:0] parts;
    shift.address = base;
    for (int unsigned j = 0; j < Coords; j++) begin
      value = (pattern.use_bias[j][0] ? bias[0] : 32'd0) + (pattern.use_bias[j][1] ? bias[1] : 32'd0);
      parts = floor_div(value, pattern.bounds.div[j]);
      shift.quotient[j]  = parts[63:32];
      shift.remainder[j] = parts[31:0];
      shift.address += shift.quotient[j] * pattern.bounds.stride[j];
    end
    start_of = add_step(pattern.first, shift, pattern.bounds);
  endfunction

  // A loop's step, `times` (signed) times: for entries of index lists, and for jumping to an iteration.
  function automatic point_t times_step(point_t step, logic [31:0] times, bounds_t bounds);
    point_t to;
    logic signed [63:0] product, carry, rest, divisor;
    to.address = step.address * times;
    for (int unsigned j = 0; j < Coords; j++) begin
      to.quotient[j]  = step.quotient[j] * times;
      to.remainder[j] = '0;
      if (step.remainder[j] != '0) begin
        product = 64'($signed({1'b0, step.remainder[j]})) * 64'($signed(times));
        divisor = 64'($signed({1'b0, bounds.div[j]}));
        carry   = product / divisor;
        rest    = product % divisor;
        if (rest < 0) begin
          carry -= 64'sd1;
          rest  += divisor;
        end
        to.quotient[j] += carry[31:0];
        to.remainder[j] = rest[31:0];
        to.address += carry[31:0] * bounds.stride[j];
      end
    end
    times_step = to;
  endfunction

endpackage
