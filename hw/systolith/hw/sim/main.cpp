// Runs images on the Verilated core: one job after another from the standard input, a result each on the standard output.
//
// Numbers are little-endian; `text` is a u32 length and bytes.
//   at the start, out   u32 n, n x (text name, u64 value)                           parameters of the core
//   job, in             u64 most cycles, text wave file (empty: none), u64 first, u64 last cycle of the wave
//                       u32 n, n x text scope                                       memories to clear
//                       u32 n, n x (text scope, u32 step, u64 first, u32 k, k x u32)   words to write, at every step
//                       u32 n, n x (text scope, u64 first, u32 k)                   words to read; k = 0: touched pages
//   result, out         u32 status, u64 cycles, f64 seconds, u32 trap code + 1 (0: none), text message
//                       u32 n, n x (u8 kind, u8 queue, u16 0, u32 number, u64 cycle)
//                       for each read: u32 n, n x (u64 first, u32 k, k x u32)
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "Vcore.h"
#include "Vcore__Dpi.h"
#include "svdpi.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE_VCD
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

#include "access.h"
#include "channel.h"

namespace {

enum Status : uint32_t { kDone = 0, kLimit = 1, kFailed = 2 };

struct Event {
  uint8_t kind;
  uint8_t queue;
  uint16_t zero;
  uint32_t number;
  uint64_t cycle;
};
static_assert(sizeof(Event) == 16, "events are written as they are");

// Written by the functions below, which the core calls.
std::vector<Event> events;
uint64_t cycle;
bool failed;

}  // namespace

void systolith_event(int kind, int queue, int number) {
  events.push_back({uint8_t(kind), uint8_t(queue), 0, uint32_t(number), cycle});
}

// A failed assertion ends the job, not the process.
void vl_stop(const char*, int, const char*) VL_MT_UNSAFE { failed = true; }

namespace {

// The core and its clock; its output goes to a file, whose text is the message of a job that failed.
class Simulation {
 public:
  // The command line may have plusargs of the sources.
  Simulation(int argc, char** argv) : log_(std::tmpfile()), argc_(argc), argv_(argv) {
    dup2(fileno(log_), STDOUT_FILENO);
    restart();
  }

  ~Simulation() { core_->final(); }

  void reset() {
    failed = false;
    events.clear();
    core_->go_i = 0;
    core_->rst_ni = 0;
    for (int i = 0; i < 2; i++) edge();
    core_->rst_ni = 1;
    core_->go_i = 1;
    edge();
    cycle = 0;
  }

  Status run(uint64_t limit) {
    for (;;) {
      core_->clk_i = 0;
      eval();
      if (failed) return kFailed;
      if (cycle == limit) return kLimit;
      const bool last = core_->done_o;  // retirements of this cycle show at its end
      core_->clk_i = 1;
      eval();
      if (failed) return kFailed;
      if (last) return kDone;
      cycle++;
    }
  }

  uint32_t trap() const { return core_->trapped_o ? core_->trap_code_o + 1u : 0u; }

  // The text printed since the last call.
  std::string message() {
    std::fflush(stdout);
    std::string text;
    std::fseek(log_, read_, SEEK_SET);
    for (int c; (c = std::fgetc(log_)) != EOF;) text.push_back(char(c));
    read_ = std::ftell(log_);
    return text;
  }

  // After a failure nothing is certain about the state.
  void restart() {
    core_.reset();
    context_ = std::make_unique<VerilatedContext>();
    Verilated::threadContextp(context_.get());
    context_->commandArgs(argc_, argv_);
    context_->traceEverOn(true);
    core_ = std::make_unique<Vcore>(context_.get(), "");
    reset();
  }

#if VM_TRACE
  void wave(const std::string& path, uint64_t first, uint64_t last) {
    first_ = first;
    last_ = last;
    trace_ = std::make_unique<Trace>();
    core_->trace(trace_.get(), 99);
    trace_->open(path.c_str());
  }

  // A model takes one trace in its life.
  void end_wave() {
    if (!trace_) return;
    trace_->close();
    trace_.reset();
    restart();
  }
#else
  void wave(const std::string&, uint64_t, uint64_t) {}
  void end_wave() {}
#endif

 private:
  void edge() {
    core_->clk_i = 0;
    core_->eval();
    core_->clk_i = 1;
    core_->eval();
  }

  void eval() {
    core_->eval();
#if VM_TRACE
    if (trace_ && first_ <= cycle && cycle <= last_) trace_->dump(2 * cycle + (core_->clk_i ? 1 : 0));
#endif
  }

  std::FILE* log_;
  int argc_;
  char** argv_;
  long read_ = 0;
  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Vcore> core_;
#if VM_TRACE
  std::unique_ptr<Trace> trace_;
  uint64_t first_ = 0, last_ = 0;
#endif
};

void hello(Channel& channel) {
  const std::map<std::string, uint64_t> known = parameters();
  channel.put<uint32_t>(known.size());
  for (const auto& [name, value] : known) {
    channel.put_text(name);
    channel.put<uint64_t>(value);
  }
  channel.flush();
}

void serve(Channel& channel, Simulation& simulation) {
  const uint64_t limit = channel.get<uint64_t>();
  const std::string wave = channel.get_text();
  const uint64_t first = channel.get<uint64_t>(), last = channel.get<uint64_t>();
  if (!wave.empty()) simulation.wave(wave, first, last);
  for (uint32_t n = channel.get<uint32_t>(); n; n--) clear(channel.get_text());
  for (uint32_t n = channel.get<uint32_t>(); n; n--) {
    const std::string scope = channel.get_text();
    const uint32_t step = channel.get<uint32_t>();
    const uint64_t address = channel.get<uint64_t>();
    write(scope, step, address, channel.get_words());
  }
  std::vector<Read> reads;
  for (uint32_t n = channel.get<uint32_t>(); n; n--) {
    const std::string scope = channel.get_text();
    const uint64_t address = channel.get<uint64_t>();
    reads.push_back({scope, address, channel.get<uint32_t>()});
  }

  simulation.reset();
  const auto before = std::chrono::steady_clock::now();
  const Status status = simulation.run(limit);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
  channel.put<uint32_t>(status);
  channel.put<uint64_t>(cycle);
  channel.put<double>(seconds.count());
  channel.put<uint32_t>(simulation.trap());
  channel.put_text(simulation.message());
  channel.put<uint32_t>(events.size());
  channel.put_bytes(events.data(), events.size() * sizeof(Event));
  for (const Read& r : reads) {
    const std::vector<Block> blocks = read(r);
    channel.put<uint32_t>(blocks.size());
    for (const Block& b : blocks) {
      channel.put<uint64_t>(b.address);
      channel.put_words(b.words);
    }
  }
  channel.flush();
  simulation.end_wave();
  if (status == kFailed) simulation.restart();
}

}  // namespace

int main(int argc, char** argv) {
  Channel channel;  // takes over the standard output before anything can print to it
  Simulation simulation(argc, argv);
  if (failed) {
    std::fputs(simulation.message().c_str(), stderr);
    return 1;
  }
  hello(channel);
  while (channel.more()) serve(channel, simulation);
  return 0;
}
