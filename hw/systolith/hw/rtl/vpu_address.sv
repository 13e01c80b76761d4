// The elements of a vector that one port reads, writes, or asks for coordinates.
module vpu_address
  import vpu_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  localparam int unsigned Elements = Lanes * Sublanes
) (
  input  logic                       valid_i,
  input  pattern_t                   pattern_i,
  input  point_t                     origin_i,
  input  logic [31:0]                list_i,           // address of the index list
  input  nest_t                      index_i,
  input  logic                       coordinate_i,     // the value of a coordinate is asked for:
  input  logic [1:0]                 number_i,         // of this one
  output logic [Elements-1:0]        index_read_o,     // of the index list
  output logic [Elements-1:0][31:0]  index_address_o,
  input  logic [Elements-1:0][31:0]  index_data_i,
  output logic [Elements-1:0]        covered_o,        // elements that the pattern has
  output logic [Elements-1:0]        exists_o,         // those of them that are inside its bounds
  output logic [Elements-1:0][31:0]  address_o,
  output logic [Elements-1:0][31:0]  value_o           // of the coordinate, before division
);

  nest_t                     nest;
  logic [Sublanes-1:0][31:0] sublane;
  logic [Lanes-1:0][31:0]    lane;

  vpu_index #(
    .Lanes   (Lanes),
    .Sublanes(Sublanes)
  ) u_index (
    .valid_i,
    .indirect_i(pattern_i.indirect),
    .count_i   (pattern_i.counts[pattern_i.indirect[2:0]]),
    .list_i,
    .index_i,
    .read_o    (index_read_o),
    .address_o (index_address_o),
    .data_i    (index_data_i),
    .nest_o    (nest),
    .sublane_o (sublane),
    .lane_o    (lane)
  );

  // Coordinates that neither bound elements nor are asked for add nothing that the steps' addresses do not have.
  logic [Coords-1:0]                     used;
  logic [Coords-1:0][Elements-1:0]       inside_all;
  logic [Coords-1:0][Elements-1:0][31:0] carried;
  logic [Coords-1:0][Elements-1:0][31:0] value;

  for (genvar j = 0; j < int'(Coords); j++) begin : gen_coords
    logic [Loops-1:0][31:0] quotients, remainders;

    for (genvar k = 0; k < int'(Loops); k++) begin : gen_steps
      assign quotients[k]  = pattern_i.steps[k].quotient[j];
      assign remainders[k] = pattern_i.steps[k].remainder[j];
    end

    assign used[j] = valid_i && (pattern_i.bounds.lo[j] != 32'h8000_0000 || pattern_i.bounds.hi[j] != 32'h7FFF_FFFF
                                 || pattern_i.bounds.div[j] != 32'd1 || coordinate_i && number_i == 2'(j));

    vpu_coordinate #(
      .Lanes   (Lanes),
      .Sublanes(Sublanes)
    ) u_coordinate (
      .valid_i         (used[j]),
      .quotient_i      (origin_i.quotient[j]),
      .remainder_i     (origin_i.remainder[j]),
      .step_quotient_i (quotients),
      .step_remainder_i(remainders),
      .lo_i            (pattern_i.bounds.lo[j]),
      .hi_i            (pattern_i.bounds.hi[j]),
      .div_i           (pattern_i.bounds.div[j]),
      .stride_i        (pattern_i.bounds.stride[j]),
      .nest_i          (nest),
      .sublane_i       (sublane),
      .lane_i          (lane),
      .inside_o        (inside_all[j]),
      .carried_o       (carried[j]),
      .value_o         (value[j])
    );
  end

  always_comb begin
    covered_o = '0;
    exists_o  = '0;
    if (valid_i) begin
      for (int unsigned s = 0; s < Sublanes; s++) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          covered_o[s*Lanes+l] = s < pattern_i.counts[SublaneLoop] && l < pattern_i.counts[LaneLoop];
        end
      end
      exists_o = covered_o;
      for (int unsigned j = 0; j < Coords; j++) exists_o &= inside_all[j];
    end
  end

  always_comb begin
    logic [31:0] start;
    start     = origin_i.address;
    address_o = '0;
    if (valid_i) begin
      for (int unsigned k = 0; k < Nest; k++) start += pattern_i.steps[k].address * nest[k];
      for (int unsigned s = 0; s < Sublanes; s++) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          address_o[s*Lanes+l] = start + pattern_i.steps[SublaneLoop].address * sublane[s]
                                 + pattern_i.steps[LaneLoop].address * lane[l];
        end
      end
      for (int unsigned j = 0; j < Coords; j++) begin
        if (used[j]) begin
          for (int unsigned e = 0; e < Elements; e++) address_o[e] += carried[j][e];
        end
      end
    end
  end

  assign value_o = value[number_i];

endmodule
