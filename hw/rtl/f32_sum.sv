// Sum of an unpacked term and an f32, rounded once to the nearest f32, ties to even; subnormals in and out.
//
// The term is mant * 2^exp with mant below 2^24.  Either mant has bit 23 set, or exp is -149 or more (an f32 subnormal), or
// mant is 0.  A NaN result is the canonical one.
module f32_sum
  import mxu_pkg::CanonicalNan;
(
  input  logic               sign_i,
  input  logic signed [11:0] exp_i,   // of the last bit of mant_i
  input  logic [23:0]        mant_i,
  input  logic               inf_i,
  input  logic               nan_i,
  input  logic [31:0]        c_i,
  output logic [31:0]        sum_o
);

  // Positions in the window in which the two are added.  The term stands at Low.  The addend's last bit is at Low + the
  // difference of the exponents, but not above High: from there on the term lies wholly below the addend's rounding
  // position and only its being there matters.  Below 0 the addend's bits merge into bit 0 (sticky); the term then has
  // bit 23 set, so that bit 0 is below the rounding position.
  localparam logic signed [11:0] Low = 12'sd3;
  localparam logic signed [11:0] High = 12'sd29;
  localparam int unsigned Width = 54;  // up to High + 24, and one bit for the carry

  logic              c_sign, c_inf, c_nan;
  logic signed [11:0] c_exp;
  logic [23:0]       c_mant;

  assign c_sign = c_i[31];
  assign c_inf  = c_i[30:0] == 31'h7F80_0000;
  assign c_nan  = c_i[30:0] > 31'h7F80_0000;
  assign c_mant = {c_i[30:23] != '0, c_i[22:0]};
  assign c_exp  = $signed({4'b0, (c_i[30:23] == '0) ? 8'd1 : c_i[30:23]}) - 12'sd150;

  // Alignment.
  logic signed [11:0] difference, distance, window_exp;
  logic               above;
  logic [Width-1:0]   p, c, c_wide;
  logic [11:0]        right;

  assign difference = c_exp - exp_i;
  assign above      = difference > High - Low || mant_i == '0;
  assign distance   = above ? High : difference + Low;
  assign window_exp = above ? c_exp - High : exp_i - Low;
  assign p          = Width'(mant_i) << Low;
  assign c_wide     = Width'(c_mant);
  assign right      = -distance;

  always_comb begin
    if (distance >= 12'sd0) begin
      c = c_wide << distance[5:0];
    end else if (right < 12'd24) begin
      c = c_wide >> right[4:0];
      c[0] |= |(c_mant & ~(24'hFF_FFFF << right[4:0]));
    end else begin
      c = Width'(c_mant != '0);
    end
  end

  // Addition of signed magnitudes.
  logic             subtract, swap, sign, is_zero;
  logic [Width-1:0] magnitude;

  assign subtract  = sign_i ^ c_sign;
  assign swap      = subtract && p < c;
  assign magnitude = !subtract ? p + c : swap ? c - p : p - c;
  assign is_zero   = magnitude == '0;
  assign sign      = is_zero ? (sign_i & c_sign) : (swap ? c_sign : sign_i);

  // Normalisation: the first one goes to the top, but no further than the exponent allows (subnormals).
  logic [5:0]         zeros, shift;
  logic signed [11:0] room, exponent;
  logic [Width-1:0]   top;

  always_comb begin
    logic [63:0] rest;
    rest  = {magnitude, {(64 - Width) {1'b0}}};
    zeros = '0;
    for (int unsigned i = 0; i < 6; i++) begin
      if (rest >> (64 - (32 >> i)) == '0) begin
        zeros |= 6'(32 >> i);
        rest <<= 32 >> i;
      end
    end
  end

  assign room     = window_exp + 12'sd53 + 12'sd126;
  assign shift    = ($signed({6'b0, zeros}) > room) ? room[5:0] : zeros;
  assign top      = magnitude << shift;
  assign exponent = room - $signed({6'b0, shift}) + 12'sd1;  // biased, of a normal result

  // Rounding.  The carry out of the fraction goes into the exponent, also from the largest subnormal and to infinity.
  logic        round_up;
  logic [31:0] packed_up;

  assign round_up  = top[Width-25] && (top[Width-24] || top[Width-26:0] != '0);
  assign packed_up = {1'b0, top[Width-1] ? exponent[7:0] : 8'd0, top[Width-2-:23]} + 32'(round_up);

  always_comb begin
    if (nan_i || c_nan || (inf_i && c_inf && subtract)) begin
      sum_o = CanonicalNan;
    end else if (inf_i || c_inf) begin
      sum_o = {inf_i ? sign_i : c_sign, 31'h7F80_0000};
    end else if (top[Width-1] && exponent >= 12'sd255) begin
      sum_o = {sign, 31'h7F80_0000};
    end else begin
      sum_o = {sign, packed_up[30:0]};
    end
  end

endmodule
