// The buffer table: where each HBM buffer begins, read in the cycle of its number.  A model.
module buffer_table
  import core_pkg::HbmAddressBits;
#(
  parameter int unsigned Entries = 256,
  parameter int unsigned Ports = 2
) (
  input  logic [Ports-1:0][15:0]               buffer_i,
  output logic [Ports-1:0][HbmAddressBits-1:0] base_o
);

  localparam int unsigned Bits = $clog2(Entries);

  logic [HbmAddressBits-1:0] bases[Entries];

  always_comb begin
    for (int unsigned p = 0; p < Ports; p++) base_o[p] = bases[Bits'(buffer_i[p])];
  end

`ifndef SYNTHESIS
  // The harness writes a base as two words, the low one first.
  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    if (address[0]) bases[Bits'(address>>1)][HbmAddressBits-1:32] = (HbmAddressBits - 32)'(data);
    else bases[Bits'(address>>1)][31:0] = data;
  endfunction
`endif

endmodule
