// Constants of all kernels, read in the cycle of the address.  A model; `vpu_pkg` has the layout.
module vpu_constants #(
  parameter int unsigned Constants = 16384,
  parameter int unsigned Reads = 9
) (
  input  logic [Reads-1:0]       read_i,
  input  logic [Reads-1:0][31:0] address_i,
  output logic [Reads-1:0][31:0] data_o
);

  localparam int unsigned Bits = $clog2(Constants);

  logic [31:0] words[Constants];

  always_comb begin
    data_o = '0;
    if (read_i != '0) begin
      for (int unsigned i = 0; i < Reads; i++) begin
        if (read_i[i]) data_o[i] = words[Bits'(address_i[i])];
      end
    end
  end

`ifndef SYNTHESIS
  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    words[Bits'(address)] = data;
  endfunction

  always_comb begin
    for (int unsigned i = 0; i < Reads; i++) begin
      assert (!read_i[i] || address_i[i] < Constants)
      else $error("vpu_constants: constant %0d of %0d", address_i[i], Constants);
    end
  end
`endif

endmodule
