// An element as it lies in memory to its 32-bit image: f32 for floats, s32 for integers.
module widen
  import systolith_pkg::*;
  import mxu_pkg::CanonicalNan;
(
  input  dtype_e      dtype_i,
  input  logic [31:0] raw_i,   // the element in the low bits; what is above is ignored
  output logic [31:0] image_o
);

  // Small floats: sign, exponent and fraction, left-aligned to the widths of the widest.
  typedef struct packed {
    logic       sign;
    logic [4:0] exponent;
    logic [9:0] fraction;
    logic [7:0] rebias;    // 127 - bias
    logic       is_inf;
    logic       is_nan;
  } small_t;

  small_t x;

  always_comb begin
    x = '0;
    unique case (dtype_i)
      DtypeF16: begin
        {x.sign, x.exponent, x.fraction} = raw_i[15:0];
        x.rebias = 8'd112;
        x.is_inf = raw_i[14:0] == 15'h7C00;
        x.is_nan = raw_i[14:0] > 15'h7C00;
      end
      DtypeF8e5m2: begin
        {x.sign, x.exponent, x.fraction} = {raw_i[7:0], 8'b0};
        x.rebias = 8'd112;
        x.is_inf = raw_i[6:0] == 7'h7C;
        x.is_nan = raw_i[6:0] > 7'h7C;
      end
      DtypeF8e5m2fnuz: begin
        {x.sign, x.exponent, x.fraction} = {raw_i[7:0], 8'b0};
        x.rebias = 8'd111;
        x.is_nan = raw_i[7:0] == 8'h80;
      end
      DtypeF8e4m3fn: begin
        {x.sign, x.exponent, x.fraction} = {raw_i[7], 1'b0, raw_i[6:0], 7'b0};
        x.rebias = 8'd120;
        x.is_nan = raw_i[6:0] == 7'h7F;
      end
      DtypeF8e4m3fnuz: begin
        {x.sign, x.exponent, x.fraction} = {raw_i[7], 1'b0, raw_i[6:0], 7'b0};
        x.rebias = 8'd119;
        x.is_nan = raw_i[7:0] == 8'h80;
      end
      default: ;
    endcase
  end

  // All values of the small formats are normal in f32: subnormal ones are shifted until their first one is hidden.
  logic [9:0]  fraction;
  logic [7:0]  exponent;
  logic [31:0] image;

  always_comb begin
    logic [3:0] zeros;
    zeros = '0;
    for (int unsigned i = 0; i < 10; i++) begin
      if (x.fraction[i]) zeros = 4'(9 - i);
    end
    if (x.exponent != '0) begin
      exponent = x.rebias + {3'b0, x.exponent};
      fraction = x.fraction;
    end else begin
      exponent = x.rebias - {4'b0, zeros};
      fraction = x.fraction << (zeros + 4'd1);
    end
    if (x.is_nan) image = CanonicalNan;
    else if (x.is_inf) image = {x.sign, 31'h7F80_0000};
    else if (x.exponent == '0 && x.fraction == '0) image = {x.sign, 31'b0};
    else image = {x.sign, exponent, fraction, 13'b0};
  end

  always_comb begin
    unique case (dtype_i)
      DtypePred:    image_o = {31'b0, |raw_i[7:0]};
      DtypeS4:      image_o = {{28{raw_i[3]}}, raw_i[3:0]};
      DtypeU4:      image_o = {28'b0, raw_i[3:0]};
      DtypeS8:      image_o = {{24{raw_i[7]}}, raw_i[7:0]};
      DtypeU8:      image_o = {24'b0, raw_i[7:0]};
      DtypeBf16:    image_o = {raw_i[15:0], 16'b0};
      DtypeF32:     image_o = raw_i;
      default: image_o = image;
    endcase
  end

endmodule
