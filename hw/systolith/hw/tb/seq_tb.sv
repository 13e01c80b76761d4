// SEQ with its memories; queues and tokens come from outside, cycle by cycle.
module seq_tb #(
  parameter int unsigned FetchWords = 8,
  parameter int unsigned BranchPenalty = 2,
  parameter int unsigned Queues = 6,
  parameter int unsigned ImemWords = 32768,
  parameter int unsigned SmemWords = 256,
  parameter int unsigned LineWords = 64     // instruction words written at a time
) (
  input  logic                                clk_i,
  input  logic                                rst_ni,
  input  logic                                write_i,
  input  logic [31:0]                         write_address_i,
  input  logic [LineWords-1:0][31:0]          write_data_i,
  input  logic                                go_i,
  input  logic [Queues-1:0]                   ready_i,
  input  logic                                tokens_i,
  output logic                                event_o,         // one of those below is not as it is when nothing happens
  output logic [Queues-1:0]                   valid_o,
  output logic [core_pkg::VpuWords-1:0][31:0] words_o,
  output logic [31:0]                         number_o,
  output logic [3:0][7:0]                     waits_o,
  output logic [3:0][7:0]                     signals_o,
  output logic [2:0]                          kind_o,          // fence, idle, alone
  output logic                                smem_write_o,
  output logic [31:0]                         smem_address_o,
  output logic [31:0]                         smem_data_o,
  output logic                                sync_start_o,
  output logic [31:0]                         sync_number_o,
  output logic [3:0][7:0]                     sync_waits_o,
  output logic                                sync_retire_o,
  output logic [3:0][7:0]                     sync_signals_o,
  output logic                                halted_o,
  output logic                                trapped_o,
  output logic [15:0]                         trap_code_o
);

  localparam int unsigned ImemBits = $clog2(ImemWords);
  localparam int unsigned SmemBits = $clog2(SmemWords);

  logic [31:0] imem [ImemWords];
  logic [31:0] smem [SmemWords];

  logic [31:0]                 imem_address, smem_rdata;
  logic [FetchWords-1:0][31:0] imem_data;
  core_pkg::issue_t            push;

  always_comb begin
    for (int unsigned i = 0; i < FetchWords; i++) imem_data[i] = imem[ImemBits'(imem_address + 32'(i))];
  end
  assign smem_rdata = smem[smem_address_o[2+:SmemBits]];

  always_ff @(posedge clk_i) begin
    if (write_i) begin
      for (int unsigned i = 0; i < LineWords; i++) imem[ImemBits'(write_address_i + 32'(i))] <= write_data_i[i];
    end
    if (smem_write_o) smem[smem_address_o[2+:SmemBits]] <= smem_data_o;
  end

  seq #(
    .FetchWords   (FetchWords),
    .BranchPenalty(BranchPenalty),
    .Queues       (Queues)
  ) u_seq (
    .clk_i,
    .rst_ni,
    .go_i,
    .imem_address_o(imem_address),
    .imem_data_i   (imem_data),
    .smem_address_o,
    .smem_data_i   (smem_rdata),
    .smem_write_o,
    .smem_data_o,
    .push_valid_o  (valid_o),
    .push_ready_i  (ready_i),
    .push_o        (push),
    .push_words_o  (words_o),
    .waits_o       (sync_waits_o),
    .tokens_i,
    .sync_start_o,
    .sync_number_o,
    .sync_retire_o,
    .sync_signals_o,
    .halted_o,
    .trapped_o,
    .trap_code_o
  );

  assign number_o  = push.number;
  assign waits_o   = push.waits;
  assign signals_o = push.signals;
  assign kind_o    = {push.fence, push.idle, push.alone};
  assign event_o   = valid_o != '0 || smem_write_o || sync_start_o || sync_retire_o || halted_o || trapped_o;

endmodule
