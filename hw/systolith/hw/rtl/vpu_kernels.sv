// The directory of kernels: entries are read in the cycle of the number.  A model; `vpu_pkg` has the layout.
module vpu_kernels
  import vpu_pkg::kernel_t;
#(
  parameter int unsigned Kernels = 1024
) (
  input  logic        read_i,
  input  logic [15:0] number_i,
  output kernel_t     kernel_o  // zero where nothing is read
);

  localparam int unsigned Bits = $clog2(Kernels);

  kernel_t entries[Kernels];

  always_comb begin
    kernel_o = '0;
    if (read_i) kernel_o = entries[Bits'(number_i)];
  end

`ifndef SYNTHESIS
  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    logic [3:0][31:0] words;
    words                     = entries[Bits'(address>>2)];
    words[address[1:0]]       = data;
    entries[Bits'(address>>2)] = words;
  endfunction

  always_comb begin
    assert (!read_i || 32'(number_i) < Kernels)
    else $error("vpu_kernels: kernel %0d of %0d", number_i, Kernels);
  end
`endif

endmodule
