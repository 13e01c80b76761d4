// A DMA unit: copies elements in pattern order between two memories, a chunk of them a cycle at most.
//
// A chunk is granted by HBM, or by every cycle if neither side is HBM; its elements are read and written in the cycle after.
// So a copy has moved everything when the cycle of `done_o` ends, and the next one may start in that cycle.
module dma
  import core_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned HbmChunk = 32,      // bytes
  parameter int unsigned HbmGranule = 16,    // bytes
  parameter int unsigned HbmLatency = 20,    // cycles from the last grant to the retirement
  parameter int unsigned Segments = 2,       // of HbmChunk bytes, a cycle, on the side that is not HBM
  parameter int unsigned LocalLatency = 6,   // cycles, of copies without HBM
  parameter int unsigned HostP = 4,          // bytes, in HostQ cycles, of the host's link
  parameter int unsigned HostQ = 1,
  parameter int unsigned HostSetup = 8,      // cycles before its first byte
  parameter int unsigned HostLatency = 24,   // cycles from its last byte to the retirement
  localparam int unsigned E = HbmChunk       // elements a cycle, of the smallest
) (
  input  logic                             clk_i,
  input  logic                             rst_ni,
  input  logic                             start_i,
  input  logic [DmaWords-1:0][31:0]        words_i,
  input  pattern_t [1:0]                   pattern_i,        // 0: source, 1: destination
  output logic                             done_o,
  output logic [31:0]                      tail_o,
  // HBM: its arbiter, and where a buffer is (of the instruction that starts).
  output logic                             hbm_request_o,
  input  logic                             hbm_grant_i,
  output logic [15:0]                      buffer_o,
  input  logic [HbmAddressBits-1:0]        buffer_base_i,
  // The host: of the instruction that starts, and whether it is ready for the last one that started.
  output logic                             host_start_o,
  output logic                             host_out_o,       // the last one goes to the host
  output logic [15:0]                      host_number_o,
  output logic [31:0]                      host_bytes_o,
  input  logic                             host_ready_i,
  output logic                             host_taken_o,     // the last one, which took from an infeed queue, ends
  // Source: data in the same cycle.
  output systolith_pkg::space_e            src_space_o,
  output logic [15:0]                      src_number_o,
  output logic [E-1:0]                     src_read_o,
  output logic [E-1:0][HbmAddressBits-1:0] src_address_o,
  output logic [1:0]                       src_size_o,       // log2 of bytes
  input  logic [E-1:0][31:0]               src_data_i,
  // Destination: written at the end of the cycle.
  output systolith_pkg::space_e            dst_space_o,
  output logic [15:0]                      dst_number_o,
  output logic [E-1:0]                     dst_write_o,
  output logic [E-1:0][HbmAddressBits-1:0] dst_address_o,
  output logic [1:0]                       dst_size_o,
  output logic [E-1:0][31:0]               dst_data_o,
  // Index lists in VMEM: data in the same cycle.
  output logic [1:0][E-1:0]                index_read_o,
  output logic [1:0][E-1:0][31:0]          index_address_o,
  input  logic [1:0][E-1:0][31:0]          index_data_i
);

  localparam int unsigned CountBits = $clog2(E + 1);

  // The instruction that starts.  Both opcodes have their streams in the same words.
  localparam int unsigned SrcWord = systolith_pkg::DmaLoadSrcWord;
  localparam int unsigned DstWord = systolith_pkg::DmaLoadDstWord;

  stream_t     src, dst;
  logic [1:0]  in_hbm;
  logic [31:0] chunks, size;

  assign src       = to_stream(words_i[SrcWord+:systolith_pkg::StreamWords]);
  assign dst       = to_stream(words_i[DstWord+:systolith_pkg::StreamWords]);
  assign in_hbm[0] = src.space == systolith_pkg::SpaceHbm;
  assign in_hbm[1] = dst.space == systolith_pkg::SpaceHbm;
  assign buffer_o  = in_hbm[0] ? src.buffer : dst.buffer;

  dma_chunks #(
    .HbmChunk  (HbmChunk),
    .HbmGranule(HbmGranule),
    .Segments  (Segments)
  ) u_chunks (
    .valid_i (start_i),
    .pattern_i,
    .hbm_i   (in_hbm),
    .chunks_o(chunks),
    .bytes_o (size)
  );

  // The one under way: chunks that are still to be granted, and whether the last cycle brought one.
  logic                      busy_q, moves_q, hbm_q, granted;
  logic [31:0]               left_q, left;
  logic [HbmAddressBits-1:0] base_q;
  systolith_pkg::space_e     src_space_q, dst_space_q;
  logic [15:0]               src_number_q, dst_number_q;
  logic [1:0]                size_q;
  logic [31:0]               fill_q;

  // With the host: it waits until the host is ready, then for the link's set-up; then it moves chunks while the link
  // moves its bytes, of which it owes HostQ times as many units as it moves HostP a cycle.
  localparam int unsigned OwedBits = 32 + $clog2(HostQ + 1);

  logic                host_q, waits_q, out_q, host, waits, open;
  logic [31:0]         pause_q, pause;
  logic [OwedBits-1:0] owed_q, owed;

  assign hbm_request_o = start_i ? in_hbm != '0 : hbm_q && left_q != '0;
  assign left          = start_i ? chunks : left_q;
  assign granted       = (start_i ? in_hbm != '0 : hbm_q) ? hbm_grant_i : left != '0 && (!host || open);
  assign done_o        = busy_q && left_q == '0 && !waits_q && pause_q == '0 && owed_q == '0;
  assign tail_o        = hbm_q ? HbmLatency : host_q ? HostLatency : LocalLatency;

  assign host_out_o    = start_i ? dst.space == systolith_pkg::SpaceHost : out_q;
  assign host_start_o  = start_i && (src.space == systolith_pkg::SpaceHost || host_out_o);
  assign host_number_o = host_out_o ? dst.buffer : src.buffer;
  assign host_bytes_o  = size;
  assign host_taken_o  = done_o && host_q && !out_q;
  assign host          = start_i ? host_start_o : host_q;
  assign waits         = (start_i ? host_start_o : waits_q) && !host_ready_i;
  assign pause         = start_i ? (host_start_o ? HostSetup : 32'd0) : pause_q;
  assign owed          = start_i ? (host_start_o ? OwedBits'(size) * OwedBits'(HostQ) : '0) : owed_q;
  assign open          = !waits && pause == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      host_q  <= 1'b0;
      out_q   <= 1'b0;
      waits_q <= 1'b0;
      pause_q <= '0;
      owed_q  <= '0;
    end else begin
      host_q  <= host;
      out_q   <= host_out_o;
      waits_q <= waits;
      pause_q <= (waits || pause == '0) ? pause : pause - 32'd1;
      owed_q  <= !open ? owed : (owed > OwedBits'(HostP)) ? owed - OwedBits'(HostP) : '0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q       <= 1'b0;
      moves_q      <= 1'b0;
      hbm_q        <= 1'b0;
      left_q       <= '0;
      base_q       <= '0;
      size_q       <= '0;
      fill_q       <= '0;
      src_space_q  <= systolith_pkg::SpaceNone;
      src_number_q <= '0;
      dst_space_q  <= systolith_pkg::SpaceNone;
      dst_number_q <= '0;
    end else begin
      busy_q  <= start_i || busy_q && !done_o;
      moves_q <= granted;
      if (granted) left_q <= left - 32'd1;
      else if (start_i) left_q <= left;
      if (start_i) begin
        hbm_q        <= in_hbm != '0;
        base_q       <= buffer_base_i;
        size_q       <= size_log2(pattern_i[0].dtype);
        fill_q       <= pattern_i[0].fill;
        src_space_q  <= src.space;
        src_number_q <= src.buffer;
        dst_space_q  <= dst.space;
        dst_number_q <= dst.buffer;
      end
    end
  end

  // Where the elements are.
  logic [1:0][E-1:0]       valid, exists;
  logic [1:0][E-1:0][31:0] address;
  logic [1:0]              more;
  logic [CountBits-1:0]    take;

  assign take = moves_q ? CountBits'(E) >> size_q : '0;

  for (genvar n = 0; n < 2; n++) begin : gen_sides
    walker #(
      .E(E)
    ) u_walker (
      .clk_i,
      .rst_ni,
      .start_i,
      .pattern_i      (pattern_i[n]),
      .stream_i       (n == 0 ? src : dst),
      .take_i         (take),
      .valid_o        (valid[n]),
      .inside_o       (exists[n]),
      .address_o      (address[n]),
      .more_o         (more[n]),
      .index_read_o   (index_read_o[n]),
      .index_address_o(index_address_o[n]),
      .index_data_i   (index_data_i[n])
    );
  end

  // A host queue has no addresses, and takes or gives every element.
  assign src_read_o   = (src_space_q == systolith_pkg::SpaceHost) ? valid[0] : exists[0];
  assign dst_write_o  = (dst_space_q == systolith_pkg::SpaceHost) ? valid[1] : exists[1];
  assign src_space_o  = src_space_q;
  assign src_number_o = src_number_q;
  assign src_size_o   = size_q;
  assign dst_space_o  = dst_space_q;
  assign dst_number_o = dst_number_q;
  assign dst_size_o   = size_q;

  logic [HbmAddressBits-1:0] src_base, dst_base;
  assign src_base = (src_space_q == systolith_pkg::SpaceHbm) ? base_q : '0;
  assign dst_base = (dst_space_q == systolith_pkg::SpaceHbm) ? base_q : '0;

  always_comb begin
    src_address_o = '0;
    dst_address_o = '0;
    if (moves_q) begin
      for (int unsigned e = 0; e < E; e++) begin
        src_address_o[e] = src_base + HbmAddressBits'(address[0][e]);
        dst_address_o[e] = dst_base + HbmAddressBits'(address[1][e]);
      end
    end
  end

  always_comb begin
    dst_data_o = '0;
    if (moves_q) begin
      for (int unsigned e = 0; e < E; e++) dst_data_o[e] = src_read_o[e] ? src_data_i[e] : fill_q;
    end
  end

`ifndef SYNTHESIS
  initial begin
    assert (HbmLatency >= 1 && LocalLatency >= 1 && HostLatency >= 1)
    else $error("dma: latencies %0d, %0d, %0d: elements move a cycle after their grant", HbmLatency, LocalLatency, HostLatency);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && start_i) begin
      assert (!busy_q || done_o)
      else $error("dma: starts before the one under way is done");
      assert (in_hbm != 2'b11)
      else $error("dma: both sides are HBM");
      assert (chunks != '0)
      else $error("dma: a copy of nothing");
      assert (size_log2(pattern_i[0].dtype) == size_log2(pattern_i[1].dtype))
      else $error("dma: elements of different sizes");
    end
    if (rst_ni && moves_q) begin
      assert (valid[0] == valid[1])
      else $error("dma: source and destination have different numbers of elements");
    end
    if (rst_ni && done_o) begin
      assert (more == '0)
      else $error("dma: done, and elements are left");
    end
  end
`endif

endmodule
