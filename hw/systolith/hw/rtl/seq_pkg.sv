// Fields of an instruction's words that SEQ decodes.
package seq_pkg;

  import systolith_pkg::*;

  // Words of the longest scalar instruction, and of the head of a unit instruction, before its operands.
  parameter int unsigned ScalarWords = 6;
  parameter int unsigned HeadWords = 4;

  typedef logic [ScalarWords-1:0][31:0] scalar_words_t;
  typedef logic [HeadWords-1:0][31:0] head_words_t;

  // A scalar instruction.  All zero: halt.
  typedef struct packed {
    opcode_e     op;
    logic [4:0]  rd;
    logic [4:0]  ra;
    logic [4:0]  rb;       // the value that `sts` stores
    logic        b_is_reg;
    logic [31:0] b;        // second operand, immediate, byte offset or trip count: a value or a register's number
    logic [31:0] target;   // word address: of a branch or jump, or the end of a loop
  } scalar_t;

  // Where a unit instruction has operands that may be registers.
  typedef struct packed {
    logic [7:0]            scalars;      // first word of those outside of streams
    logic [NumScalars-1:0] scalars_reg;  // which of these are registers
    logic [7:0]            streams;      // first word of the streams, which come last
  } operands_t;

  function automatic opcode_e opcode_of(logic [31:0] header);
    opcode_of = opcode_e'(header[HeaderOpcodeHi:HeaderOpcodeLo]);
  endfunction

  function automatic logic [7:0] length_of(logic [31:0] header);
    length_of = header[HeaderLengthHi:HeaderLengthLo];
  endfunction

  function automatic logic is_alu(opcode_e op);
    is_alu = op inside {[OpAdd : OpRemu]};
  endfunction

  function automatic logic is_branch(opcode_e op);
    is_branch = op inside {[OpBeq : OpBgeu]};
  endfunction

  // Whether it goes to a queue.  A nop of SEQ's own does not, and does nothing.
  function automatic logic is_unit(head_words_t words);
    unique case (opcode_of(words[0]))
      OpDmaLoad, OpDmaStore, OpMxuLoad, OpMxuLatch, OpMxuMatmul, OpVpuRun, OpXluShuffle, OpXluReduce: is_unit = 1'b1;
      OpNop: is_unit = words[NopQueueWord][NopQueueHi:NopQueueLo] != QueueSeq;
      default: is_unit = 1'b0;
    endcase
  endfunction

  // Number of the queue of a unit instruction: ld, st, vpu, xlu, w0, s0, w1, ...
  function automatic logic [4:0] queue_of(head_words_t words);
    logic [4:0] code, unit;
    unit = {1'b0, words[HeaderUnitWord][HeaderUnitHi:HeaderUnitLo], 1'b0};
    unique case (opcode_of(words[0]))
      OpDmaLoad:                 code = 5'(QueueLd);
      OpDmaStore:                code = 5'(QueueSt);
      OpVpuRun:                  code = 5'(QueueVpu);
      OpXluShuffle, OpXluReduce: code = 5'(QueueXlu);
      OpMxuLoad:                 code = 5'(QueueW0) + unit;
      OpMxuLatch, OpMxuMatmul:   code = 5'(QueueS0) + unit;
      default:                   code = words[NopQueueWord][NopQueueLo+4:NopQueueLo];
    endcase
    queue_of = code - ((code < 5'(QueueW0)) ? 5'd1 : 5'd4);
  endfunction

  function automatic scalar_t to_scalar(scalar_words_t words);
    scalar_t s;
    s.op       = opcode_of(words[0]);
    s.rd       = words[AddRdWord][AddRdHi:AddRdLo];
    s.ra       = words[AddRaWord][AddRaHi:AddRaLo];
    s.rb       = words[StsRbWord][StsRbHi:StsRbLo];
    s.b_is_reg = 1'b0;
    s.b        = words[AddBWord];
    s.target   = words[BeqTargetWord];
    if (is_alu(s.op)) s.b_is_reg = words[AddBRegWord][AddBRegLo];
    else if (is_branch(s.op)) begin
      s.b_is_reg = 1'b1;
      s.b        = 32'(s.rb);
    end else if (s.op == OpLoop) begin
      s.b_is_reg = words[LoopCountRegWord][LoopCountRegLo];
      s.target   = words[LoopEndWord];
    end else if (s.op == OpJmp) s.target = words[JmpTargetWord];
    to_scalar = s;
  endfunction

  function automatic operands_t operands_of(head_words_t words);
    operands_t o;
    o.scalars     = 8'(HeaderWords);
    o.scalars_reg = '0;
    o.streams     = '1;
    unique case (opcode_of(words[0]))
      OpDmaLoad, OpDmaStore: o.streams = 8'(DmaLoadSrcWord);
      OpXluShuffle:          o.streams = 8'(XluShuffleSrcWord);
      OpXluReduce:           o.streams = 8'(XluReduceSrcWord);
      OpMxuLoad:             o.streams = 8'(MxuLoadSrcWord);
      OpMxuMatmul: begin
        o.scalars        = 8'(MxuMatmulAccWord);
        o.scalars_reg[0] = words[MxuMatmulAccRegWord][MxuMatmulAccRegLo];
        o.streams        = 8'(MxuMatmulSrcWord);
      end
      OpVpuRun: begin
        o.scalars     = 8'(VpuRunScalarsWord);
        o.scalars_reg = words[VpuRunScalarsRegWord][VpuRunScalarsRegHi:VpuRunScalarsRegLo];
        o.streams     = 8'(VpuRunStreamsWord);
      end
      default: ;
    endcase
    operands_of = o;
  endfunction

endpackage
