// The initial state of a stream: where it starts, and how long a vector of it takes.
module vpu_stream_start
  import core_pkg::stream_t;
  import vpu_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Sublanes = 2
) (
  input  logic     valid_i,
  input  stream_t  stream_i,
  input  pattern_t pattern_i,
  output kept_t    kept_o     // 0 if it is not valid
);

  // A vector is a segment for each sublane, if its lanes are next to each other or all the same element; otherwise every
  // element is one.  `Sublanes` segments a cycle.
  function automatic logic [15:0] stall_of(pattern_t pattern);
    logic        uneven;  // the lane loop does not add the same at every step
    logic [31:0] stride, segments;
    uneven = pattern.indirect == 4'(LaneLoop);
    for (int unsigned j = 0; j < Coords; j++) begin
      uneven |= pattern.bounds.stride[j] != '0 && pattern.steps[LaneLoop].remainder[j] != '0;
    end
    stride   = pattern.steps[LaneLoop].address;
    segments = pattern.counts[SublaneLoop];
    if (uneven || stride != '0 && stride != 32'd1 << size_log2(pattern.dtype)) segments *= pattern.counts[LaneLoop];
    stall_of = 16'((segments - 32'd1) / Sublanes);
  endfunction

  function automatic kept_t prepare(stream_t stream, pattern_t pattern);
    /* verilator no_inline_task */
    prepare.stream = stream;
    prepare.origin = start_of(pattern, stream.base, stream.bias);
    prepare.stall  = stall_of(pattern);
  endfunction

  always_comb begin
    kept_o = '0;
    if (valid_i) kept_o = prepare(stream_i, pattern_i);
  end

endmodule
