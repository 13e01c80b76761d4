// Walks a pattern: up to E elements a cycle, in pattern order.
//
// The points of the loops leave out the index list's additions, so that going on is an addition whatever the list holds; the
// listed multiple of that loop's step is put on top of each element.
module walker
  import walk_pkg::*;
#(
  parameter int unsigned E = 8,
  localparam int unsigned CountBits = $clog2(E + 1)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 start_i,          // elements come from the next cycle on
  input  pattern_t             pattern_i,
  input  core_pkg::stream_t    stream_i,
  input  logic [CountBits-1:0] take_i,           // how many to go on by
  output logic [E-1:0]         valid_o,          // those that there still are
  output logic [E-1:0]         inside_o,
  output logic [E-1:0][31:0]   address_o,
  output logic                 more_o,           // there are elements after these
  // The index list, in the same cycle.
  output logic [E-1:0]         index_read_o,
  output logic [E-1:0][31:0]   index_address_o,
  input  logic [E-1:0][31:0]   index_data_i
);

  localparam int unsigned Inner = Loops - 1;
  localparam int unsigned LoopBits = $clog2(Loops);

  logic                busy_q, listed_q;
  logic [LoopBits-1:0] indirect_q;
  logic [31:0]         list_q;         // address of the index list
  point_t              listed_step_q;
  bounds_t             bounds_q;
  // Of each loop, and where the walk is: how far each loop is, and the point with the loops inside it at 0.
  logic [31:0]         counts_q[Loops];
  point_t              steps_q [Loops];
  logic [31:0]         index_q [Loops];
  logic [31:0]         index_d [Loops];
  point_t              point_q [Loops];
  point_t              point_d [Loops];

  // Counting: the innermost loop that is not at its end goes on, and those inside it start again.
  logic [LoopBits-1:0] carry_to[E];

  always_comb begin
    logic last;
    last            = 1'b0;
    valid_o         = '0;
    index_read_o    = '0;
    index_address_o = '0;
    carry_to        = '{default: '0};
    index_d         = index_q;
    more_o          = busy_q;
    if (busy_q) begin
      /* verilator unroll_disable */
      for (int unsigned e = 0; e < E; e++) begin
        if (more_o && e < 32'(take_i)) begin
          valid_o[e] = 1'b1;
          if (listed_q) begin
            index_read_o[e]    = 1'b1;
            index_address_o[e] = list_q + (index_d[indirect_q] << 2);
          end
          last = 1'b1;
          for (int unsigned n = 0; n < Loops; n++) begin
            if (last) begin
              if (index_d[Inner-n] + 32'd1 == counts_q[Inner-n]) index_d[Inner-n] = '0;
              else begin
                index_d[Inner-n] = index_d[Inner-n] + 32'd1;
                carry_to[e]      = LoopBits'(Inner - n);
                last             = 1'b0;
              end
            end
          end
          more_o = !last;
        end
      end
    end
  end

  // The index list's additions.
  point_t listed[E];

  for (genvar e = 0; e < int'(E); e++) begin : gen_listed
    walk_listed u_listed (
      .valid_i (index_read_o[e]),
      .step_i  (listed_step_q),
      .times_i (index_data_i[e]),
      .bounds_i(bounds_q),
      .point_o (listed[e])
    );
  end

  // Moving.
  always_comb begin
    point_t              here;
    logic [LoopBits-1:0] to;
    here      = '0;
    to        = '0;
    inside_o  = '0;
    address_o = '0;
    point_d   = point_q;
    if (busy_q) begin
      /* verilator unroll_disable */
      for (int unsigned e = 0; e < E; e++) begin
        if (valid_o[e]) begin
          here = point_d[Inner];
          if (listed_q) here = add_step(here, listed[e], bounds_q);
          address_o[e] = here.address;
          inside_o[e]  = is_inside(here, bounds_q);
          to           = carry_to[e];
          here         = add_step(point_d[to], steps_q[to], bounds_q);
          for (int unsigned k = 0; k < Loops; k++) begin
            if (k >= 32'(to)) point_d[k] = here;
          end
        end
      end
    end
  end

  logic                indirect;
  logic [LoopBits-1:0] indirect_loop;
  point_t              first;
  assign indirect      = pattern_i.indirect != NotIndirect;
  assign indirect_loop = pattern_i.indirect[LoopBits-1:0];

  always_comb begin
    first = '0;
    if (start_i) first = start_of(pattern_i, stream_i.base, stream_i.bias);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q        <= 1'b0;
      listed_q      <= 1'b0;
      indirect_q    <= '0;
      list_q        <= '0;
      listed_step_q <= '0;
      bounds_q      <= '0;
      counts_q      <= '{default: '0};
      steps_q       <= '{default: '0};
      index_q       <= '{default: '0};
      point_q       <= '{default: '0};
    end else if (start_i) begin
      busy_q        <= 1'b1;
      listed_q      <= indirect;
      indirect_q    <= indirect_loop;
      list_q        <= stream_i.index;
      listed_step_q <= pattern_i.steps[indirect_loop];
      bounds_q      <= pattern_i.bounds;
      for (int unsigned k = 0; k < Loops; k++) begin
        counts_q[k] <= pattern_i.counts[k];
        steps_q[k]  <= pattern_i.indirect == 4'(k) ? '0 : pattern_i.steps[k];
        index_q[k]  <= '0;
        point_q[k]  <= first;
      end
    end else if (busy_q) begin
      busy_q  <= more_o;
      index_q <= index_d;
      point_q <= point_d;
    end
  end

endmodule
