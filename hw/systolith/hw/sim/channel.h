// Jobs in, results out: little-endian numbers, texts and words on the former standard streams.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

class Channel {
 public:
  Channel() : in_(stdin), out_(fdopen(dup(STDOUT_FILENO), "wb")) {}

  bool more() {
    const int c = std::fgetc(in_);
    if (c == EOF) return false;
    std::ungetc(c, in_);
    return true;
  }

  template <typename T>
  T get() {
    T value;
    take(&value, sizeof value);
    return value;
  }

  std::string get_text() {
    std::string text(get<uint32_t>(), '\0');
    take(text.data(), text.size());
    return text;
  }

  std::vector<uint32_t> get_words() {
    std::vector<uint32_t> words(get<uint32_t>());
    take(words.data(), 4 * words.size());
    return words;
  }

  template <typename T>
  void put(T value) {
    put_bytes(&value, sizeof value);
  }

  void put_text(const std::string& text) {
    put<uint32_t>(text.size());
    put_bytes(text.data(), text.size());
  }

  void put_words(const std::vector<uint32_t>& words) {
    put<uint32_t>(words.size());
    put_bytes(words.data(), 4 * words.size());
  }

  void put_bytes(const void* data, size_t size) {
    if (std::fwrite(data, 1, size, out_) != size) give_up("cannot write a result");
  }

  void flush() { std::fflush(out_); }

 private:
  void take(void* data, size_t size) {
    if (std::fread(data, 1, size, in_) != size) give_up("a job ends early");
  }

  [[noreturn]] static void give_up(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
  }

  std::FILE* in_;
  std::FILE* out_;
};
