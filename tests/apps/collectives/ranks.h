// SPDX-License-Identifier: BSD-3-Clause
// What the programs with several ranks share: options, ranks as threads or processes, where they
// meet without the NIC, and a watchdog that says what each rank waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hostnic::collectives {

constexpr unsigned kMaxRanks = 64;

struct Options {
  unsigned ranks = 4;
  unsigned rounds = 1;  // each opens the devices and connects anew
  unsigned steps = 5;   // of each kind of collective in a round
  unsigned patience_seconds = 60;
  uint64_t max_bytes = 1 << 20;
  uint64_t seed = 1;
  std::vector<std::string> devices = {"hnic0", "hnic1"};  // ranks take turns
  bool processes = false;
  bool stay = false;  // hung: says so, and stays for a debugger
};

// Prints the usage and returns nothing where the arguments are wrong.
std::optional<Options> parse(const char* program, int argc, char** argv);

// How far a rank is, for the watchdog of the process that started it.
struct Progress {
  std::atomic<unsigned> doing{0};  // of kDoing
  std::atomic<unsigned> peer{0};
  std::atomic<uint64_t> step{0}, number{0};
  std::atomic<uint64_t> events{0}, received{0}, posted{0}, completed{0};
};

enum class Doing : unsigned {
  kStart,
  kOpen,
  kConnect,
  kRing,
  kRingChunked,
  kHalvingDoubling,
  kBroadcast,
  kBarrier,
  kBarrierToOne,
  kWaitAnnouncement,  // of the peer's buffer number `number`
  kWaitData,          // the peer's write number `number`
  kWaitNotice,        // the peer's notice number `number`
  kWaitSendQueue,     // room in it
  kWaitSent,          // completions of all that was sent to the peer
  kMeet,              // the other ranks
  kClose,
  kEnd,
};
const char* name(Doing doing);

// Where a queue pair is to be reached.
struct Address {
  uint32_t qpn;
  uint32_t psn;
  uint8_t gid[16];
};

// In memory that all ranks share, threads or not.
struct Shared {
  std::atomic<uint64_t> arrived{0}, beats{0}, checked{0};
  Progress progress[kMaxRanks];
  Address addresses[kMaxRanks][kMaxRanks];  // [of][for]
};

// One rank's view of it.
class Place {
 public:
  Place(const Options& options, Shared& shared, unsigned rank)
      : options(options), shared(shared), rank(rank) {}

  void doing(Doing what, unsigned peer = 0, uint64_t number = 0);
  // Waits for all ranks, not over the NIC.
  void meet();

  const Options& options;
  Shared& shared;
  const unsigned rank;

  Progress& progress() const { return shared.progress[rank]; }

 private:
  uint64_t meetings_ = 0;
};

// Prints why, and ends the process at once with status 1, whatever its threads do.
[[noreturn]] void die(const std::string& why);

// Runs each rank, and returns when all have. Whatever is wrong ends the process.
void run_ranks(const char* program, const Options& options, const std::function<void(Place&)>& run);

}  // namespace hostnic::collectives
