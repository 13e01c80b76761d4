// A memory of bytes with any number of elements read and written in a cycle: a model, not a circuit.
//
// An element is 1, 2 or 4 bytes at any address.  It is read in the cycle of its address, zero-extended, and written at the
// end of the cycle, higher elements last.  The last `Loose` elements read wrap around the end instead of being refused.
// Lists are words; they are read apart from the other elements, because they decide about addresses of these.
module memory #(
  parameter int unsigned Bytes = 4096,
  parameter int unsigned AddressBits = 32,
  parameter int unsigned Lists = 1,
  parameter int unsigned Reads = 4,
  parameter int unsigned Writes = 4,
  parameter int unsigned Loose = 0
) (
  input  logic                               clk_i,
  input  logic [Lists-1:0]                   list_i,
  input  logic [Lists-1:0][AddressBits-1:0]  list_address_i,
  output logic [Lists-1:0][31:0]             list_data_o,
  input  logic [Reads-1:0]                   read_i,
  input  logic [Reads-1:0][AddressBits-1:0]  read_address_i,
  input  logic [Reads-1:0][1:0]              read_size_i,      // log2 of the bytes
  output logic [Reads-1:0][31:0]             read_data_o,
  input  logic [Writes-1:0]                  write_i,
  input  logic [Writes-1:0][AddressBits-1:0] write_address_i,
  input  logic [Writes-1:0][1:0]             write_size_i,
  input  logic [Writes-1:0][31:0]            write_data_i
);

  localparam int unsigned Bits = $clog2(Bytes);

  logic [7:0] bytes[Bytes];

  always_comb begin
    for (int unsigned e = 0; e < Reads; e++) read_data_o[e] = '0;
    if (read_i != '0) begin
      for (int unsigned e = 0; e < Reads; e++) begin
        if (read_i[e]) begin
          for (int unsigned b = 0; b < 4; b++) begin
            if (b < 32'd1 << read_size_i[e]) read_data_o[e][8*b+:8] = bytes[Bits'(read_address_i[e]+AddressBits'(b))];
          end
        end
      end
    end
  end

  always_comb begin
    for (int unsigned e = 0; e < Lists; e++) list_data_o[e] = '0;
    if (list_i != '0) begin
      for (int unsigned e = 0; e < Lists; e++) begin
        if (list_i[e]) begin
          for (int unsigned b = 0; b < 4; b++) list_data_o[e][8*b+:8] = bytes[Bits'(list_address_i[e]+AddressBits'(b))];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (write_i != '0) begin
      for (int unsigned e = 0; e < Writes; e++) begin
        if (write_i[e]) begin
          for (int unsigned b = 0; b < 4; b++) begin
            if (b < 32'd1 << write_size_i[e]) bytes[Bits'(write_address_i[e]+AddressBits'(b))] <= write_data_i[e][8*b+:8];
          end
        end
      end
    end
  end

`ifndef SYNTHESIS
  // The harness reads and writes between clock edges, and only pages that were written need clearing and comparing.
  localparam int unsigned PageBits = 10;
  localparam int unsigned Pages = (Bytes + (1 << PageBits) - 1) >> PageBits;

  localparam int unsigned NumberBits = (Pages > 1) ? $clog2(Pages) : 1;

  logic touched[Pages];

  function automatic logic [NumberBits-1:0] page_of(logic [AddressBits-1:0] address);
    page_of = NumberBits'(address >> PageBits);
  endfunction

  export "DPI-C" function model_poke;
  export "DPI-C" function model_peek;
  export "DPI-C" function model_touched;
  export "DPI-C" function model_clear;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    for (int unsigned b = 0; b < 4; b++) bytes[Bits'(address)+Bits'(b)] = data[8*b+:8];
    touched[page_of(AddressBits'(address))] = 1'b1;
  endfunction

  function automatic int unsigned model_peek(longint unsigned address);
    for (int unsigned b = 0; b < 4; b++) model_peek[8*b+:8] = bytes[Bits'(address)+Bits'(b)];
  endfunction

  function automatic int unsigned model_touched(int unsigned page);
    model_touched = (page < Pages) ? 32'(touched[NumberBits'(page)]) : 32'd2;
  endfunction

  function automatic void model_clear();
    for (int unsigned p = 0; p < Pages; p++) begin
      if (touched[NumberBits'(p)]) begin
        for (int unsigned b = 0; b < 1 << PageBits; b++) bytes[Bits'((p << PageBits) + b)] = '0;
      end
      touched[NumberBits'(p)] = 1'b0;
    end
  endfunction

  always_ff @(posedge clk_i) begin
    if (write_i != '0) begin
      for (int unsigned e = 0; e < Writes; e++) begin
        if (write_i[e]) begin
          assert (write_address_i[e] <= AddressBits'(Bytes) - (AddressBits'(1) << write_size_i[e]))
          else $error("%m: element %0d is written at %0d, there are %0d bytes", e, write_address_i[e], Bytes);
          touched[page_of(write_address_i[e])] <= 1'b1;
          touched[page_of(write_address_i[e]+AddressBits'(3))] <= 1'b1;
        end
      end
    end
    if (list_i != '0) begin
      for (int unsigned e = 0; e < Lists; e++) begin
        if (list_i[e]) begin
          assert (list_address_i[e] <= AddressBits'(Bytes - 4))
          else $error("%m: entry %0d of a list is read at %0d, there are %0d bytes", e, list_address_i[e], Bytes);
        end
      end
    end
    if (read_i != '0) begin
      for (int unsigned e = 0; e + Loose < Reads; e++) begin
        if (read_i[e]) begin
          assert (read_address_i[e] <= AddressBits'(Bytes) - (AddressBits'(1) << read_size_i[e]))
          else $error("%m: element %0d is read at %0d, there are %0d bytes", e, read_address_i[e], Bytes);
        end
      end
    end
  end
`endif

endmodule
