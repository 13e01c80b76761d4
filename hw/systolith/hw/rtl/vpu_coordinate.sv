// A coordinate of the elements of a vector: whether they are inside its bounds, and its share of their addresses.
//
// c / div and c mod div are sums of the shares of the iteration, the sublane and the lane; the remainder is kept below div by
// carries into the quotient.  The loops' steps have what their own quotients add to the address; what carries add is given
// here.
module vpu_coordinate
  import vpu_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  localparam int unsigned Elements = Lanes * Sublanes
) (
  input  logic                       valid_i,
  input  logic [31:0]                quotient_i,         // where the walk starts
  input  logic [31:0]                remainder_i,
  input  logic [Loops-1:0][31:0]     step_quotient_i,
  input  logic [Loops-1:0][31:0]     step_remainder_i,
  input  logic [31:0]                lo_i,
  input  logic [31:0]                hi_i,
  input  logic [31:0]                div_i,
  input  logic [31:0]                stride_i,
  input  nest_t                      nest_i,             // how often each step is taken
  input  logic [Sublanes-1:0][31:0]  sublane_i,
  input  logic [Lanes-1:0][31:0]     lane_i,
  output logic [Elements-1:0]        inside_o,
  output logic [Elements-1:0][31:0]  carried_o,          // bytes that carries add
  output logic [Elements-1:0][31:0]  value_o             // before division
);

  typedef struct packed {
    logic [31:0] quotient;
    logic [31:0] remainder;
    logic [31:0] carried;
  } part_t;

  function automatic logic signed [63:0] times(logic [31:0] step, logic [31:0] turns);
    times = (step == '0) ? '0 : $signed({32'b0, step}) * 64'($signed(turns));
  endfunction

  // Brings a remainder below div.
  function automatic part_t reduce(logic [31:0] quotient, logic signed [63:0] remainder, logic [31:0] div,
                                   logic [31:0] stride);
    /* verilator no_inline_task */
    logic signed [63:0] divisor, carry, rest;
    divisor = $signed({32'b0, div});
    if (remainder >= 0 && remainder < divisor) reduce = '{quotient, remainder[31:0], '0};
    else begin
      carry = remainder / divisor;
      rest  = remainder % divisor;
      if (rest < 0) begin
        carry -= 64'sd1;
        rest  += divisor;
      end
      reduce = '{quotient + carry[31:0], rest[31:0], carry[31:0] * stride};
    end
  endfunction

  function automatic part_t sum(part_t a, part_t b, logic [31:0] div, logic [31:0] stride);
    sum.quotient  = a.quotient + b.quotient;
    sum.remainder = a.remainder + b.remainder;
    sum.carried   = a.carried + b.carried;
    if (sum.remainder >= div) begin
      sum.remainder -= div;
      sum.quotient  += 32'd1;
      sum.carried   += stride;
    end
  endfunction

  part_t start;
  part_t rows[Sublanes];  // with the start
  part_t lanes[Lanes];

  // Loops are not unrolled: there is one of these modules for each port and coordinate, and a simulator's code would be
  // large.
  always_comb begin
    logic [31:0]        quotient;
    logic signed [63:0] remainder;
    quotient  = quotient_i;
    remainder = $signed({32'b0, remainder_i});
    start     = '0;
    if (valid_i) begin
      /* verilator unroll_disable */
      for (int unsigned k = 0; k < Nest; k++) begin
        quotient  += step_quotient_i[k] * nest_i[k];
        remainder += times(step_remainder_i[k], nest_i[k]);
      end
      start = reduce(quotient, remainder, div_i, stride_i);
    end
  end

  always_comb begin
    part_t row;
    row = '0;
    for (int unsigned s = 0; s < Sublanes; s++) rows[s] = '0;
    if (valid_i) begin
      /* verilator unroll_disable */
      for (int unsigned s = 0; s < Sublanes; s++) begin
        row = reduce(step_quotient_i[SublaneLoop] * sublane_i[s],
                     times(step_remainder_i[SublaneLoop], sublane_i[s]), div_i, stride_i);
        rows[s] = sum(row, start, div_i, stride_i);
      end
    end
  end

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) lanes[l] = '0;
    if (valid_i) begin
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < Lanes; l++) begin
        lanes[l] = reduce(step_quotient_i[LaneLoop] * lane_i[l], times(step_remainder_i[LaneLoop], lane_i[l]),
                          div_i, stride_i);
      end
    end
  end

  always_comb begin
    part_t at;
    at        = '0;
    inside_o  = '1;
    carried_o = '0;
    value_o   = '0;
    if (valid_i) begin
      /* verilator unroll_disable */
      for (int unsigned s = 0; s < Sublanes; s++) begin
        /* verilator unroll_disable */
        for (int unsigned l = 0; l < Lanes; l++) begin
          at = sum(rows[s], lanes[l], div_i, stride_i);
          inside_o[s*Lanes+l]  = at.remainder == '0 && $signed(at.quotient) >= $signed(lo_i)
                                 && $signed(at.quotient) < $signed(hi_i);
          carried_o[s*Lanes+l] = at.carried;
          value_o[s*Lanes+l]   = at.quotient * div_i + at.remainder;
        end
      end
    end
  end

endmodule
