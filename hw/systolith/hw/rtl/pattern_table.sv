// The pattern table: entries are read in the cycle of their numbers, by whoever starts an instruction.  A model.
module pattern_table
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Entries = 1024,
  parameter int unsigned Ports = 2
) (
  input  logic              read_i[Ports],
  input  logic       [19:0] number_i[Ports],
  output pattern_t          pattern_o[Ports]  // zero where nothing is read
);

  localparam int unsigned Bits = $clog2(Entries);

  pattern_t entries[Entries];

  for (genvar p = 0; p < int'(Ports); p++) begin : gen_ports
    always_comb begin
      pattern_o[p] = '0;
      if (read_i[p]) pattern_o[p] = entries[Bits'(number_i[p])];
    end
  end

`ifndef SYNTHESIS
  // The harness writes an entry as words, the lowest first.
  localparam int unsigned Words = ($bits(pattern_t) + 31) / 32;

  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    logic [Words-1:0][31:0] words;
    words = (32 * Words)'(entries[Bits'(address/64'(Words))]);
    words[address%64'(Words)] = data;
    entries[Bits'(address/64'(Words))] = $bits(pattern_t)'(words);
  endfunction

  always_comb begin
    for (int unsigned p = 0; p < Ports; p++) begin
      assert (!read_i[p] || 32'(number_i[p]) < Entries)
      else $error("pattern_table: entry %0d of %0d", number_i[p], Entries);
    end
  end
`endif

endmodule
