// From an instruction's pattern to rows of operands: address generator, memory port, gathering, widening.
//
// Accesses are made from the cycle after start_i on; a row leaves three cycles after its last accesses, with the command
// that it belongs to.  A command without a walk (latch) travels the same way, as if it had accesses in the cycle after its
// start: so it stays between the rows before and after it.
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
  input  command_t                                   command_i,
  input  walk_t                                      walk_i,
  output logic                                       busy_o,
  output logic                                       last_o,
  // Memory: data comes in the cycle after the address.
  output logic [Segments-1:0]                        read_o,
  output logic [Segments-1:0][31:0]                  address_o,
  input  logic [Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  // Rows.
  output logic                                       valid_o,
  output logic                                       first_o,    // first row of its instruction
  output command_t                                   command_o,
  output logic [Lanes-1:0][15:0]                     operands_o
);

  typedef struct packed {
    logic        valid;
    logic        first;
    command_t    command;
    systolith_pkg::dtype_e      dtype;
    logic [31:0] fill;
  } row_t;

  logic has_walk;
  assign has_walk = command_i.op == OpLoad || command_i.op == OpMatmul;

  // Accesses.
  walk_t                          walk;
  logic [Segments-1:0]            valid;
  logic [Segments-1:0][31:0]      lane, elements;
  logic [Segments-1:0][Lanes-1:0] exists;
  logic                           row_first, row_last;

  addr_gen #(
    .Lanes   (Lanes),
    .Segments(Segments)
  ) u_addr_gen (
    .clk_i,
    .rst_ni,
    .start_i    (start_i && has_walk),
    .walk_i,
    .busy_o,
    .walk_o     (walk),
    .valid_o    (valid),
    .address_o,
    .lane_o     (lane),
    .elements_o (elements),
    .inside_o   (exists),
    .row_first_o(row_first),
    .row_last_o (row_last),
    .last_o
  );

  // A segment of which no element is inside is not read: its address need not exist.
  logic [Lanes-1:0] wanted;
  always_comb begin
    for (int unsigned s = 0; s < Segments; s++) begin
      for (int unsigned e = 0; e < Lanes; e++) wanted[e] = e < elements[s];
      read_o[s] = valid[s] && |(exists[s] & wanted);
    end
  end

  // What goes with the accesses, the data, the row and the operands.
  command_t command_q;
  logic     lone_q;  // a command without a walk, in the cycle after its start
  row_t     accesses, data_q, row_q, operands_q;

  always_comb begin
    accesses.valid   = row_last || lone_q;
    accesses.first   = row_first;
    accesses.command = command_q;
    accesses.dtype   = walk.dtype;
    accesses.fill    = walk.fill;
  end

  logic [Segments-1:0]            data_valid_q;
  logic [Segments-1:0][31:0]      data_lane_q, data_elements_q;
  logic [Segments-1:0][Lanes-1:0] data_inside_q;
  logic                           data_row_last_q, data_broadcast_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      command_q        <= '0;
      lone_q           <= 1'b0;
      data_q           <= '0;
      row_q            <= '0;
      operands_q       <= '0;
      data_valid_q     <= '0;
      data_lane_q      <= '0;
      data_elements_q  <= '0;
      data_inside_q    <= '0;
      data_row_last_q  <= 1'b0;
      data_broadcast_q <= 1'b0;
    end else begin
      lone_q <= start_i && command_i.op == OpLatch;
      if (start_i) command_q <= command_i;
      data_q           <= accesses;
      row_q            <= data_q;
      operands_q       <= row_q;
      data_valid_q     <= valid;
      data_lane_q      <= lane;
      data_elements_q  <= elements;
      data_inside_q    <= exists;
      data_row_last_q  <= row_last;
      data_broadcast_q <= walk.broadcast;
    end
  end

  logic [Lanes-1:0][31:0] raw;
  logic [Lanes-1:0]       raw_present, raw_inside;

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
    .present_o  (raw_present),
    .inside_o   (raw_inside)
  );

  logic [Lanes-1:0][15:0] operands_d;

  for (genvar l = 0; l < int'(Lanes); l++) begin : gen_lanes
    lane_convert u_convert (
      .dtype_i     (row_q.dtype),
      .fill_i      (row_q.fill),
      .is_integer_i(row_q.command.is_integer),
      .part_i      (row_q.command.part),
      .present_i   (raw_present[l]),
      .inside_i    (raw_inside[l]),
      .raw_i       (raw[l]),
      .operand_o   (operands_d[l])
    );
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) operands_o <= '0;
    else operands_o <= operands_d;
  end

  assign valid_o   = operands_q.valid;
  assign first_o   = operands_q.first;
  assign command_o = operands_q.command;

endmodule
