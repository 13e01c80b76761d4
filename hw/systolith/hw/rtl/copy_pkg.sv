// How long copies take: the closed forms of docs/isa.md (Times), from entries of the pattern table.
package copy_pkg;
  import walk_pkg::*;

  parameter int unsigned ByteBits = core_pkg::HbmAddressBits + 1;

  typedef struct packed {
    logic [31:0] count;
    logic [31:0] bytes;  // of each
  } runs_t;

  // Whether a loop adds the same to the address at every step, which then is its step's `address`.
  function automatic logic is_even(pattern_t pattern, int unsigned loop);
    is_even = pattern.indirect != 4'(loop);
    for (int unsigned j = 0; j < Coords; j++) begin
      if (pattern.steps[loop].remainder[j] != '0 && pattern.bounds.stride[j] != '0) is_even = 1'b0;
    end
  endfunction

  // Contiguous runs: the innermost loops merge while they go on from byte to byte.
  function automatic runs_t runs_of(pattern_t pattern);
    logic  merges;
    runs_t runs;
    runs   = '{count: 32'd1, bytes: 32'd1 << size_log2(pattern.dtype)};
    merges = 1'b1;
    for (int unsigned n = 0; n < Loops; n++) begin
      int unsigned k;
      k = Loops - 1 - n;
      if (pattern.counts[k] != 32'd1) begin
        merges = merges && is_even(pattern, k) && pattern.steps[k].address == runs.bytes;
        if (merges) runs.bytes = runs.bytes * pattern.counts[k];
        else runs.count = runs.count * pattern.counts[k];
      end
    end
    runs_of = runs;
  endfunction

  // Quotient by a power of two, rounded up.
  function automatic logic [ByteBits-1:0] ceil_shift(logic [ByteBits-1:0] value, int unsigned shift);
    ceil_shift = (value + (ByteBits'(1) << shift) - ByteBits'(1)) >> shift;
  endfunction

  // Whether a loop goes from element to element, or stays in place.
  function automatic logic is_dense(pattern_t pattern, int unsigned loop);
    is_dense = is_even(pattern, loop)
               && (pattern.steps[loop].address == '0 || pattern.steps[loop].address == 32'd1 << size_log2(pattern.dtype));
  endfunction

  // Accesses of up to 2**log2_lanes elements along whichever loop is dense; at best.
  function automatic logic [31:0] side_accesses(pattern_t pattern, int unsigned log2_lanes);
    /* verilator no_inline_task */
    logic [Loops:0][31:0] outer;  // entry k: iterations of the loops outside loop k
    logic [31:0] inner, accesses, best;
    outer[0] = 32'd1;
    for (int unsigned k = 0; k < Loops; k++) outer[k+1] = outer[k] * pattern.counts[k];
    best  = outer[Loops];
    inner = 32'd1;
    for (int unsigned n = 0; n < Loops; n++) begin
      int unsigned k;
      k = Loops - 1 - n;
      accesses = outer[k] * inner * 32'(ceil_shift(ByteBits'(pattern.counts[k]), log2_lanes));
      if (is_dense(pattern, k) && accesses < best) best = accesses;
      inner = inner * pattern.counts[k];
    end
    side_accesses = best;
  endfunction

  // Cycles to read the rows that the innermost loop makes, `sublanes` accesses a cycle; a row has no more than the lanes.
  function automatic logic [31:0] row_cycles(pattern_t pattern, int unsigned sublanes);
    /* verilator no_inline_task */
    logic [31:0] rows;
    rows = 32'd1;
    for (int unsigned k = 0; k < Loops - 1; k++) rows = rows * pattern.counts[k];
    if (is_dense(pattern, Loops - 1)) row_cycles = rows;
    else row_cycles = rows * ((pattern.counts[Loops-1] + sublanes - 32'd1) / sublanes);
  endfunction

endpackage
