// A fetch of a unit instruction, register operands replaced by the registers' values.
//
// Done as the words come, it takes a register port for each word of a fetch instead of one for each operand of the
// longest instruction.  No scalar instruction comes between its fetches and its issue, so the values are those at the
// issue.
module seq_resolve
  import systolith_pkg::*;
  import seq_pkg::*;
#(
  parameter int unsigned FetchWords = 8
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,
  input  logic                          valid_i,
  input  logic [7:0]                    at_i,         // words fetched before; 0: the first fetch
  input  logic [7:0]                    left_i,       // words of the instruction from this fetch on
  input  logic [FetchWords-1:0][31:0]   words_i,
  input  logic [NumRegisters-1:0][31:0] registers_i,
  output logic [FetchWords-1:0][31:0]   words_o       // zero beyond the instruction
);

  localparam int unsigned StreamOperands = StreamWords - StreamBaseWord;

  operands_t                 operands, operands_q;
  logic [2:0]                place, place_q;  // of the next word in its stream
  logic [StreamOperands-1:0] flags, flags_q;  // which operands of the stream are registers
  logic                      is_reg;
  logic                      is_entry;  // the word that names a buffer: a register's value, 0 of r0, is added
  logic [7:0]                at, scalar;

  always_comb begin
    operands = operands_q;
    place    = place_q;
    flags    = flags_q;
    is_reg   = 1'b0;
    is_entry = 1'b0;
    at       = '0;
    scalar   = '0;
    words_o  = '0;
    if (valid_i) begin
      if (at_i == '0) begin
        operands = operands_of(words_i[HeadWords-1:0]);
        place    = '0;
      end
      for (int unsigned i = 0; i < FetchWords; i++) begin
        at       = at_i + 8'(i);
        is_entry = 1'b0;
        scalar = at - operands.scalars;
        if (at >= operands.streams) begin
          if (place == '0) flags = words_i[i][StreamIndexRegHi:StreamBaseRegLo];
          is_entry = place == 3'(StreamBufferWord);
          is_reg = place >= 3'(StreamBaseWord) && flags[2'(place - 3'(StreamBaseWord))];
          place  = (place == 3'(StreamWords - 1)) ? '0 : place + 3'd1;
        end else is_reg = scalar < 8'(NumScalars) && operands.scalars_reg[scalar[1:0]];
        if (8'(i) < left_i) begin
          words_o[i] = registers_i[is_entry ? words_i[i][StreamEntryHi:StreamEntryLo] : words_i[i][4:0]];
          if (is_entry) words_o[i] = {16'b0, 16'(words_i[i][StreamBufferHi:StreamBufferLo] + words_o[i][15:0])};
          else if (!is_reg) words_o[i] = words_i[i];
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      operands_q <= '0;
      place_q    <= '0;
      flags_q    <= '0;
    end else if (valid_i) begin
      operands_q <= operands;
      place_q    <= place;
      flags_q    <= flags;
    end
  end

endmodule
