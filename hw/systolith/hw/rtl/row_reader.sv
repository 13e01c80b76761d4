// From an instruction's pattern to rows of operands: address generator, memory port, gathering, widening.
//
// Accesses are made from the cycle after start_i on; a row leaves two cycles after its last accesses, with the command that
// it belongs to.  A latch, which has no pattern, travels the same way, as if it had accesses in the cycle after its start:
// so it stays between the rows before and after it.
module row_reader
  import mxu_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic                                       start_i,
  input  logic [core_pkg::MxuWords-1:0][31:0]        words_i,
  input  walk_pkg::pattern_t                         pattern_i,
  output logic                                       done_o,     // these are the last accesses
  // Memory: data comes in the cycle after the address.
  output logic [Segments-1:0]                        read_o,
  output logic [Segments-1:0][31:0]                  address_o,
  input  logic [Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  // Rows.
  output logic                                       valid_o,
  output command_t                                   command_o,
  output logic [31:0]                                number_o,   // of the row in its instruction
  output logic [Lanes-1:0][15:0]                     operands_o
);

  typedef struct packed {
    logic                  valid;
    command_t              command;
    logic [31:0]           number;
    systolith_pkg::dtype_e dtype;
    logic [31:0]           fill;
  } row_t;

  // The instruction.
  command_t          command;
  core_pkg::stream_t src;

  assign command = to_command(words_i);
  assign src     = to_source(words_i);

  // Accesses.
  logic [Segments-1:0]            valid;
  logic [Segments-1:0][31:0]      lane, elements;
  logic [Segments-1:0][Lanes-1:0] exists;
  logic [31:0]                    number, fill;
  logic                           row_last, broadcast;
  systolith_pkg::dtype_e          dtype;

  addr_gen #(
    .Lanes       (Lanes),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes)
  ) u_addr_gen (
    .clk_i,
    .rst_ni,
    .start_i    (start_i && command.opcode != systolith_pkg::OpMxuLatch),
    .pattern_i,
    .row_loops_i(command.row_loops),
    .base_i     (src.base),
    .bias_i     (src.bias),
    .dtype_o    (dtype),
    .fill_o     (fill),
    .broadcast_o(broadcast),
    .valid_o    (valid),
    .address_o,
    .lane_o     (lane),
    .elements_o (elements),
    .inside_o   (exists),
    .row_o      (number),
    .row_last_o (row_last),
    .last_o     (done_o)
  );

  // A segment of which no element is inside is not read: its address need not exist.
  always_comb begin
    for (int unsigned s = 0; s < Segments; s++) read_o[s] = valid[s] && exists[s] != '0;
  end

  // The records of the accesses, the data and the row.
  command_t command_q;
  logic     latch_q;  // in the cycle after its start
  row_t     accesses, data_q, row_q;

  assign accesses.valid   = row_last || latch_q;
  assign accesses.command = command_q;
  assign accesses.number  = number;
  assign accesses.dtype   = dtype;
  assign accesses.fill    = fill;

  logic [Segments-1:0]            data_valid_q;
  logic [Segments-1:0][31:0]      data_lane_q, data_elements_q;
  logic [Segments-1:0][Lanes-1:0] data_inside_q;
  logic                           data_row_last_q, data_broadcast_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      latch_q      <= 1'b0;
      data_q       <= '0;
      row_q        <= '0;
      data_valid_q <= '0;
    end else begin
      latch_q      <= start_i && command.opcode == systolith_pkg::OpMxuLatch;
      data_q       <= accesses;
      row_q        <= data_q;
      data_valid_q <= valid;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) command_q <= command;
    if (valid[0]) begin
      data_lane_q      <= lane;
      data_elements_q  <= elements;
      data_inside_q    <= exists;
      data_row_last_q  <= row_last;
      data_broadcast_q <= broadcast;
    end
  end

  logic [Lanes-1:0][31:0] raw;
  logic [Lanes-1:0]       present, is_inside;

  row_gather #(
    .Lanes       (Lanes),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes)
  ) u_gather (
    .clk_i,
    .rst_ni,
    .dtype_i    (data_q.dtype),
    .broadcast_i(data_broadcast_q),
    .valid_i    (data_valid_q),
    .lane_i     (data_lane_q),
    .elements_i (data_elements_q),
    .inside_i   (data_inside_q),
    .data_i,
    .row_last_i (data_row_last_q),
    .raw_o      (raw),
    .present_o  (present),
    .inside_o   (is_inside)
  );

  // Elements that the row lacks are zeros.
  always_comb begin
    operands_o = '0;
    if (row_q.valid) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        if (present[l]) begin
          operands_o[l] = to_operand(row_q.command, is_inside[l] ? formats_pkg::widen(row_q.dtype, raw[l]) : row_q.fill);
        end
      end
    end
  end

  assign valid_o   = row_q.valid;
  assign command_o = row_q.command;
  assign number_o  = row_q.number;

`ifndef SYNTHESIS
  function automatic logic is_operand(systolith_pkg::dtype_e given, logic is_integer);
    unique case (given)
      systolith_pkg::DtypePred, systolith_pkg::DtypeS4, systolith_pkg::DtypeU4,
      systolith_pkg::DtypeS8, systolith_pkg::DtypeU8: is_operand = is_integer;
      systolith_pkg::DtypeBf16, systolith_pkg::DtypeF16, systolith_pkg::DtypeF32,
      systolith_pkg::DtypeF8e4m3fn, systolith_pkg::DtypeF8e5m2,
      systolith_pkg::DtypeF8e4m3fnuz, systolith_pkg::DtypeF8e5m2fnuz: is_operand = !is_integer;
      default: is_operand = 1'b0;
    endcase
  endfunction

  always_ff @(posedge clk_i) begin
    if (rst_ni && start_i && command.opcode != systolith_pkg::OpMxuLatch) begin
      assert (is_operand(pattern_i.dtype, command.is_integer))
      else $error("mxu: element type %0d with integer = %0d", pattern_i.dtype, command.is_integer);
      assert (!command.is_integer || pattern_i.fill + 32'd256 < 32'd512)
      else $error("mxu: fill %0d is not an operand of the integer mode", $signed(pattern_i.fill));
      assert (pattern_i.indirect == walk_pkg::NotIndirect)
      else $error("mxu: the pattern is indirect");
    end
  end
`endif

endmodule
