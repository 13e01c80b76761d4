// The pattern table's entries for the streams of instructions that start in this cycle.
module core_patterns
  import core_pkg::*;
  import systolith_pkg::*;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Entries = 1024,
  parameter int unsigned Mxus = 1
) (
  input  logic [1:0]                               dma_start_i,
  input  logic [1:0][DmaWords-1:0][31:0]           dma_words_i,
  output pattern_t [1:0][1:0]                      dma_pattern_o,  // 0: source, 1: destination
  input  logic                                     vpu_start_i,
  input  logic [VpuWords-1:0][31:0]                vpu_words_i,
  output pattern_t [MaxStreams-1:0]                vpu_pattern_o,
  input  logic                                     xlu_start_i,
  input  logic [XluWords-1:0][31:0]                xlu_words_i,
  output pattern_t [1:0]                           xlu_pattern_o,
  input  logic [Mxus-1:0][1:0]                     mxu_start_i,
  input  logic [Mxus-1:0][1:0][MxuWords-1:0][31:0] mxu_words_i,    // 0: weights, 1: stream
  output pattern_t [Mxus-1:0][1:0]                 mxu_pattern_o
);

  localparam int unsigned FirstVpu = 4;
  localparam int unsigned FirstXlu = FirstVpu + MaxStreams;
  localparam int unsigned FirstMxu = FirstXlu + 2;
  localparam int unsigned Ports = FirstMxu + 2 * Mxus;

  logic        read[Ports];
  logic [19:0] number[Ports];
  pattern_t    pattern[Ports];

  pattern_table #(
    .Entries(Entries),
    .Ports  (Ports)
  ) u_table (
    .read_i   (read),
    .number_i (number),
    .pattern_o(pattern)
  );

  function automatic logic [StreamPatternHi:StreamPatternLo] number_of(logic [31:0] word);
    number_of = word[StreamPatternHi:StreamPatternLo];
  endfunction

  for (genvar d = 0; d < 2; d++) begin : gen_dma
    assign read[2*d]          = dma_start_i[d];
    assign read[2*d+1]        = dma_start_i[d];
    assign number[2*d]        = number_of(dma_words_i[d][DmaLoadSrcWord]);
    assign number[2*d+1]      = number_of(dma_words_i[d][DmaLoadDstWord]);
    assign dma_pattern_o[d]   = {pattern[2*d+1], pattern[2*d]};
  end

  logic [3:0] streams;
  assign streams = vpu_words_i[VpuRunNstreamsWord][VpuRunNstreamsHi:VpuRunNstreamsLo];

  for (genvar s = 0; s < int'(MaxStreams); s++) begin : gen_vpu
    assign read[FirstVpu+s]   = vpu_start_i && s < 32'(streams);
    assign number[FirstVpu+s] = number_of(vpu_words_i[VpuRunStreamsWord+StreamWords*s]);
    assign vpu_pattern_o[s]   = pattern[FirstVpu+s];
  end

  logic reduces;
  assign reduces = xlu_words_i[0][HeaderOpcodeHi:HeaderOpcodeLo] == OpXluReduce;

  assign read[FirstXlu]     = xlu_start_i;
  assign read[FirstXlu+1]   = xlu_start_i;
  assign number[FirstXlu]   = number_of(reduces ? xlu_words_i[XluReduceSrcWord] : xlu_words_i[XluShuffleSrcWord]);
  assign number[FirstXlu+1] = number_of(reduces ? xlu_words_i[XluReduceDstWord] : xlu_words_i[XluShuffleDstWord]);
  assign xlu_pattern_o      = {pattern[FirstXlu+1], pattern[FirstXlu]};

  for (genvar m = 0; m < int'(Mxus); m++) begin : gen_mxu
    logic streams_rows;  // not a latch
    assign streams_rows         = mxu_words_i[m][1][0][HeaderOpcodeHi:HeaderOpcodeLo] == OpMxuMatmul;
    assign read[FirstMxu+2*m]   = mxu_start_i[m][0];
    assign read[FirstMxu+2*m+1] = mxu_start_i[m][1] && streams_rows;
    assign number[FirstMxu+2*m]   = number_of(mxu_words_i[m][0][MxuLoadSrcWord]);
    assign number[FirstMxu+2*m+1] = number_of(mxu_words_i[m][1][MxuMatmulSrcWord]);
    assign mxu_pattern_o[m]       = {pattern[FirstMxu+2*m+1], pattern[FirstMxu+2*m]};
  end

endmodule
