// Instruction memory: some words from any word on, in the cycle of the address.  A model.
module imem #(
  parameter int unsigned Words = 65536,
  parameter int unsigned FetchWords = 4
) (
  input  logic [31:0]                 address_i,  // of the first word
  output logic [FetchWords-1:0][31:0] data_o
);

  localparam int unsigned Bits = $clog2(Words);

  logic [31:0] memory[Words];

  always_comb begin
    for (int unsigned w = 0; w < FetchWords; w++) data_o[w] = memory[Bits'(address_i + w)];
  end

`ifndef SYNTHESIS
  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    memory[Bits'(address)] = data;
  endfunction
`endif

endmodule
