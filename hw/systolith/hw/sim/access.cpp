#include "access.h"

#include <cstdio>
#include <cstdlib>

#include "Vcore__Dpi.h"
#include "svdpi.h"
#include "verilated.h"
#include "verilated_sym_props.h"
#include "verilated_syms.h"

namespace {

constexpr uint32_t kPageBytes = 1024;  // as memory.sv has it

void enter(const std::string& name) {
  const svScope scope = svGetScopeFromName(name.c_str());
  if (!scope) {
    std::fprintf(stderr, "the core has no scope %s\n", name.c_str());
    std::exit(1);
  }
  svSetScope(scope);
}

}  // namespace

std::map<std::string, uint64_t> parameters() {
  std::map<std::string, uint64_t> found;
  for (const auto& [name, var] : *Verilated::threadContextp()->scopeFind("core")->varsp()) {
    if (!var.isParam()) continue;
    found[name] = var.vltype() == VLVT_UINT64 ? *static_cast<const QData*>(var.datap())
                                              : *static_cast<const IData*>(var.datap());
  }
  return found;
}

void clear(const std::string& scope) {
  enter(scope);
  model_clear();
}

void write(const std::string& scope, uint32_t step, uint64_t address, const std::vector<uint32_t>& words) {
  enter(scope);
  for (size_t i = 0; i < words.size(); i++) model_poke(address + step * i, words[i]);
}

std::vector<Block> read(const Read& what) {
  enter(what.scope);
  std::vector<Block> blocks;
  if (what.count) {
    blocks.push_back({what.address, {}});
    for (uint32_t i = 0; i < what.count; i++) blocks[0].words.push_back(model_peek(what.address + 4 * i));
    return blocks;
  }
  for (uint32_t page = 0;; page++) {
    const uint32_t touched = model_touched(page);
    if (touched > 1) return blocks;
    if (!touched) continue;
    const uint64_t first = uint64_t(page) * kPageBytes;
    blocks.push_back({first, {}});
    for (uint32_t i = 0; i < kPageBytes / 4; i++) blocks.back().words.push_back(model_peek(first + 4 * i));
  }
}
