// The unit's way to memory: streams, a port with its address generator for each load, store and alu slot, element formats.
//
// An alu slot's port has addresses only for the index list; it gives coordinates, and which elements are inside.
module vpu_ports
  import core_pkg::stream_t;
  import systolith_pkg::*;
  import vpu_pkg::*;
  import walk_pkg::pattern_t, walk_pkg::point_t;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  parameter int unsigned AluSlots = 2,
  parameter int unsigned LoadSlots = 1,
  parameter int unsigned StoreSlots = 1,
  localparam int unsigned Elements = Lanes * Sublanes,
  localparam int unsigned MemoryPorts = LoadSlots + StoreSlots,
  localparam int unsigned Ports = MemoryPorts + AluSlots
) (
  input  logic                                       clk_i,
  input  logic                                       start_i,
  input  logic [3:0]                                 count_i,          // streams of the instruction
  input  logic [MaxStreams*StreamWords-1:0][31:0]    words_i,
  input  pattern_t [MaxStreams-1:0]                  pattern_i,
  input  issued_t [AluSlots-1:0]                     alu_i,
  input  issued_t [MemoryPorts-1:0]                  memory_i,         // loads, then stores
  output logic [15:0]                                stall_o,          // cycles that loads and stores take beyond one
  output logic [AluSlots-1:0]                        place_o,          // the slot's result is its port's:
  output logic [AluSlots-1:0][Elements-1:0][31:0]    value_o,
  output logic [LoadSlots-1:0][Elements-1:0][31:0]   loaded_o,
  input  logic [StoreSlots-1:0][Elements-1:0][31:0]  stored_i,
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
  output logic [Ports-1:0][Elements-1:0]             index_read_o,
  output logic [Ports-1:0][Elements-1:0][31:0]       index_address_o,
  input  logic [Ports-1:0][Elements-1:0][31:0]       index_data_i
);

  issued_t [Ports-1:0]                  issued;
  logic [Ports-1:0]                     active;
  logic [Ports-1:0][3:0]                number;
  stream_t [Ports-1:0]                  stream;
  pattern_t                             pattern[Ports];
  point_t [Ports-1:0]                   origin;
  logic [Ports-1:0][15:0]               stall;
  logic [Ports-1:0][Elements-1:0]       covered, exists;
  logic [Ports-1:0][Elements-1:0][31:0] address, value;

  assign issued = {alu_i, memory_i};

  vpu_streams #(
    .Sublanes(Sublanes),
    .Ports   (Ports)
  ) u_streams (
    .clk_i,
    .start_i,
    .count_i,
    .words_i,
    .pattern_i,
    .use_i    (active),
    .number_i (number),
    .stream_o (stream),
    .pattern_o(pattern),
    .origin_o (origin),
    .stall_o  (stall)
  );

  for (genvar p = 0; p < int'(Ports); p++) begin : gen_ports
    assign number[p] = issued[p].imm[3:0];
    assign active[p] = issued[p].valid && (p < int'(MemoryPorts) || issued[p].op inside {MopCoord, MopInside});

    vpu_address #(
      .Lanes   (Lanes),
      .Sublanes(Sublanes)
    ) u_address (
      .valid_i        (active[p]),
      .pattern_i      (pattern[p]),
      .origin_i       (origin[p]),
      .list_i         (stream[p].index),
      .index_i        (issued[p].index),
      .coordinate_i   (issued[p].op == MopCoord),
      .number_i       (issued[p].imm[5:4]),
      .index_read_o   (index_read_o[p]),
      .index_address_o(index_address_o[p]),
      .index_data_i   (index_data_i[p]),
      .covered_o      (covered[p]),
      .exists_o       (exists[p]),
      .address_o      (address[p]),
      .value_o        (value[p])
    );
  end

  always_comb begin
    stall_o = '0;
    for (int unsigned p = 0; p < MemoryPorts; p++) stall_o += stall[p];
  end

  for (genvar p = 0; p < int'(AluSlots); p++) begin : gen_alu
    localparam int Port = int'(MemoryPorts) + p;

    assign place_o[p] = active[Port];

    always_comb begin
      value_o[p] = '0;
      if (active[Port]) begin
        for (int unsigned e = 0; e < Elements; e++) begin
          if (issued[Port].op == MopInside) value_o[p][e] = 32'(exists[Port][e]);
          else if (covered[Port][e]) value_o[p][e] = value[Port][e];
        end
      end
    end
  end

  for (genvar p = 0; p < int'(LoadSlots); p++) begin : gen_loads
    assign load_space_o[p]   = stream[p].space;
    assign load_buffer_o[p]  = stream[p].buffer;
    assign load_read_o[p]    = exists[p];
    assign load_address_o[p] = address[p];
    assign load_size_o[p]    = walk_pkg::size_log2(pattern[p].dtype);

    always_comb begin
      loaded_o[p] = '0;
      if (active[p]) begin
        for (int unsigned e = 0; e < Elements; e++) begin
          if (exists[p][e]) loaded_o[p][e] = formats_pkg::widen(pattern[p].dtype, load_data_i[p][e]);
          else loaded_o[p][e] = pattern[p].fill;
        end
      end
    end
  end

  for (genvar p = 0; p < int'(StoreSlots); p++) begin : gen_stores
    localparam int Port = int'(LoadSlots) + p;

    assign store_space_o[p]   = stream[Port].space;
    assign store_buffer_o[p]  = stream[Port].buffer;
    assign store_write_o[p]   = exists[Port];
    assign store_address_o[p] = address[Port];
    assign store_size_o[p]    = walk_pkg::size_log2(pattern[Port].dtype);

    always_comb begin
      store_data_o[p] = '0;
      if (active[Port]) begin
        for (int unsigned e = 0; e < Elements; e++) begin
          if (exists[Port][e]) store_data_o[p][e] = formats_pkg::narrow(pattern[Port].dtype, stored_i[p][e]);
        end
      end
    end
  end

endmodule
