// Types that the units of the core share: instructions as SEQ issues them, and the streams in them.
package core_pkg;

  // Limits of the instruction set, the same for every chip.
  parameter int unsigned Tokens = 256;
  parameter int unsigned TokensPerInstr = systolith_pkg::MaxWaits;  // waits, and as many signals
  parameter logic [7:0] NoToken = 8'(systolith_pkg::NoToken);

  // Words of the longest instruction of each kind of unit.
  parameter int unsigned DmaWords = 15;
  parameter int unsigned MxuWords = 11;
  parameter int unsigned XluWords = 16;
  parameter int unsigned VpuWords = 14 + systolith_pkg::MaxStreams * systolith_pkg::StreamWords;

  parameter int unsigned HbmAddressBits = 40;

  // An instruction as its queue sees it; its words go with it.
  typedef struct packed {
    logic [TokensPerInstr-1:0][7:0] waits;
    logic [TokensPerInstr-1:0][7:0] signals;
    logic                           fence;
    logic                           idle;    // nop: nothing for the unit to do
    logic                           alone;   // mxu.latch: one cycle, and it retires by itself
    logic [31:0]                    number;  // in the order of issue, from 0; for traces
  } issue_t;

  // A stream whose registers are resolved.
  typedef struct packed {
    systolith_pkg::space_e space;
    logic [19:0]           pattern;
    logic [15:0]           buffer;
    logic [31:0]           base;
    logic [1:0][31:0]      bias;
    logic [31:0]           index;
  } stream_t;

  // The stream in six words of an instruction, registers resolved.
  function automatic stream_t to_stream(logic [systolith_pkg::StreamWords-1:0][31:0] words);
    stream_t s;
    s.space   = systolith_pkg::space_e'(words[0][systolith_pkg::StreamSpaceHi:systolith_pkg::StreamSpaceLo]);
    s.pattern = words[0][systolith_pkg::StreamPatternHi:systolith_pkg::StreamPatternLo];
    s.buffer  = words[1][systolith_pkg::StreamBufferHi:systolith_pkg::StreamBufferLo];
    s.base    = words[systolith_pkg::StreamBaseWord];
    s.bias[0] = words[systolith_pkg::StreamBias0Word];
    s.bias[1] = words[systolith_pkg::StreamBias1Word];
    s.index   = words[systolith_pkg::StreamIndexWord];
    to_stream = s;
  endfunction

endpackage
