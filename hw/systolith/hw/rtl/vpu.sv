// The vector unit: kernels of the control store on vector registers, a row of micro-operations a cycle.
//
// Cycle 0 of an instruction's schedule is the cycle of its start.  Memory is read and written, and results are computed, in the
// cycle of the issue; results then wait until they are due.  An element of a register is sublane x Lanes + lane.
module vpu
  import core_pkg::VpuWords;
  import systolith_pkg::*;
  import vpu_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  parameter int unsigned AluSlots = 2,
  parameter int unsigned LoadSlots = 1,
  parameter int unsigned StoreSlots = 1,
  parameter int unsigned TransSlots = 1,
  parameter int unsigned AluLatency = 2,  // from the issue to the first cycle that may read the result
  parameter int unsigned LoadLatency = 3,
  parameter int unsigned TransLatency = 8,
  parameter int unsigned Kernels = 1024,
  parameter int unsigned ControlRows = 32768,
  parameter int unsigned Constants = 16384,
  parameter int unsigned MaxStages = 64,
  localparam int unsigned Elements = Lanes * Sublanes,
  localparam int unsigned IndexPorts = LoadSlots + StoreSlots + AluSlots
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic                                       start_i,
  input  logic [VpuWords-1:0][31:0]                  words_i,          // of the instruction, in the cycle of its start
  input  walk_pkg::pattern_t [MaxStreams-1:0]        pattern_i,        // entries of its streams, in the same cycle
  output logic                                       done_o,
  output space_e [LoadSlots-1:0]                     load_space_o,
  output logic [LoadSlots-1:0][15:0]                 load_buffer_o,
  output logic [LoadSlots-1:0][Elements-1:0]         load_read_o,
  output logic [LoadSlots-1:0][Elements-1:0][31:0]   load_address_o,
  output logic [LoadSlots-1:0][1:0]                  load_size_o,
  input  logic [LoadSlots-1:0][Elements-1:0][31:0]   load_data_i,
  output space_e [StoreSlots-1:0]                    store_space_o,
  output logic [StoreSlots-1:0][15:0]                store_buffer_o,
  output logic [StoreSlots-1:0][Elements-1:0]        store_write_o,
  output logic [StoreSlots-1:0][Elements-1:0][31:0]  store_address_o,
  output logic [StoreSlots-1:0][1:0]                 store_size_o,
  output logic [StoreSlots-1:0][Elements-1:0][31:0]  store_data_o,
  output logic [IndexPorts-1:0][Elements-1:0]        index_read_o,     // loads, stores, then alu slots
  output logic [IndexPorts-1:0][Elements-1:0][31:0]  index_address_o,
  input  logic [IndexPorts-1:0][Elements-1:0][31:0]  index_data_i
);

  localparam int unsigned Columns = AluSlots + LoadSlots + StoreSlots + TransSlots;
  localparam int unsigned Reads = 3 * AluSlots + StoreSlots + 2 * TransSlots;

  // The instruction: in the cycle of its start from the inputs, then from registers.
  kernel_t    kernel;
  run_t       run_q, run;
  logic [2:0] nest, inner;

  assign nest  = words_i[VpuRunNestWord][VpuRunNestHi:VpuRunNestLo];
  assign inner = words_i[VpuRunInnerWord][VpuRunInnerHi:VpuRunInnerLo];

  always_comb begin
    run = run_q;
    if (start_i) begin
      run.kernel      = kernel;
      run.first_inner = 3'(Nest) - inner;
      run.serial      = words_i[VpuRunSerialWord][VpuRunSerialLo];
      for (int unsigned k = 0; k < Nest; k++) begin
        run.counts[k] = 32'd1;
        if (k + 32'(nest) >= Nest) run.counts[k] = words_i[VpuRunCountsWord+k+32'(nest)-Nest];
      end
      for (int unsigned i = 0; i < NumScalars; i++) run.scalars[i] = words_i[VpuRunScalarsWord+i];
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) run_q <= run;
  end

  // The schedule: which micro-operations issue, of which iterations.
  logic                   issue, shift;
  logic [15:0]            stall;
  logic [31:0]            row_address;
  iteration_t             iteration;
  logic [Stages-1:0]      live;
  microop_t [Columns-1:0] row;
  issued_t [Columns-1:0]  issued;
  logic [Reads-1:0]       constant_read;
  logic [Reads-1:0][31:0] constant_address, constant;

  vpu_sequencer u_sequencer (
    .clk_i,
    .rst_ni,
    .start_i,
    .kernel_i     (run.kernel),
    .counts_i     (run.counts),
    .first_inner_i(run.first_inner),
    .serial_i     (run.serial),
    .stall_i      (stall),
    .issue_o      (issue),
    .row_o        (row_address),
    .iteration_o  (iteration),
    .live_o       (live),
    .shift_o      (shift),
    .done_o
  );

  vpu_kernels #(
    .Kernels(Kernels)
  ) u_kernels (
    .read_i  (start_i),
    .number_i(words_i[VpuRunKernelWord][VpuRunKernelHi:VpuRunKernelLo]),
    .kernel_o(kernel)
  );

  vpu_control #(
    .Rows   (ControlRows),
    .Columns(Columns)
  ) u_control (
    .read_i   (issue),
    .address_i(row_address),
    .row_o    (row)
  );

  vpu_constants #(
    .Constants(Constants),
    .Reads    (Reads)
  ) u_constants (
    .read_i   (constant_read),
    .address_i(constant_address),
    .data_o   (constant)
  );

  vpu_issue #(
    .Columns  (Columns),
    .MaxStages(MaxStages)
  ) u_issue (
    .clk_i,
    .rst_ni,
    .issue_i    (issue),
    .shift_i    (shift),
    .iteration_i(iteration),
    .live_i     (live),
    .rotating_i (run.kernel.rotating),
    .row_i      (row),
    .issued_o   (issued)
  );

  // Results of the micro-operations: in memory, and in the registers.
  logic [AluSlots-1:0]                       place;
  logic [AluSlots-1:0][Elements-1:0][31:0]   place_value;
  logic [LoadSlots-1:0][Elements-1:0][31:0]  loaded;
  logic [StoreSlots-1:0][Elements-1:0][31:0] stored;

  vpu_ports #(
    .Lanes     (Lanes),
    .Sublanes  (Sublanes),
    .AluSlots  (AluSlots),
    .LoadSlots (LoadSlots),
    .StoreSlots(StoreSlots)
  ) u_ports (
    .clk_i,
    .start_i,
    .count_i  (words_i[VpuRunNstreamsWord][VpuRunNstreamsHi:VpuRunNstreamsLo]),
    .words_i  (words_i[VpuRunStreamsWord+:MaxStreams*StreamWords]),
    .pattern_i,
    .alu_i    (issued[AluSlots-1:0]),
    .memory_i (issued[AluSlots+:LoadSlots+StoreSlots]),
    .stall_o  (stall),
    .place_o  (place),
    .value_o  (place_value),
    .loaded_o (loaded),
    .stored_i (stored),
    .load_space_o,
    .load_buffer_o,
    .load_read_o,
    .load_address_o,
    .load_size_o,
    .load_data_i,
    .store_space_o,
    .store_buffer_o,
    .store_write_o,
    .store_address_o,
    .store_size_o,
    .store_data_o,
    .index_read_o,
    .index_address_o,
    .index_data_i
  );

  vpu_datapath #(
    .Elements    (Elements),
    .AluSlots    (AluSlots),
    .LoadSlots   (LoadSlots),
    .StoreSlots  (StoreSlots),
    .TransSlots  (TransSlots),
    .AluLatency  (AluLatency),
    .LoadLatency (LoadLatency),
    .TransLatency(TransLatency)
  ) u_datapath (
    .clk_i,
    .rst_ni,
    .issue_i           (issue),
    .issued_i          (issued),
    .constants_i       (32'(run.kernel.constants)),
    .scalar_i          (run.scalars),
    .constant_read_o   (constant_read),
    .constant_address_o(constant_address),
    .constant_i        (constant),
    .place_i           (place),
    .place_value_i     (place_value),
    .loaded_i          (loaded),
    .stored_o          (stored)
  );

endmodule
