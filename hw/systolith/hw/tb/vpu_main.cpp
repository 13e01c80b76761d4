// Plays commands, words of 32 bits from stdin, to vpu_tb; results are words on stdout.
//
//   0 table address n words...    tables: 0 u_kernels, 1 u_control, 2 u_constants
//   1 memory address n words...   memories: 0 VMEM, then accumulators
//   2 n words...                  the instruction
//   3 stream n words...           the stream's entry of the pattern table
//   4 limit                       starts the instruction in the cycle in which the one before is done: cycles until done,
//                                 or the limit
//   5 memory address n            n words of the memory
//   6 n                           n cycles in which nothing starts: in how many of them it is done
#include <cstdint>
#include <cstdio>
#include <vector>

#include "Vvpu_tb.h"
#include "Vvpu_tb__Dpi.h"
#include "svdpi.h"
#include "verilated.h"

namespace {

const char* const Tables[] = {"TOP.vpu_tb.u_vpu.u_kernels", "TOP.vpu_tb.u_vpu.u_control", "TOP.vpu_tb.u_vpu.u_constants"};

bool more(uint32_t& word) { return std::fread(&word, 4, 1, stdin) == 1; }

uint32_t next() {
    uint32_t word = 0;
    more(word);
    return word;
}

void put(uint32_t word) { std::fwrite(&word, 4, 1, stdout); }

void scope(const char* name) { svSetScope(svGetScopeFromName(name)); }

void edge(Vvpu_tb& top) {
    top.clk_i = 1;
    top.eval();
    top.clk_i = 0;
    top.eval();
}

uint32_t run(Vvpu_tb& top, uint32_t limit) {
    scope("TOP.vpu_tb");
    tb_start();
    top.eval();
    for (uint32_t cycles = 1; cycles < limit; cycles++) {
        edge(top);
        if (top.done_o) return cycles;
    }
    return limit;
}

uint32_t wait(Vvpu_tb& top, uint32_t cycles) {
    uint32_t done = 0;
    for (; cycles; cycles--) {
        edge(top);
        done += top.done_o;
    }
    return done;
}

}  // namespace

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    context.randReset(2);
    Vvpu_tb top{&context};
    context.assertOn(false);  // before the reset, anything may be anywhere
    top.rst_ni = 0;
    top.eval();
    edge(top);
    top.rst_ni = 1;
    context.assertOn(true);
    for (uint32_t code; more(code);) {
        if (code == 0) {
            scope(Tables[next()]);
            uint32_t address = next();
            for (uint32_t n = next(); n; n--) model_poke(address++, next());
        } else if (code == 1) {
            scope("TOP.vpu_tb");
            const uint32_t memory = next();
            uint32_t address = next();
            for (uint32_t n = next(); n; n--, address += 4) tb_poke(memory, address, next());
        } else if (code == 2) {
            scope("TOP.vpu_tb");
            const uint32_t n = next();
            for (uint32_t i = 0; i < n; i++) tb_word(i, next());
        } else if (code == 3) {
            scope("TOP.vpu_tb");
            const uint32_t stream = next(), n = next();
            for (uint32_t i = 0; i < n; i++) tb_entry(stream, i, next());
        } else if (code == 4) {
            put(run(top, next()));
        } else if (code == 5) {
            scope("TOP.vpu_tb");
            const uint32_t memory = next();
            uint32_t address = next();
            for (uint32_t n = next(); n; n--, address += 4) put(tb_peek(memory, address));
        } else {
            put(wait(top, next()));
        }
    }
    top.final();
    return 0;
}
