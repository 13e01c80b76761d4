// How often each loop's step is taken on the way to the elements of a vector: the loops' counters, or entries of the index list
// instead of the counter of an indirect loop.
module vpu_index
  import vpu_pkg::*;
  import walk_pkg::NotIndirect;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  localparam int unsigned Elements = Lanes * Sublanes
) (
  input  logic                       valid_i,
  input  logic [3:0]                 indirect_i,    // the indirect loop
  input  logic [31:0]                count_i,       // its count
  input  logic [31:0]                list_i,        // address of the index list
  input  nest_t                      index_i,
  output logic [Elements-1:0]        read_o,        // one word for a loop of the nest, one for each sublane or lane otherwise
  output logic [Elements-1:0][31:0]  address_o,
  input  logic [Elements-1:0][31:0]  data_i,
  output nest_t                      nest_o,
  output logic [Sublanes-1:0][31:0]  sublane_o,
  output logic [Lanes-1:0][31:0]     lane_o
);

  always_comb begin
    read_o    = '0;
    address_o = '0;
    if (valid_i && indirect_i < 4'(Nest)) begin
      read_o[0]    = 1'b1;
      address_o[0] = list_i + {index_i[indirect_i[2:0]][29:0], 2'b0};
    end else if (valid_i && indirect_i != NotIndirect) begin
      for (int unsigned e = 0; e < Elements; e++) begin
        read_o[e]    = e < count_i;
        address_o[e] = list_i + 32'd4 * e;
      end
    end
  end

  always_comb begin
    nest_o    = '0;
    sublane_o = '0;
    lane_o    = '0;
    if (valid_i) begin
      nest_o = index_i;
      if (indirect_i < 4'(Nest)) nest_o[indirect_i[2:0]] = data_i[0];
      for (int unsigned s = 0; s < Sublanes; s++) sublane_o[s] = (indirect_i == 4'(SublaneLoop)) ? data_i[s] : s;
      for (int unsigned l = 0; l < Lanes; l++) lane_o[l] = (indirect_i == 4'(LaneLoop)) ? data_i[l] : l;
    end
  end

endmodule
