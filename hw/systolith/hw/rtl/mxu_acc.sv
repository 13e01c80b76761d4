// Accumulators behind the array: AccRows x Cols words of 32 bits.  A row's sum is added to its accumulator's value, or to
// +0.
//
// Column c of a row's sums comes Rows + c + 1 cycles after `sum_i`, and is written at the end of that cycle.
module mxu_acc
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Reads = 16,
  parameter int unsigned Writes = 16
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  sum_t                    sum_i,
  input  logic [Cols-1:0][31:0]   sums_i,
  // The vector unit's ports: byte addresses, row after row; read data come in the same cycle.
  input  logic [Reads-1:0]        read_i,
  input  logic [Reads-1:0][31:0]  read_address_i,
  output logic [Reads-1:0][31:0]  read_data_o,
  input  logic [Writes-1:0]       write_i,
  input  logic [Writes-1:0][31:0] write_address_i,
  input  logic [Writes-1:0][31:0] write_data_i
);

  localparam int unsigned Stages = Rows + Cols;

  // A row's way along the columns: at column c it is read in stage Rows + c - 1 and written in the next.
  logic [Stages-1:0] valid_q;
  sum_t              sum_q[Stages];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= {valid_q[Stages-2:0], sum_i.valid};
  end

  always_ff @(posedge clk_i) begin
    if (sum_i.valid || valid_q != '0) begin
      for (int unsigned s = 0; s < Stages; s++) sum_q[s] <= (s == 0) ? sum_i : sum_q[s-1];
    end
  end

  function automatic logic [31:0] address_of(logic [31:0] row, int unsigned column);
    address_of = (row * Cols + column) << 2;
  endfunction

  logic [Cols-1:0]       read, write;
  logic [Cols-1:0][31:0] read_address, read_data, write_address, write_data;
  logic [31:0]           old_q[Cols];  // value of the accumulator

  always_comb begin
    read          = '0;
    write         = '0;
    read_address  = '0;
    write_address = '0;
    write_data    = '0;
    if (valid_q[Stages-1:Rows-1] != '0) begin
      for (int unsigned c = 0; c < Cols; c++) begin
        if (valid_q[Rows+c-1] && sum_q[Rows+c-1].accumulate) begin
          read[c]         = 1'b1;
          read_address[c] = address_of(sum_q[Rows+c-1].row, c);
        end
        if (valid_q[Rows+c]) begin
          write[c]         = 1'b1;
          write_address[c] = address_of(sum_q[Rows+c].row, c);
          write_data[c]    = sum_q[Rows+c].is_integer ? old_q[c] + sums_i[c] : f32_pkg::add(old_q[c], sums_i[c]);
        end
      end
    end
  end

  // Forwarding: a row that is being written is taken from the write port, not from the memory.
  always_ff @(posedge clk_i) begin
    if (valid_q != '0) begin
      for (int unsigned c = 0; c < Cols; c++) begin
        old_q[c] <= !read[c] ? '0 : (write[c] && write_address[c] == read_address[c]) ? write_data[c] : read_data[c];
      end
    end
  end

  acc_mem #(
    .Words (AccRows * Cols),
    .Reads (Cols + Reads),
    .Writes(Cols + Writes)
  ) u_memory (
    .clk_i,
    .read_i         ({read_i, read}),
    .read_address_i ({read_address_i, read_address}),
    .read_data_o    ({read_data_o, read_data}),
    .write_i        ({write_i, write}),
    .write_address_i({write_address_i, write_address}),
    .write_data_i   ({write_data_i, write_data})
  );

endmodule
