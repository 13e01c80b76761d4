// The control store: a row of micro-operations in the cycle of its address.  A model; `vpu_pkg` has the layout.
module vpu_control
  import vpu_pkg::microop_t;
#(
  parameter int unsigned Rows = 32768,
  parameter int unsigned Columns = 5
) (
  input  logic                   read_i,
  input  logic [31:0]            address_i,
  output microop_t [Columns-1:0] row_o  // nothing to do where nothing is read
);

  localparam int unsigned Bits = $clog2(Rows);

  microop_t [Columns-1:0] rows[Rows];

  always_comb begin
    row_o = '0;
    if (read_i) row_o = rows[Bits'(address_i)];
  end

`ifndef SYNTHESIS
  // A micro-operation is two words.
  localparam int unsigned ColumnBits = (Columns > 1) ? $clog2(Columns) : 1;

  export "DPI-C" function model_poke;

  function automatic void model_poke(longint unsigned address, int unsigned data);
    logic [1:0][31:0]      words;
    logic [Bits-1:0]       row;
    logic [ColumnBits-1:0] column;
    row              = Bits'((address >> 1) / 64'(Columns));
    column           = ColumnBits'((address >> 1) % 64'(Columns));
    words            = 64'(rows[row][column]);
    words[address[0]] = data;
    rows[row][column] = $bits(microop_t)'(words);
  endfunction

  always_comb begin
    assert (!read_i || address_i < Rows)
    else $error("vpu_control: row %0d of %0d", address_i, Rows);
  end
`endif

endmodule
