// Length of a copy: chunks of HBM, or cycles between other memories.
module dma_chunks
  import walk_pkg::*;
  import copy_pkg::*;
#(
  parameter int unsigned HbmChunk = 32,    // bytes
  parameter int unsigned HbmGranule = 16,  // bytes
  parameter int unsigned Segments = 2      // of HbmChunk bytes, a cycle, on the side that is not HBM
) (
  input  logic           valid_i,
  input  pattern_t [1:0] pattern_i,  // 0: source, 1: destination
  input  logic [1:0]     hbm_i,      // that side is HBM
  output logic [31:0]    chunks_o,   // at least 1
  output logic [31:0]    bytes_o     // that go through
);

  localparam int unsigned LogChunk = $clog2(HbmChunk);
  localparam int unsigned LogGranule = $clog2(HbmGranule);
  localparam int unsigned LogSegments = $clog2(Segments);

  // For one side; no more than a chunk of elements at a time, however well they lie.
  function automatic logic [ByteBits-1:0] side(pattern_t pattern, logic hbm);
    /* verilator no_inline_task */
    runs_t               runs;
    logic [ByteBits-1:0] count, bytes, least, most;
    runs  = runs_of(pattern);
    count = ByteBits'(runs.count);
    bytes = ByteBits'(runs.bytes);
    least = ceil_shift(count * bytes, LogChunk);
    if (hbm) most = ceil_shift(count * (ceil_shift(bytes, LogGranule) << LogGranule), LogChunk);
    else most = ceil_shift(count * ceil_shift(bytes, LogChunk), LogSegments);
    side = (most > least) ? most : least;
  endfunction

  logic [1:0][ByteBits-1:0] needs;

  always_comb begin
    needs = '0;
    if (valid_i) begin
      for (int unsigned n = 0; n < 2; n++) needs[n] = side(pattern_i[n], hbm_i[n]);
    end
  end

  runs_t source;

  assign source   = runs_of(pattern_i[0]);
  assign bytes_o  = 32'(ByteBits'(source.count) * ByteBits'(source.bytes));
  assign chunks_o = (needs[0] > needs[1]) ? needs[0][31:0] : needs[1][31:0];

`ifndef SYNTHESIS
  initial begin
    assert (HbmChunk == 1 << LogChunk && HbmGranule == 1 << LogGranule && Segments == 1 << LogSegments)
    else $error("dma_chunks: chunk %0d, granule %0d, segments %0d: must be powers of two", HbmChunk, HbmGranule, Segments);
  end
`endif

endmodule
