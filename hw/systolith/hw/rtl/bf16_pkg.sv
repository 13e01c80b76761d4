// Arithmetic of the matrix unit: bf16 operands, f32 sums.
package bf16_pkg;

  // Part 0, 1 or 2 of the split: bf16(x), bf16(x - part 0), bf16(x - part 0 - part 1).
  function automatic logic [15:0] part(logic [31:0] x, logic [1:0] number);
    logic [31:0] rest;
    rest = x;
    if (number >= 2'd1) rest = f32_pkg::sub(rest, {formats_pkg::narrow_bf16(rest), 16'b0});
    if (number >= 2'd2) rest = f32_pkg::sub(rest, {formats_pkg::narrow_bf16(rest), 16'b0});
    part = formats_pkg::narrow_bf16(rest);
  endfunction

  // a x b + c where one of them is an infinity or a NaN.
  function automatic logic [31:0] special_fma(logic [15:0] a, logic [15:0] b, logic [31:0] c);
    logic [31:0] x, y, product;
    x = {a, 16'b0};
    y = {b, 16'b0};
    product = {a[15] ^ b[15], f32_pkg::Infinity};
    if (f32_pkg::is_nan(x) || f32_pkg::is_nan(y) || f32_pkg::is_nan(c)) return f32_pkg::Nan;
    if (!f32_pkg::is_inf(x) && !f32_pkg::is_inf(y)) return c;
    if (f32_pkg::is_zero(x) || f32_pkg::is_zero(y)) return f32_pkg::Nan;
    special_fma = (f32_pkg::is_inf(c) && c != product) ? f32_pkg::Nan : product;
  endfunction

  // a x b + c: the product is exact, the sum is rounded once, to nearest even.  Subnormals are kept, a NaN result is the
  // canonical one.
  function automatic logic [31:0] fma(logic [15:0] a, logic [15:0] b, logic [31:0] c);
    /* verilator no_inline_task */
    logic                       sign, c_larger;
    logic [15:0]                product;
    f32_pkg::normal_t           x, y, term, addend, larger, smaller;
    f32_pkg::wide_t             shifted;
    logic [f32_pkg::WideBits:0] total;
    if (&a[14:7] || &b[14:7] || &c[30:23]) return special_fma(a, b, c);
    sign = a[15] ^ b[15];
    if (a[14:0] == '0 || b[14:0] == '0) return f32_pkg::is_zero(c) ? {sign && c[31], 31'b0} : c;
    x = f32_pkg::normalised({a, 16'b0});
    y = f32_pkg::normalised({b, 16'b0});
    product = {8'b0, x.sig[23:16]} * {8'b0, y.sig[23:16]};
    term.exp = x.exp + y.exp - 10'sd127 + $signed({9'b0, product[15]});
    term.sig = product[15] ? {product, 8'b0} : {product[14:0], 9'b0};
    if (f32_pkg::is_zero(c)) return f32_pkg::rounded(sign, term.exp, {term.sig, 3'b0});
    addend = f32_pkg::normalised(c);
    c_larger = addend.exp > term.exp || (addend.exp == term.exp && addend.sig > term.sig);
    larger   = c_larger ? addend : term;
    smaller  = c_larger ? term : addend;
    shifted  = f32_pkg::shift_right({smaller.sig, 3'b0}, larger.exp - smaller.exp);
    total    = {1'b0, larger.sig, 3'b0} + ((sign == c[31]) ? {1'b0, shifted} : -{1'b0, shifted});
    if (total == '0) return '0;
    if (c_larger) sign = c[31];
    if (total[27]) fma = f32_pkg::rounded(sign, larger.exp + 10'sd1, {total[27:2], |total[1:0]});
    else fma = f32_pkg::renormalised(sign, larger.exp, total[26:0]);
  endfunction

endpackage
