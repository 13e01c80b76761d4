// Parameters of the core; its memories and tables, by the name of their scope.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct Read {
  std::string scope;
  uint64_t address;
  uint32_t count;  // words; 0: the pages that were written
};

struct Block {
  uint64_t address;
  std::vector<uint32_t> words;
};

std::map<std::string, uint64_t> parameters();
void clear(const std::string& scope);
void write(const std::string& scope, uint32_t step, uint64_t address, const std::vector<uint32_t>& words);
std::vector<Block> read(const Read& what);
