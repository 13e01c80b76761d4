// Puts pairs of operands (u32, from stdin) through a micro-operation, whose code is the argument, and writes the results
// to stdout.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Vtrans_tb.h"
#include "verilated.h"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    VerilatedContext context;
    Vtrans_tb top{&context};
    top.op_i = std::atoi(argv[1]);

    constexpr size_t Batch = 1 << 14;
    std::vector<uint32_t> operands(2 * Batch), results(Batch);
    while (size_t count = std::fread(operands.data(), 8, Batch, stdin)) {
        for (size_t i = 0; i < count; i++) {
            top.a_i = operands[2 * i];
            top.b_i = operands[2 * i + 1];
            top.eval();
            results[i] = top.y_o;
        }
        if (std::fwrite(results.data(), 4, count, stdout) != count) return 1;
    }
    top.final();
    return 0;
}
