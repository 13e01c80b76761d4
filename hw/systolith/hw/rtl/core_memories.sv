// VMEM, SMEM, HBM, the host's queues and the links, and the way of each unit's elements to the memory that it means.
//
// A port's elements have fixed places among those of a memory, in the order of the `First...` below.
module core_memories
  import core_pkg::*;
  import systolith_pkg::space_e, systolith_pkg::SpaceHbm, systolith_pkg::SpaceVmem, systolith_pkg::SpaceSmem,
         systolith_pkg::SpaceHost, systolith_pkg::SpaceLink;
#(
  parameter int unsigned VmemBytes = 262144,
  parameter int unsigned SmemBytes = 4096,
  parameter longint unsigned HbmBytes = 64'd16777216,
  parameter int unsigned ModelBytes = 16777216,  // of it, which the model has
  parameter int unsigned HostQueues = 2,
  parameter int unsigned HostBytes = 65536,    // of each host queue
  parameter int unsigned HostRoom = 16384,
  parameter int unsigned HostTimes = 1024,
  parameter int unsigned Links = 2,
  parameter int unsigned DmaElements = 32,
  parameter int unsigned VpuElements = 16,
  parameter int unsigned XluElements = 8,
  parameter int unsigned Loads = 1,            // of the vector unit
  parameter int unsigned Stores = 1,
  parameter int unsigned Lists = 4,
  parameter int unsigned Segments = 4,         // of all matrix units
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                                              clk_i,
  input  logic                                              rst_ni,
  // SEQ: a word of SMEM.
  input  logic [31:0]                                       seq_address_i,
  output logic [31:0]                                       seq_data_o,
  input  logic                                              seq_write_i,
  input  logic [31:0]                                       seq_data_i,
  // DMA: 0 ld, 1 st; the source of ld and the destination of st may be a numbered host queue or link.
  input  logic [15:0]                                       ld_number_i,
  input  logic [15:0]                                       st_number_i,
  input  logic [1:0]                                        host_start_i,
  input  logic [1:0][15:0]                                  host_number_i,
  input  logic [1:0][31:0]                                  host_bytes_i,
  output logic [1:0]                                        host_ready_o,
  input  logic                                              host_taken_i,
  input  space_e [1:0]                                      dma_src_space_i,
  input  logic [1:0][DmaElements-1:0]                       dma_src_read_i,
  input  logic [1:0][DmaElements-1:0][HbmAddressBits-1:0]   dma_src_address_i,
  input  logic [1:0][1:0]                                   dma_src_size_i,
  output logic [1:0][DmaElements-1:0][31:0]                 dma_src_data_o,
  input  space_e [1:0]                                      dma_dst_space_i,
  input  logic [1:0][DmaElements-1:0]                       dma_dst_write_i,
  input  logic [1:0][DmaElements-1:0][HbmAddressBits-1:0]   dma_dst_address_i,
  input  logic [1:0][1:0]                                   dma_dst_size_i,
  input  logic [1:0][DmaElements-1:0][31:0]                 dma_dst_data_i,
  input  logic [1:0][1:0][DmaElements-1:0]                  dma_list_read_i,
  input  logic [1:0][1:0][DmaElements-1:0][31:0]            dma_list_address_i,
  output logic [1:0][1:0][DmaElements-1:0][31:0]            dma_list_data_o,
  // The vector unit; accumulators are not here.
  input  space_e [Loads-1:0]                                vpu_read_space_i,
  input  logic [Loads-1:0][VpuElements-1:0]                 vpu_read_i,
  input  logic [Loads-1:0][VpuElements-1:0][31:0]           vpu_read_address_i,
  input  logic [Loads-1:0][1:0]                             vpu_read_size_i,
  output logic [Loads-1:0][VpuElements-1:0][31:0]           vpu_read_data_o,
  input  space_e [Stores-1:0]                               vpu_write_space_i,
  input  logic [Stores-1:0][VpuElements-1:0]                vpu_write_i,
  input  logic [Stores-1:0][VpuElements-1:0][31:0]          vpu_write_address_i,
  input  logic [Stores-1:0][1:0]                            vpu_write_size_i,
  input  logic [Stores-1:0][VpuElements-1:0][31:0]          vpu_write_data_i,
  input  logic [Lists-1:0][VpuElements-1:0]                 vpu_list_read_i,
  input  logic [Lists-1:0][VpuElements-1:0][31:0]           vpu_list_address_i,
  output logic [Lists-1:0][VpuElements-1:0][31:0]           vpu_list_data_o,
  // The cross-lane unit.
  input  logic [XluElements-1:0]                            xlu_read_i,
  input  logic [XluElements-1:0][31:0]                      xlu_read_address_i,
  input  logic [1:0]                                        xlu_read_size_i,
  output logic [XluElements-1:0][31:0]                      xlu_read_data_o,
  input  logic [XluElements-1:0]                            xlu_write_i,
  input  logic [XluElements-1:0][31:0]                      xlu_write_address_i,
  input  logic [1:0]                                        xlu_write_size_i,
  input  logic [XluElements-1:0][31:0]                      xlu_write_data_i,
  input  logic [1:0][XluElements-1:0]                       xlu_list_read_i,
  input  logic [1:0][XluElements-1:0][31:0]                 xlu_list_address_i,
  output logic [1:0][XluElements-1:0][31:0]                 xlu_list_data_o,
  // The matrix units.
  input  logic [Segments-1:0]                               segment_read_i,
  input  logic [Segments-1:0][31:0]                         segment_address_i,
  output logic [Segments-1:0][SegmentBytes-1:0][7:0]        segment_data_o
);

  localparam logic [1:0] Word = 2'd2;

  // Elements that VMEM reads: loads, DMA (both), XLU; entries of lists: the vector unit's, DMA's, XLU's.
  localparam int unsigned FirstDma = Loads * VpuElements;
  localparam int unsigned FirstXlu = FirstDma + 2 * DmaElements;
  localparam int unsigned Reads = FirstXlu + XluElements;
  localparam int unsigned Entries = Lists * VpuElements + 4 * DmaElements + 2 * XluElements;

  // Elements that VMEM writes: stores, DMA (both), XLU.
  localparam int unsigned FirstDmaWrite = Stores * VpuElements;
  localparam int unsigned FirstXluWrite = FirstDmaWrite + 2 * DmaElements;
  localparam int unsigned Writes = FirstXluWrite + XluElements;

  logic [Reads-1:0]        read;
  logic [Reads-1:0][31:0]  read_address, read_data;
  logic [Reads-1:0][1:0]   read_size;
  logic [Writes-1:0]       write;
  logic [Writes-1:0][31:0] write_address, write_data;
  logic [Writes-1:0][1:0]  write_size;

  // Addresses of DMA within a memory that is not HBM.
  logic [1:0][DmaElements-1:0][31:0] src_address, dst_address;

  always_comb begin
    for (int unsigned d = 0; d < 2; d++) begin
      for (int unsigned e = 0; e < DmaElements; e++) begin
        src_address[d][e] = dma_src_address_i[d][e][31:0];
        dst_address[d][e] = dma_dst_address_i[d][e][31:0];
      end
    end
  end

  // Which memory a unit means.
  logic [Loads-1:0][VpuElements-1:0]  vpu_read;
  logic [Stores-1:0][VpuElements-1:0] vpu_write;

  for (genvar s = 0; s < int'(Loads); s++) begin : gen_loads
    assign vpu_read[s] = (vpu_read_space_i[s] == SpaceVmem) ? vpu_read_i[s] : '0;
  end

  for (genvar s = 0; s < int'(Stores); s++) begin : gen_stores
    assign vpu_write[s] = (vpu_write_space_i[s] == SpaceVmem) ? vpu_write_i[s] : '0;
  end

  logic [1:0][DmaElements-1:0] vmem_read, smem_read, vmem_write, smem_write;
  logic [DmaElements-1:0]      hbm_read, host_read, hbm_write, host_write;

  for (genvar d = 0; d < 2; d++) begin : gen_dma
    assign vmem_read[d]  = (dma_src_space_i[d] == SpaceVmem) ? dma_src_read_i[d] : '0;
    assign smem_read[d]  = (dma_src_space_i[d] == SpaceSmem) ? dma_src_read_i[d] : '0;
    assign vmem_write[d] = (dma_dst_space_i[d] == SpaceVmem) ? dma_dst_write_i[d] : '0;
    assign smem_write[d] = (dma_dst_space_i[d] == SpaceSmem) ? dma_dst_write_i[d] : '0;
  end

  assign hbm_read   = (dma_src_space_i[0] == SpaceHbm) ? dma_src_read_i[0] : '0;
  assign host_read  = (dma_src_space_i[0] == SpaceHost) ? dma_src_read_i[0] : '0;
  assign hbm_write  = (dma_dst_space_i[1] == SpaceHbm) ? dma_dst_write_i[1] : '0;
  assign host_write = (dma_dst_space_i[1] == SpaceHost) ? dma_dst_write_i[1] : '0;

  assign read          = {xlu_read_i, vmem_read, vpu_read};
  assign read_address  = {xlu_read_address_i, src_address, vpu_read_address_i};
  assign write         = {xlu_write_i, vmem_write, vpu_write};
  assign write_address = {xlu_write_address_i, dst_address, vpu_write_address_i};
  assign write_data    = {xlu_write_data_i, dma_dst_data_i, vpu_write_data_i};

  always_comb begin
    for (int unsigned s = 0; s < Loads; s++) read_size[s*VpuElements+:VpuElements] = {VpuElements{vpu_read_size_i[s]}};
    for (int unsigned d = 0; d < 2; d++) read_size[FirstDma+d*DmaElements+:DmaElements] = {DmaElements{dma_src_size_i[d]}};
    read_size[FirstXlu+:XluElements] = {XluElements{xlu_read_size_i}};
    for (int unsigned s = 0; s < Stores; s++) write_size[s*VpuElements+:VpuElements] = {VpuElements{vpu_write_size_i[s]}};
    for (int unsigned d = 0; d < 2; d++) begin
      write_size[FirstDmaWrite+d*DmaElements+:DmaElements] = {DmaElements{dma_dst_size_i[d]}};
    end
    write_size[FirstXluWrite+:XluElements] = {XluElements{xlu_write_size_i}};
  end

  assign vpu_read_data_o = read_data[0+:Loads*VpuElements];
  assign xlu_read_data_o = read_data[FirstXlu+:XluElements];

  vmem #(
    .Bytes       (VmemBytes),
    .Lists       (Entries),
    .Reads       (Reads),
    .Writes      (Writes),
    .Segments    (Segments),
    .SegmentBytes(SegmentBytes)
  ) u_vmem (
    .clk_i,
    .list_i         ({xlu_list_read_i, dma_list_read_i, vpu_list_read_i}),
    .list_address_i ({xlu_list_address_i, dma_list_address_i, vpu_list_address_i}),
    .list_data_o    ({xlu_list_data_o, dma_list_data_o, vpu_list_data_o}),
    .read_i         (read),
    .read_address_i (read_address),
    .read_size_i    (read_size),
    .read_data_o    (read_data),
    .write_i        (write),
    .write_address_i(write_address),
    .write_size_i   (write_size),
    .write_data_i   (write_data),
    .segment_read_i,
    .segment_address_i,
    .segment_data_o
  );

  // SMEM: SEQ's word is the last element.
  logic [1:0][DmaElements-1:0][31:0] smem_data;
  logic [31:0]                       unused_smem;

  memory #(
    .Bytes (SmemBytes),
    .Reads (2 * DmaElements + 1),
    .Writes(2 * DmaElements + 1)
  ) u_smem (
    .clk_i,
    .list_i         (1'b0),
    .list_address_i ('0),
    .list_data_o    (unused_smem),
    .read_i         ({1'b1, smem_read}),
    .read_address_i ({seq_address_i, src_address}),
    .read_size_i    ({Word, {DmaElements{dma_src_size_i[1]}}, {DmaElements{dma_src_size_i[0]}}}),
    .read_data_o    ({seq_data_o, smem_data}),
    .write_i        ({seq_write_i, smem_write}),
    .write_address_i({seq_address_i, dst_address}),
    .write_size_i   ({Word, {DmaElements{dma_dst_size_i[1]}}, {DmaElements{dma_dst_size_i[0]}}}),
    .write_data_i   ({seq_data_i, dma_dst_data_i})
  );

  // HBM: only ld reads, only st writes.
  logic [DmaElements-1:0][31:0] hbm_data, host_data;
  logic [31:0]                  unused_hbm;

  memory #(
    .Bytes      (ModelBytes),
    .AddressBits(HbmAddressBits),
    .Reads      (DmaElements),
    .Writes     (DmaElements)
  ) u_hbm (
    .clk_i,
    .list_i         (1'b0),
    .list_address_i ('0),
    .list_data_o    (unused_hbm),
    .read_i         (hbm_read),
    .read_address_i (dma_src_address_i[0]),
    .read_size_i    ({DmaElements{dma_src_size_i[0]}}),
    .read_data_o    (hbm_data),
    .write_i        (hbm_write),
    .write_address_i(dma_dst_address_i[1]),
    .write_size_i   ({DmaElements{dma_dst_size_i[1]}}),
    .write_data_i   (dma_dst_data_i[1])
  );

  if (HostQueues > 0) begin : gen_host
    host_queues #(
      .Queues(HostQueues),
      .Bytes (HostBytes),
      .Room  (HostRoom),
      .Times (HostTimes),
      .E     (DmaElements)
    ) u_host_queues (
      .clk_i,
      .rst_ni,
      .start_i       (host_start_i),
      .start_number_i(host_number_i),
      .start_bytes_i (host_bytes_i),
      .ready_o       (host_ready_o),
      .taken_i       (host_taken_i),
      .pop_i        (host_read),
      .pop_number_i (ld_number_i),
      .pop_size_i   (dma_src_size_i[0]),
      .pop_data_o   (host_data),
      .push_i       (host_write),
      .push_number_i(st_number_i),
      .push_size_i  (dma_dst_size_i[1]),
      .push_data_i  (dma_dst_data_i[1])
    );
  end else begin : gen_no_host
    assign host_data    = '0;
    assign host_ready_o = '1;
  end

  // The VMEM at the other end of each link.
  for (genvar l = 0; l < int'(Links); l++) begin : gen_links
    logic [DmaElements-1:0] link_write;
    logic [31:0]            unused_data, unused_entry;

    assign link_write = (dma_dst_space_i[1] == SpaceLink && st_number_i == 16'(l)) ? dma_dst_write_i[1] : '0;

    memory #(
      .Bytes (VmemBytes),
      .Reads (1),
      .Writes(DmaElements)
    ) u_remote (
      .clk_i,
      .list_i         (1'b0),
      .list_address_i ('0),
      .list_data_o    (unused_entry),
      .read_i         (1'b0),
      .read_address_i ('0),
      .read_size_i    ('0),
      .read_data_o    (unused_data),
      .write_i        (link_write),
      .write_address_i(dst_address[1]),
      .write_size_i   ({DmaElements{dma_dst_size_i[1]}}),
      .write_data_i   (dma_dst_data_i[1])
    );
  end

  // Read data of the DMA units.
  for (genvar d = 0; d < 2; d++) begin : gen_dma_data
    always_comb begin
      unique case (dma_src_space_i[d])
        SpaceSmem: dma_src_data_o[d] = smem_data[d];
        SpaceHbm:  dma_src_data_o[d] = (d == 0) ? hbm_data : '0;
        SpaceHost: dma_src_data_o[d] = (d == 0) ? host_data : '0;
        default:   dma_src_data_o[d] = read_data[FirstDma+d*DmaElements+:DmaElements];
      endcase
    end
  end

`ifndef SYNTHESIS
  initial begin
    assert (64'(ModelBytes) <= HbmBytes)
    else $fatal(1, "core_memories: the model of HBM has %0d bytes, HBM %0d", ModelBytes, HbmBytes);
  end
`endif

endmodule
