// SPDX-License-Identifier: BSD-3-Clause
// What all parts of hostnic-stress share: its options, what it counts, and how it gives up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace hostnic::stress {

struct Options {
  unsigned threads = 64;
  unsigned qps = 1000;  // two make a connection
  unsigned seconds = 600;
  unsigned contexts = 4;           // of each NIC
  unsigned patience_seconds = 60;  // with work outstanding and nothing done: hung
  uint64_t seed = 1;
  std::string near = "hnic0", far = "hnic1";
  // What goes on, comma-separated: mixed, open, register, cancel, syscalls.
  std::string kinds = "mixed";
  unsigned kind_threads = 4;  // of each kind but the mixed one
  bool open_once = false;     // the process that kind `open` starts
  bool help = false;

  bool has_kind(const std::string& kind) const {
    return ("," + kinds + ",").find("," + kind + ",") != std::string::npos;
  }
};

// Sums of all threads, for the line at the end.
struct Tally {
  std::atomic<uint64_t> operations{0}, bytes{0}, messages{0}, errors_expected{0}, flushed{0};
  std::atomic<uint64_t> qps{0}, mrs{0}, cqs{0}, pds{0}, srqs{0}, windows{0}, ahs{0};
  std::atomic<uint64_t> calls_refused{0}, cq_events{0}, async_events{0};
};
Tally& tally();

inline void count(std::atomic<uint64_t>& what, uint64_t by = 1) {
  what.fetch_add(by, std::memory_order_relaxed);
}

inline uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Prints why and ends the process at once, whatever other threads do. The first caller prints.
[[noreturn]] void die(const std::string& why);

// A verb that must succeed: dies with its name and errno's text otherwise.
void must(int error, const char* what);
[[noreturn]] void die_of_errno(const char* what);
template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) die_of_errno(what);
  return made;
}

}  // namespace hostnic::stress
