// Types of the vector unit, and the layout of its kernel tables.
//
// A kernel is rows of a control store, one a cycle of a section: first the prologue's, then `ii` rows of the body, then the
// epilogue's.  A row has a column for each issue slot: alu, load, store, trans.  A micro-operation of the body in cycle c is
// in row c mod ii and has stage c / ii: in row r of the loop's turn p it belongs to iteration p - stage.
//
// The tables are written before the run, in words of 32 bits, through `model_poke(address, data)` of these instances in `vpu`:
//
//   u_kernels    4 * kernel + 0              [6:0] rotating, [7] sections (see kernel_t), [31:8] first constant
//                           + 1              first row
//                           + 2              [15:0] ii, [31:16] cycles of the prologue
//                           + 3              [15:0] cycles of the body, [31:16] of the epilogue
//   u_control    2 * (row * columns + column)
//                           + 0              [7:0] op, [15:8] src0, [23:16] src1, [31:24] src2 (255: none)
//                           + 1              [5:0] dst, [13:6] imm, [19:14] stage, [20] valid
//   u_constants  constant
package vpu_pkg;

  parameter int unsigned Nest = systolith_pkg::MaxNest;
  parameter int unsigned Registers = systolith_pkg::NumVectorRegisters;
  parameter int unsigned Streams = systolith_pkg::MaxStreams;
  parameter int unsigned Stages = 64;  // that a micro-operation's field can name

  // A number for each loop of the nest.  The innermost is the last entry, as in a pattern; missing loops are outermost.
  typedef logic [Nest-1:0][31:0] nest_t;

  parameter logic [7:0] NoOperand = 8'hFF;  // in place of the operands that a micro-operation does not have

  // The pattern's loops after the nest's.
  parameter int unsigned SublaneLoop = walk_pkg::Loops - 2;
  parameter int unsigned LaneLoop = walk_pkg::Loops - 1;

  typedef struct packed {
    logic                    valid;
    logic [5:0]              stage;
    logic [7:0]              imm;
    logic [5:0]              dst;
    logic [2:0][7:0]         src;
    systolith_pkg::microop_e op;
  } microop_t;

  typedef struct packed {
    logic [15:0] epilogue;   // cycles
    logic [15:0] body;       // cycles of one iteration
    logic [15:0] prologue;   // cycles
    logic [15:0] ii;
    logic [31:0] row;        // where its rows begin
    logic [23:0] constants;  // where its constants begin
    logic        sections;   // outer iterations one after another: it has a prologue, an epilogue or carried registers
    logic [6:0]  rotating;
  } kernel_t;

  // An instruction, made ready.
  typedef struct packed {
    kernel_t                                     kernel;
    nest_t                                       counts;
    logic [2:0]                                  first_inner;  // entry of the outermost inner loop; Nest: there is none
    logic                                        serial;
    logic [systolith_pkg::NumScalars-1:0][31:0]  scalars;
  } run_t;

  // An iteration: where its loops are, and by how much its registers are rotated.
  typedef struct packed {
    nest_t      index;
    logic [5:0] turn;
  } iteration_t;

  // A micro-operation in the cycle of its issue, registers renamed.
  typedef struct packed {
    logic                    valid;
    systolith_pkg::microop_e op;
    logic [2:0][7:0]         src;
    logic [5:0]              dst;
    logic [7:0]              imm;
    nest_t                   index;
  } issued_t;

  // The state of a stream of the instruction under way.
  typedef struct packed {
    core_pkg::stream_t stream;
    walk_pkg::point_t  origin;
    logic [15:0]       stall;   // cycles beyond one, of a vector
  } kept_t;

  // The physical register of a kernel's register; other operands stay as they are.
  function automatic logic [7:0] rename(logic [7:0] operand, logic [5:0] turn, logic [6:0] rotating);
    logic [7:0] moved;
    moved = operand + {2'b0, turn};
    if (operand >= {1'b0, rotating}) rename = operand;
    else if (moved >= {1'b0, rotating}) rename = moved - {1'b0, rotating};
    else rename = moved;
  endfunction

  // Whether the loops from entry `first` on are all in their last turn.
  function automatic logic at_end(nest_t index, nest_t counts, logic [2:0] first);
    at_end = 1'b1;
    for (int unsigned k = 0; k < Nest; k++) begin
      if (k >= 32'(first) && index[k] + 32'd1 != counts[k]) at_end = 1'b0;
    end
  endfunction

  // The next turn of the loops before entry `beyond`; those from there on start again.
  function automatic nest_t advance(nest_t index, nest_t counts, logic [2:0] beyond);
    logic carry;
    carry   = 1'b1;
    advance = '0;
    for (int unsigned n = 0; n < Nest; n++) begin
      if (Nest - 1 - n < 32'(beyond)) begin
        advance[Nest-1-n] = index[Nest-1-n];
        if (carry) begin
          carry = index[Nest-1-n] + 32'd1 == counts[Nest-1-n];
          advance[Nest-1-n] = carry ? '0 : index[Nest-1-n] + 32'd1;
        end
      end
    end
  endfunction

endpackage
