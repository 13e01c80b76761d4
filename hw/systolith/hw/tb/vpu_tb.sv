// The vector unit with VMEM and accumulators; vpu_main.cpp writes tables, memories and instructions, and starts it.
module vpu_tb
  import core_pkg::VpuWords;
  import systolith_pkg::*;
  import walk_pkg::pattern_t;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,
  parameter int unsigned AluSlots = 2,
  parameter int unsigned LoadSlots = 1,
  parameter int unsigned StoreSlots = 1,
  parameter int unsigned TransSlots = 1,
  parameter int unsigned AluLatency = 2,
  parameter int unsigned LoadLatency = 3,
  parameter int unsigned TransLatency = 8,
  parameter int unsigned Bytes = 32768,     // of VMEM, and of each accumulator
  parameter int unsigned Accumulators = 2
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic done_o
);

  localparam int unsigned Elements = Lanes * Sublanes;
  localparam int unsigned IndexPorts = LoadSlots + StoreSlots + AluSlots;
  localparam int unsigned PatternWords = ($bits(pattern_t) + 31) / 32;
  localparam int unsigned Memories = Accumulators + 1;  // VMEM comes first
  localparam int unsigned MemoryBits = $clog2(Memories);
  localparam int unsigned AddressBits = $clog2(Bytes);

  space_e [LoadSlots-1:0]                    load_space;
  logic [LoadSlots-1:0][15:0]                load_buffer;
  logic [LoadSlots-1:0][Elements-1:0]        load_read;
  logic [LoadSlots-1:0][Elements-1:0][31:0]  load_address, load_data;
  logic [LoadSlots-1:0][1:0]                 load_size;
  space_e [StoreSlots-1:0]                   store_space;
  logic [StoreSlots-1:0][15:0]               store_buffer;
  logic [StoreSlots-1:0][Elements-1:0]       store_write;
  logic [StoreSlots-1:0][Elements-1:0][31:0] store_address, store_data;
  logic [StoreSlots-1:0][1:0]                store_size;
  logic [IndexPorts-1:0][Elements-1:0]       index_read;
  logic [IndexPorts-1:0][Elements-1:0][31:0] index_address, index_data;

  // Written by the commands: not inputs, so that only what changes is evaluated.
  logic                          asked, answered_q, start;  // a start is asked for by turning `asked`
  logic [VpuWords-1:0][31:0]     words;
  logic [PatternWords-1:0][31:0] entries[MaxStreams];
  pattern_t [MaxStreams-1:0]     pattern;
  logic [7:0]                    memory[Memories][Bytes];

  for (genvar s = 0; s < int'(MaxStreams); s++) begin : gen_patterns
    assign pattern[s] = start ? $bits(pattern_t)'(entries[s]) : '0;
  end

  vpu #(
    .Lanes       (Lanes),
    .Sublanes    (Sublanes),
    .AluSlots    (AluSlots),
    .LoadSlots   (LoadSlots),
    .StoreSlots  (StoreSlots),
    .TransSlots  (TransSlots),
    .AluLatency  (AluLatency),
    .LoadLatency (LoadLatency),
    .TransLatency(TransLatency),
    .Kernels     (64),
    .ControlRows (65536),
    .Constants   (4096)
  ) u_vpu (
    .clk_i,
    .rst_ni,
    .start_i        (start),
    .words_i        (start ? words : '0),
    .pattern_i      (pattern),
    .done_o,
    .load_space_o   (load_space),
    .load_buffer_o  (load_buffer),
    .load_read_o    (load_read),
    .load_address_o (load_address),
    .load_size_o    (load_size),
    .load_data_i    (load_data),
    .store_space_o  (store_space),
    .store_buffer_o (store_buffer),
    .store_write_o  (store_write),
    .store_address_o(store_address),
    .store_size_o   (store_size),
    .store_data_o   (store_data),
    .index_read_o   (index_read),
    .index_address_o(index_address),
    .index_data_i   (index_data)
  );

  function automatic logic [MemoryBits-1:0] memory_of(space_e space, logic [MemoryBits-1:0] buffer);
    memory_of = (space == SpaceAcc) ? buffer + 1'b1 : '0;
  endfunction

  always_comb begin
    index_data = '0;
    for (int unsigned p = 0; p < IndexPorts; p++) begin
      for (int unsigned e = 0; e < Elements; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (index_read[p][e]) index_data[p][e][8*b+:8] = memory[0][AddressBits'(index_address[p][e]+b)];
        end
      end
    end
  end

  always_comb begin
    load_data = '0;
    for (int unsigned p = 0; p < LoadSlots; p++) begin
      for (int unsigned e = 0; e < Elements; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (load_read[p][e] && b < 32'd1 << load_size[p]) begin
            load_data[p][e][8*b+:8] =
                memory[memory_of(load_space[p], MemoryBits'(load_buffer[p]))][AddressBits'(load_address[p][e]+b)];
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned p = 0; p < StoreSlots; p++) begin
      for (int unsigned e = 0; e < Elements; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (store_write[p][e] && b < 32'd1 << store_size[p]) begin
            memory[memory_of(store_space[p], MemoryBits'(store_buffer[p]))][AddressBits'(store_address[p][e]+b)]
                <= store_data[p][e][8*b+:8];
          end
        end
      end
    end
  end

  assign start = asked != answered_q;
  always_ff @(posedge clk_i) answered_q <= asked;

  export "DPI-C" function tb_start;
  export "DPI-C" function tb_poke;
  export "DPI-C" function tb_peek;
  export "DPI-C" function tb_word;
  export "DPI-C" function tb_entry;

  function automatic void tb_start();
    asked = !asked;
  endfunction

  function automatic void tb_poke(int unsigned number, int unsigned address, int unsigned data);
    for (int unsigned b = 0; b < 4; b++) memory[MemoryBits'(number)][AddressBits'(address+b)] = data[8*b+:8];
  endfunction

  function automatic int unsigned tb_peek(int unsigned number, int unsigned address);
    for (int unsigned b = 0; b < 4; b++) tb_peek[8*b+:8] = memory[MemoryBits'(number)][AddressBits'(address+b)];
  endfunction

  function automatic void tb_word(int unsigned word, int unsigned data);
    words[word] = data;
  endfunction

  function automatic void tb_entry(int unsigned stream, int unsigned word, int unsigned data);
    entries[4'(stream)][word] = data;
  endfunction

  always_ff @(posedge clk_i) begin
    for (int unsigned p = 0; p < LoadSlots; p++) begin
      assert (!(rst_ni && load_read[p] != '0) || load_space[p] inside {SpaceVmem, SpaceAcc})
      else $error("load slot %0d reads space %0d", p, load_space[p]);
    end
  end

endmodule
