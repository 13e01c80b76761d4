// The accumulators' memory, 32-bit words at byte addresses: any number of them read and written in a cycle, a model like
// `memory`.  Words are read in the cycle of their address and written at the end of the cycle.
module acc_mem #(
  parameter int unsigned Words = 2048,
  parameter int unsigned Reads = 8,
  parameter int unsigned Writes = 8
) (
  input  logic                    clk_i,
  input  logic [Reads-1:0]        read_i,
  input  logic [Reads-1:0][31:0]  read_address_i,
  output logic [Reads-1:0][31:0]  read_data_o,
  input  logic [Writes-1:0]       write_i,
  input  logic [Writes-1:0][31:0] write_address_i,
  input  logic [Writes-1:0][31:0] write_data_i
);

  localparam int unsigned Bits = $clog2(Words);

  logic [31:0] words[Words];

  always_comb begin
    for (int unsigned e = 0; e < Reads; e++) read_data_o[e] = '0;
    if (read_i != '0) begin
      for (int unsigned e = 0; e < Reads; e++) begin
        if (read_i[e]) read_data_o[e] = words[read_address_i[e][2+:Bits]];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (write_i != '0) begin
      for (int unsigned e = 0; e < Writes; e++) begin
        if (write_i[e]) words[write_address_i[e][2+:Bits]] <= write_data_i[e];
      end
    end
  end

`ifndef SYNTHESIS
  // The harness reads and writes between clock edges, as it does with `memory`.
  localparam int unsigned PageBits = 8;  // of words
  localparam int unsigned Pages = (Words + (1 << PageBits) - 1) >> PageBits;
  localparam int unsigned NumberBits = (Pages > 1) ? $clog2(Pages) : 1;

  logic touched[Pages];

  export "DPI-C" function model_poke;
  export "DPI-C" function model_peek;
  export "DPI-C" function model_touched;
  export "DPI-C" function model_clear;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    words[address[2+:Bits]]                      = data;
    touched[NumberBits'(address >> PageBits + 2)] = 1'b1;
  endfunction

  function automatic int unsigned model_peek(longint unsigned address);
    model_peek = (address < 64'(4 * Words)) ? words[address[2+:Bits]] : '0;
  endfunction

  function automatic int unsigned model_touched(int unsigned page);
    model_touched = (page < Pages) ? 32'(touched[NumberBits'(page)]) : 32'd2;
  endfunction

  function automatic void model_clear();
    for (int unsigned w = 0; w < Words; w++) begin
      if (touched[NumberBits'(w>>PageBits)]) words[Bits'(w)] = '0;
    end
    for (int unsigned p = 0; p < Pages; p++) touched[NumberBits'(p)] = 1'b0;
  endfunction

  always_ff @(posedge clk_i) begin
    if (read_i != '0) begin
      for (int unsigned e = 0; e < Reads; e++) begin
        if (read_i[e]) begin
          assert (read_address_i[e] < 4 * Words && read_address_i[e][1:0] == '0)
          else $error("%m: accumulators are read at %0d, there are %0d bytes", read_address_i[e], 4 * Words);
        end
      end
    end
    if (write_i != '0) begin
      for (int unsigned e = 0; e < Writes; e++) begin
        if (write_i[e]) begin
          assert (write_address_i[e] < 4 * Words && write_address_i[e][1:0] == '0)
          else $error("%m: accumulators are written at %0d, there are %0d bytes", write_address_i[e], 4 * Words);
          touched[NumberBits'(write_address_i[e] >> PageBits + 2)] <= 1'b1;
        end
      end
    end
  end
`endif

endmodule
