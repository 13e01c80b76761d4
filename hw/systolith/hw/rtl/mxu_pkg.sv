// Types of the matrix unit: its instructions, and the values that travel between its modules.
package mxu_pkg;

  import systolith_pkg::*;
  import walk_pkg::Loops;

  parameter int unsigned Inner = Loops - 1;  // the innermost loop

  // The fields of an instruction besides its pattern.
  typedef struct packed {
    opcode_e     opcode;
    logic [3:0]  row_loops;  // outermost loops of the pattern that count rows
    logic        transpose;
    logic        accumulate;
    logic        is_integer;
    logic [1:0]  part;
    logic [31:0] acc_row;    // accumulator row of the first row
  } command_t;

  // The properties of a pattern that a walk needs besides the loops.
  typedef struct packed {
    dtype_e            dtype;
    logic [3:0]        row_loops;  // outermost loops that count rows, those that are missing included
    logic              broadcast;  // an access gives one element for all of its stretch
    logic [31:0]       stretch;    // elements of the innermost loop that one access gives
    logic [31:0]       fill;
    walk_pkg::bounds_t bounds;
  } walk_t;

  // Flags of a row of the stream.
  typedef struct packed {
    logic valid;
    logic is_integer;
    logic latch;
  } wave_t;

  // Tags of a row of a tile, or of a column of a transposed one.
  typedef struct packed {
    logic        valid;
    logic [15:0] number;  // which one; the first clears the shadow weights on its way, so that the rest of the tile is zero
  } load_t;

  // The operation on a row at the accumulators.
  typedef struct packed {
    logic        valid;
    logic        accumulate;
    logic        is_integer;
    logic [31:0] row;
  } sum_t;

  // Loads and matmuls have the fields that they share in the same places.
  function automatic command_t to_command(logic [core_pkg::MxuWords-1:0][31:0] words);
    command_t c;
    c.opcode     = opcode_e'(words[HeaderOpcodeWord][HeaderOpcodeHi:HeaderOpcodeLo]);
    c.row_loops  = words[MxuLoadRowLoopsWord][MxuLoadRowLoopsHi:MxuLoadRowLoopsLo];
    c.transpose  = words[MxuLoadTransposeWord][MxuLoadTransposeLo];
    c.accumulate = words[MxuMatmulAccumulateWord][MxuMatmulAccumulateLo];
    c.is_integer = words[MxuLoadIntegerWord][MxuLoadIntegerLo];
    c.part       = words[MxuLoadPartWord][MxuLoadPartHi:MxuLoadPartLo];
    c.acc_row    = words[MxuMatmulAccWord];
    to_command   = c;
  endfunction

  function automatic core_pkg::stream_t to_source(logic [core_pkg::MxuWords-1:0][31:0] words);
    to_source = core_pkg::to_stream((opcode_e'(words[HeaderOpcodeWord][HeaderOpcodeHi:HeaderOpcodeLo]) == OpMxuLoad)
                                    ? words[MxuLoadSrcWord+:StreamWords] : words[MxuMatmulSrcWord+:StreamWords]);
  endfunction

  // The pattern as an instruction walks it.
  function automatic walk_t to_walk(walk_pkg::pattern_t pattern, logic [3:0] row_loops, int unsigned segment_bytes);
    walk_t       w;
    logic [31:0] size;
    logic        even;  // every step of the innermost loop moves the address by as much
    size = 32'd1 << walk_pkg::size_log2(pattern.dtype);
    even = 1'b1;
    for (int unsigned j = 0; j < walk_pkg::Coords; j++) begin
      even &= pattern.steps[Inner].remainder[j] == '0 || pattern.bounds.stride[j] == '0;
    end
    w.dtype     = pattern.dtype;
    w.row_loops = row_loops + 4'(Loops) - pattern.loops;
    w.fill      = pattern.fill;
    w.bounds    = pattern.bounds;
    // The innermost loop of a row is a segment if it goes from element to element, or stays at one.
    even &= w.row_loops < 4'(Loops);
    w.broadcast = even && pattern.steps[Inner].address == '0;
    if (w.broadcast) w.stretch = pattern.counts[Inner];
    else if (even && pattern.steps[Inner].address == size) w.stretch = segment_bytes >> walk_pkg::size_log2(pattern.dtype);
    else w.stretch = 32'd1;
    to_walk = w;
  endfunction

  // An operand of the array: a small integer, or a part of the split.
  function automatic logic [15:0] to_operand(command_t command, logic [31:0] image);
    to_operand = command.is_integer ? image[15:0] : bf16_pkg::part(image, command.part);
  endfunction

endpackage
