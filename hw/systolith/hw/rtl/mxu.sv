// The matrix unit: instructions of its two queues, the array and its accumulators.
//
// An instruction that starts in cycle s makes its accesses in s + 1 to s + occupancy; `done_o` comes with the last ones.  A row
// whose last access is in cycle g is in the array's first stage in g + 3, leaves column c in g + 3 + Rows + c, and is in the
// accumulators one cycle later.  A latch is on its way like a row, weights are skewed alike.
module mxu
  import mxu_pkg::*;
#(
  parameter int unsigned Rows = 8,
  parameter int unsigned Cols = 8,
  parameter int unsigned AccRows = 256,
  parameter int unsigned Segments = 2,       // segments a port reads a cycle
  parameter int unsigned SegmentBytes = 32,
  parameter int unsigned Gathers = 1,        // of the vector unit
  parameter int unsigned Scatters = 1,
  parameter int unsigned Elements = 16
) (
  input  logic                                            clk_i,
  input  logic                                            rst_ni,
  // Instructions with their registers resolved; queue 0 is the weights', queue 1 the stream's.  Latches are not answered.
  input  logic [1:0]                                      start_i,
  input  logic [1:0][core_pkg::MxuWords-1:0][31:0]        words_i,
  input  walk_pkg::pattern_t [1:0]                        pattern_i,  // of the source
  output logic [1:0]                                      done_o,
  // VMEM, a port a queue: data comes in the cycle after the address, at any alignment.
  output logic [1:0][Segments-1:0]                        read_o,
  output logic [1:0][Segments-1:0][31:0]                  address_o,
  input  logic [1:0][Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  // Accumulators, for the vector unit: byte addresses, row after row.  Data is read in the same cycle, written at its end.
  input  logic [Gathers-1:0][Elements-1:0]                acc_read_i,
  input  logic [Gathers-1:0][Elements-1:0][31:0]          acc_read_address_i,
  output logic [Gathers-1:0][Elements-1:0][31:0]          acc_data_o,
  input  logic [Scatters-1:0][Elements-1:0]               acc_write_i,
  input  logic [Scatters-1:0][Elements-1:0][31:0]         acc_write_address_i,
  input  logic [Scatters-1:0][Elements-1:0][31:0]         acc_write_data_i
);

  localparam int unsigned Lanes = (Rows > Cols) ? Rows : Cols;

  logic     [1:0]                  valid;
  command_t [1:0]                  command;
  logic     [1:0][31:0]            number;
  logic     [1:0][Lanes-1:0][15:0] operands;

  for (genvar q = 0; q < 2; q++) begin : gen_queues
    row_reader #(
      .Lanes       (Lanes),
      .Segments    (Segments),
      .SegmentBytes(SegmentBytes)
    ) u_reader (
      .clk_i,
      .rst_ni,
      .start_i   (start_i[q]),
      .words_i   (words_i[q]),
      .pattern_i (pattern_i[q]),
      .done_o    (done_o[q]),
      .read_o    (read_o[q]),
      .address_o (address_o[q]),
      .data_i    (data_i[q]),
      .valid_o   (valid[q]),
      .command_o (command[q]),
      .number_o  (number[q]),
      .operands_o(operands[q])
    );
  end

  // A row of a tile goes down, a column of a transposed one to the right.
  load_t down, right;
  wave_t wave;
  sum_t  sum;

  assign down.valid      = valid[0] && !command[0].transpose;
  assign down.number     = number[0][15:0];
  assign right.valid     = valid[0] && command[0].transpose;
  assign right.number    = number[0][15:0];
  assign wave.valid      = valid[1] && command[1].opcode == systolith_pkg::OpMxuMatmul;
  assign wave.is_integer = command[1].is_integer;
  assign wave.latch      = valid[1] && command[1].opcode == systolith_pkg::OpMxuLatch;
  assign sum.valid       = wave.valid;
  assign sum.accumulate  = command[1].accumulate;
  assign sum.is_integer  = command[1].is_integer;
  assign sum.row         = command[1].acc_row + number[1];

  logic [Cols-1:0][31:0] sums;

  mxu_array #(
    .Rows(Rows),
    .Cols(Cols)
  ) u_array (
    .clk_i,
    .rst_ni,
    .wave_i         (wave),
    .x_i            (operands[1][Rows-1:0]),
    .down_i         (down),
    .down_weights_i (operands[0][Cols-1:0]),
    .right_i        (right),
    .right_weights_i(operands[0][Rows-1:0]),
    .sums_o         (sums)
  );

  mxu_acc #(
    .Rows   (Rows),
    .Cols   (Cols),
    .AccRows(AccRows),
    .Reads  (Gathers * Elements),
    .Writes (Scatters * Elements)
  ) u_acc (
    .clk_i,
    .rst_ni,
    .sum_i          (sum),
    .sums_i         (sums),
    .read_i         (acc_read_i),
    .read_address_i (acc_read_address_i),
    .read_data_o    (acc_data_o),
    .write_i        (acc_write_i),
    .write_address_i(acc_write_address_i),
    .write_data_i   (acc_write_data_i)
  );

`ifndef SYNTHESIS
  initial begin
    assert (SegmentBytes >= 4)
    else $fatal(1, "mxu: SegmentBytes is %0d, must be at least 4", SegmentBytes);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && valid[0]) begin
      assert (command[0].opcode == systolith_pkg::OpMxuLoad)
      else $error("mxu: operation %0d in the weight queue", command[0].opcode);
      assert (number[0] < (command[0].transpose ? Cols : Rows))
      else $error("mxu.load: row %0d of a tile of %0d x %0d", number[0], Rows, Cols);
    end
    if (rst_ni && valid[1]) begin
      assert (wave.valid || wave.latch)
      else $error("mxu: operation %0d in the stream queue", command[1].opcode);
      assert (wave.latch || sum.row < AccRows)
      else $error("mxu.matmul: accumulator row %0d of %0d", sum.row, AccRows);
    end
  end
`endif

endmodule
