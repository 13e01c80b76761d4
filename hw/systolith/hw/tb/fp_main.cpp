// Puts triples of operands (u32, from stdin) through the function that the two arguments choose, and writes the results
// to stdout.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Vfp_tb.h"
#include "verilated.h"

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    VerilatedContext context;
    Vfp_tb top{&context};
    top.what_i = std::atoi(argv[1]);
    top.op_i = std::atoi(argv[2]);

    constexpr size_t Batch = 1 << 14;
    std::vector<uint32_t> operands(3 * Batch), results(Batch);
    while (size_t count = std::fread(operands.data(), 12, Batch, stdin)) {
        for (size_t i = 0; i < count; i++) {
            top.a_i = operands[3 * i];
            top.b_i = operands[3 * i + 1];
            top.c_i = operands[3 * i + 2];
            top.eval();
            results[i] = top.y_o;
        }
        if (std::fwrite(results.data(), 4, count, stdout) != count) return 1;
    }
    top.final();
    return 0;
}
