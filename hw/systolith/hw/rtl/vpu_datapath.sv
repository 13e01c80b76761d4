// Registers, arithmetic, and the results on their way back.
module vpu_datapath
  import systolith_pkg::NumScalars;
  import vpu_pkg::*;
#(
  parameter int unsigned Elements = 16,
  parameter int unsigned AluSlots = 2,
  parameter int unsigned LoadSlots = 1,
  parameter int unsigned StoreSlots = 1,
  parameter int unsigned TransSlots = 1,
  parameter int unsigned AluLatency = 2,
  parameter int unsigned LoadLatency = 3,
  parameter int unsigned TransLatency = 8,
  localparam int unsigned Columns = AluSlots + LoadSlots + StoreSlots + TransSlots,
  localparam int unsigned Reads = 3 * AluSlots + StoreSlots + 2 * TransSlots
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  logic                                       issue_i,         // a cycle of the schedule
  input  issued_t [Columns-1:0]                      issued_i,
  input  logic [31:0]                                constants_i,     // where the kernel's begin
  input  logic [NumScalars-1:0][31:0]                scalar_i,
  output logic [Reads-1:0]                           constant_read_o,
  output logic [Reads-1:0][31:0]                     constant_address_o,
  input  logic [Reads-1:0][31:0]                     constant_i,
  input  logic [AluSlots-1:0]                        place_i,         // results of alu slots that are not arithmetic
  input  logic [AluSlots-1:0][Elements-1:0][31:0]    place_value_i,
  input  logic [LoadSlots-1:0][Elements-1:0][31:0]   loaded_i,
  output logic [StoreSlots-1:0][Elements-1:0][31:0]  stored_o
);

  typedef logic [Elements-1:0][31:0] vector_t;

  // Results: alu, load, trans.  Operands: three of an alu slot, one of a store, two of a trans slot.
  localparam int unsigned Results = AluSlots + LoadSlots + TransSlots;
  localparam int unsigned FirstTrans = AluSlots + LoadSlots + StoreSlots;
  localparam int unsigned StoreRead = 3 * AluSlots;
  localparam int unsigned TransRead = StoreRead + StoreSlots;

  logic [Reads-1:0]        read;
  logic [Reads-1:0][7:0]   operand;
  vector_t [Reads-1:0]     value;
  vector_t [Results-1:0]   result, due_result;
  logic [Results-1:0]      due;
  logic [Results-1:0][5:0] due_dst;

  vpu_regs #(
    .Elements(Elements),
    .Reads   (Reads),
    .Writes  (Results)
  ) u_regs (
    .clk_i,
    .read_i   (read),
    .operand_i(operand),
    .value_o  (value),
    .constants_i,
    .scalar_i,
    .constant_read_o,
    .constant_address_o,
    .constant_i,
    .write_i  (due),
    .dst_i    (due_dst),
    .data_i   (due_result)
  );

  for (genvar r = 0; r < int'(Reads); r++) begin : gen_operands
    localparam int Trans = r - int'(TransRead);
    localparam int Column = (r < int'(StoreRead)) ? r / 3
                            : (Trans < 0) ? int'(AluSlots + LoadSlots) + r - int'(StoreRead)
                            : int'(FirstTrans) + Trans / 2;
    localparam int Source = (r < int'(StoreRead)) ? r % 3 : (Trans < 0) ? 0 : Trans % 2;

    assign operand[r] = issued_i[Column].src[Source];
    assign read[r]    = issued_i[Column].valid && operand[r] != NoOperand;
  end

  for (genvar s = 0; s < int'(AluSlots); s++) begin : gen_alu
    vector_t computed;

    vpu_lanes #(
      .Elements(Elements)
    ) u_lanes (
      .valid_i  (issued_i[s].valid && !place_i[s]),
      .op_i     (issued_i[s].op),
      .operand_i(value[3*s+:3]),
      .result_o (computed)
    );

    assign result[s] = place_i[s] ? place_value_i[s] : computed;
  end

  assign result[AluSlots+:LoadSlots] = loaded_i;
  assign stored_o                    = value[StoreRead+:StoreSlots];

  for (genvar s = 0; s < int'(TransSlots); s++) begin : gen_trans
    vpu_lanes #(
      .Elements(Elements),
      .Trans   (1'b1)
    ) u_lanes (
      .valid_i  (issued_i[FirstTrans+s].valid),
      .op_i     (issued_i[FirstTrans+s].op),
      .operand_i({vector_t'('0), value[TransRead+2*s+:2]}),
      .result_o (result[AluSlots+LoadSlots+s])
    );
  end

  for (genvar r = 0; r < int'(Results); r++) begin : gen_results
    localparam int Column = (r < int'(AluSlots + LoadSlots)) ? r : r + int'(StoreSlots);
    localparam int unsigned Latency = (r < int'(AluSlots)) ? AluLatency
                                      : (r < int'(AluSlots + LoadSlots)) ? LoadLatency : TransLatency;

    vpu_result #(
      .Width  (32 * Elements),
      .Latency(Latency)
    ) u_result (
      .clk_i,
      .rst_ni,
      .advance_i(issue_i),
      .valid_i  (issued_i[Column].valid),
      .dst_i    (issued_i[Column].dst),
      .data_i   (result[r]),
      .valid_o  (due[r]),
      .dst_o    (due_dst[r]),
      .data_o   (due_result[r])
    );
  end

endmodule
