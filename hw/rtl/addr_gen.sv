// Address generator: walks a pattern, up to `Segments` accesses a cycle, a new row every time in a new cycle.
//
// A walk that starts in cycle s has its first accesses in cycle s + 1; a row of n accesses takes ceil(n / Segments) cycles,
// which no one can stall.  The next walk may start in the cycle of the last accesses (`last_o`).
module addr_gen
  import mxu_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Segments = 2
) (
  input  logic                            clk_i,
  input  logic                            rst_ni,
  input  logic                            start_i,
  input  walk_t                           walk_i,
  output logic                            busy_o,
  output walk_t                           walk_o,      // the one under way
  output logic [Segments-1:0]             valid_o,
  output logic [Segments-1:0][31:0]       address_o,
  output logic [Segments-1:0][31:0]       lane_o,
  output logic [Segments-1:0][31:0]       elements_o,
  output logic [Segments-1:0][Lanes-1:0]  inside_o,
  output logic                            row_first_o, // these accesses are of the walk's first row,
  output logic                            row_last_o,  // complete a row,
  output logic                            last_o       // complete the walk
);

  walk_t  walk_q;
  place_t place_q;
  logic   busy_q, first_q;

  // The cycle ends with its last port or with the row: the ports after that pass on where the walk is.
  for (genvar s = 0; s < int'(Segments); s++) begin : gen_ports
    logic   open, row_last, last, stepped_row_last, stepped_last;
    place_t here, stepped, after;

    if (s == 0) begin : gen_first
      assign open     = busy_q;
      assign here     = place_q;
      assign row_last = open && stepped_row_last;
      assign last     = open && stepped_last;
    end else begin : gen_later
      assign open     = gen_ports[s-1].open && !gen_ports[s-1].row_last;
      assign here     = gen_ports[s-1].after;
      assign row_last = open ? stepped_row_last : gen_ports[s-1].row_last;
      assign last     = open ? stepped_last : gen_ports[s-1].last;
    end

    addr_step #(.Lanes(Lanes)) u_step (
      .walk_i    (walk_q),
      .place_i   (here),
      .address_o (address_o[s]),
      .lane_o    (lane_o[s]),
      .elements_o(elements_o[s]),
      .inside_o  (inside_o[s]),
      .next_o    (stepped),
      .row_last_o(stepped_row_last),
      .last_o    (stepped_last)
    );

    assign after      = open ? stepped : here;
    assign valid_o[s] = open;
  end

  place_t place_d;

  assign place_d    = gen_ports[Segments-1].after;
  assign row_last_o = gen_ports[Segments-1].row_last;
  assign last_o     = gen_ports[Segments-1].last;
  assign busy_o      = busy_q;
  assign walk_o      = walk_q;
  assign row_first_o = first_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q  <= 1'b0;
      first_q <= 1'b0;
      walk_q  <= '0;
      place_q <= '0;
    end else if (start_i) begin
      busy_q        <= 1'b1;
      first_q       <= 1'b1;
      walk_q        <= walk_i;
      place_q.index <= '0;
      place_q.point <= {Loops{walk_i.first}};
      place_q.lane  <= '0;
    end else if (busy_q) begin
      busy_q  <= !last_o;
      first_q <= first_q && !row_last_o;
      place_q <= place_d;
    end
  end

`ifndef SYNTHESIS
  for (genvar s = 0; s < int'(Segments); s++) begin : gen_checks
    always_ff @(posedge clk_i) begin
      if (rst_ni && valid_o[s]) begin
        assert (lane_o[s] + elements_o[s] <= Lanes)
        else $error("a row has more than %0d elements", Lanes);
      end
    end
  end
`endif

endmodule
