// Elements in memory to 32-bit images and back.  An image is f32 for floats, s32 or u32 for integers and pred; an
// element is in the low bits of its word.
package formats_pkg;
  import systolith_pkg::*;

  // A float format of 16 or 8 bits, other than bf16.
  typedef struct packed {
    logic [4:0]  shorter;  // bits by which its fraction is shorter than that of an f32
    logic [7:0]  rebias;   // 127 - its bias
    logic [14:0] largest;  // code of its largest number; the next one is the infinity or NaN beyond
    logic        is_wide;  // 16 bits
    logic        is_ieee;  // infinities, and NaNs with payloads
    logic        is_fnuz;  // no -0: its code is the one NaN
  } small_t;

  function automatic small_t small_format(dtype_e dtype);
    unique case (dtype)
      DtypeF16:        small_format = '{5'd13, 8'd112, 15'h7BFF, 1'b1, 1'b1, 1'b0};
      DtypeF8e5m2:     small_format = '{5'd21, 8'd112, 15'h7B, 1'b0, 1'b1, 1'b0};
      DtypeF8e5m2fnuz: small_format = '{5'd21, 8'd111, 15'h7F, 1'b0, 1'b0, 1'b1};
      DtypeF8e4m3fn:   small_format = '{5'd20, 8'd120, 15'h7E, 1'b0, 1'b0, 1'b0};
      default:         small_format = '{5'd20, 8'd119, 15'h7F, 1'b0, 1'b0, 1'b1};  // f8e4m3fnuz
    endcase
  endfunction

  // All numbers of the small formats are normal in f32: the fraction of a subnormal one is shifted until its first one
  // is the hidden one.
  function automatic logic [31:0] widen_small(small_t format, logic [15:0] raw);
    /* verilator no_inline_task */
    logic        sign;
    logic [14:0] magnitude;
    logic [7:0]  exponent;
    logic [22:0] fraction;
    logic [3:0]  zeros;
    sign = format.is_wide ? raw[15] : raw[7];
    magnitude = format.is_wide ? raw[14:0] : {8'b0, raw[6:0]};
    {exponent, fraction} = {16'b0, magnitude} << format.shorter;
    if (format.is_fnuz && sign && magnitude == '0) return f32_pkg::Nan;
    if (magnitude > format.largest) return {sign, format.is_ieee ? {8'hFF, fraction} : f32_pkg::Nan[30:0]};
    if (magnitude == '0) return {sign, 31'b0};
    if (exponent != '0) return {sign, exponent + format.rebias, fraction};
    zeros = '0;
    for (int unsigned i = 0; i < 10; i++) begin  // as many bits as the longest fraction
      if (fraction[13+i]) zeros = 4'(9 - i);
    end
    widen_small = {sign, format.rebias - 8'(zeros), fraction << zeros << 1};
  endfunction

  // The nearest number, ties to even.
  function automatic logic [15:0] narrow_small(small_t format, logic [31:0] image);
    /* verilator no_inline_task */
    logic        sign;
    logic [7:0]  exponent, right;
    logic [23:0] significand, shifted;
    logic [31:0] placed, magnitude, payload;
    {sign, exponent} = image[31:23];
    payload = {9'b0, image[22:0]} >> format.shorter;
    if (f32_pkg::is_nan(image)) begin
      // The top bits of the payload stay; if they are all 0, the first one is set.
      if (payload == '0) payload = {9'b0, 1'b1, 22'b0} >> format.shorter;
      magnitude = 32'(format.largest) + 32'd1 + (format.is_ieee ? payload : 32'b0);
      sign &= !format.is_fnuz;
    end else begin
      significand = {exponent != '0, image[22:0]};
      right = format.rebias + 8'd1 - exponent;
      shifted = significand >> right;
      if (exponent > format.rebias) placed = {1'b0, exponent - format.rebias, image[22:0]};
      else placed = {8'b0, shifted[23:1], shifted[0] || shifted << right != significand};  // subnormal
      magnitude = (placed + (32'd1 << (format.shorter - 5'd1)) - 32'd1 + 32'(placed[format.shorter])) >> format.shorter;
      if (magnitude > 32'(format.largest)) magnitude = 32'(format.largest) + 32'd1;
      if (format.is_fnuz && (magnitude == '0 || magnitude > 32'(format.largest))) sign = 1'b0;
    end
    narrow_small = format.is_wide ? {sign, magnitude[14:0]} : {8'b0, sign | magnitude[7], magnitude[6:0]};
  endfunction

  // The nearest bf16, ties to even; NaNs as above.
  function automatic logic [15:0] narrow_bf16(logic [31:0] image);
    if (f32_pkg::is_nan(image)) narrow_bf16 = {image[31:23], image[22:16] == '0 ? 7'h40 : image[22:16]};
    else narrow_bf16 = image[31:16] + 16'(image[15] && (image[16] || image[14:0] != '0));
  endfunction

  // The image of an element; bits above it in `raw` are ignored.
  function automatic logic [31:0] widen(dtype_e dtype, logic [31:0] raw);
    /* verilator no_inline_task */
    unique case (dtype)
      DtypePred: widen = {31'b0, |raw[7:0]};
      DtypeS4:   widen = {{28{raw[3]}}, raw[3:0]};
      DtypeU4:   widen = {28'b0, raw[3:0]};
      DtypeS8:   widen = {{24{raw[7]}}, raw[7:0]};
      DtypeU8:   widen = {24'b0, raw[7:0]};
      DtypeS16:  widen = {{16{raw[15]}}, raw[15:0]};
      DtypeU16:  widen = {16'b0, raw[15:0]};
      DtypeBf16: widen = {raw[15:0], 16'b0};
      DtypeF16, DtypeF8e5m2, DtypeF8e5m2fnuz, DtypeF8e4m3fn, DtypeF8e4m3fnuz:
                 widen = widen_small(small_format(dtype), raw[15:0]);
      default:   widen = raw;
    endcase
  endfunction

  // The element that an image becomes, zeros above it: floats rounded, the low bits of integers (those of s4 extended
  // in its byte), 1 for whatever is not 0 as pred.
  function automatic logic [31:0] narrow(dtype_e dtype, logic [31:0] image);
    /* verilator no_inline_task */
    unique case (dtype)
      DtypePred:            narrow = {31'b0, |image};
      DtypeS4:              narrow = {24'b0, {4{image[3]}}, image[3:0]};
      DtypeU4:              narrow = {28'b0, image[3:0]};
      DtypeS8, DtypeU8:     narrow = {24'b0, image[7:0]};
      DtypeS16, DtypeU16:   narrow = {16'b0, image[15:0]};
      DtypeBf16:            narrow = {16'b0, narrow_bf16(image)};
      DtypeF16, DtypeF8e5m2, DtypeF8e5m2fnuz, DtypeF8e4m3fn, DtypeF8e4m3fnuz:
                            narrow = {16'b0, narrow_small(small_format(dtype), image)};
      default:              narrow = image;
    endcase
  endfunction

  function automatic logic [31:0] round_to(dtype_e dtype, logic [31:0] image);
    round_to = widen(dtype, narrow(dtype, image));
  endfunction

endpackage
