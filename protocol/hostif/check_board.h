// SPDX-License-Identifier: BSD-3-Clause
// The findings of `hostnic check`, in memory that it shares with the programs that it starts: they
// add records, it resolves places to lines of source and tells them.
//
// Programs may write anything: whoever reads takes texts as far as their room goes, and numbers as
// numbers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace hostnic {

inline constexpr uint32_t kCheckMagic = 0x4b434843;  // "CHCK"
inline constexpr uint32_t kCheckVersion = 1;
// The variable that names the file of the board to programs.
inline constexpr const char* kCheckBoardVariable = "HOSTNIC_CHECK_BOARD";

enum class CheckKind : uint32_t {
  kChangedBuffer,
  kUnmappedBuffer,
  kRegionInUse,
  kStaleKey,
  kUnknownKey,
  kOtherDomain,
  kOutsideRegion,
  kNoLocalWrite,
  kQueueStuck,
  kSmallCq,
  kNoReadDepth,
  kReadDepth,
  kNoReceive,
  kUnacknowledgedEvent,
  kInUse,
  kClosedEarly,
  kLeak,
  kMisalignedAtomic,
  kShortAtomic,
  kNoGrhRoom,
  kFork,
  kBuilderThread,
  kBuilderNotStarted,
  kBuilderRestarted,
  kQpState,
  kInlineTooLong,
  kTooManySges,
  kIgnoredError,
  kWriteRace,
  kCount
};

struct CheckKindInfo {
  const char* name;
  bool is_strict;  // told with --strict only
  const char* meaning;
};

// By CheckKind.
inline constexpr std::array<CheckKindInfo, static_cast<size_t>(CheckKind::kCount)> kCheckKinds = {{
    {"changed-buffer", false, "memory of a SEND or WRITE was changed before its completion"},
    {"unmapped-buffer", false, "memory of a posted request was unmapped before its completion"},
    {"region-in-use", false, "a region is deregistered that posted requests or receives use"},
    {"stale-key", false, "an lkey is of a region that was deregistered"},
    {"unknown-key", false, "an lkey is of no region that was registered"},
    {"other-domain", false, "an lkey is of a region of another protection domain"},
    {"outside-region", false, "an SGE is not within its region"},
    {"no-local-write", false, "a receive, READ or atomic into a region without LOCAL_WRITE"},
    {"queue-stuck", false, "a send queue is full of requests that are not signalled"},
    {"small-cq", false, "more is posted than the completion queue has entries"},
    {"no-read-depth", false, "a READ or atomic, and max_rd_atomic is 0"},
    {"read-depth", false, "more READs and atomics than the peer's max_dest_rd_atomic"},
    {"no-receive", false, "a request failed by RNR: the peer had posted no receive"},
    {"unacknowledged-event", false, "destroying waits for an event that is not acknowledged"},
    {"in-use", false, "an object is destroyed that another one uses"},
    {"closed-early", true, "a device is closed before what was made of it is destroyed"},
    {"leak", true, "an object of the program itself is there at its exit"},
    {"misaligned-atomic", false, "the remote address of an atomic is no multiple of 8"},
    {"short-atomic", false, "an atomic has no 8 bytes for its result"},
    {"no-grh-room", false, "a receive of a UD queue pair has no 40 bytes for the GRH"},
    {"fork", false, "a fork with memory registered, without ibv_fork_init"},
    {"builder-thread", false, "a thread builds requests between another's start and complete"},
    {"builder-not-started", false, "a call of ibv_wr_* outside of ibv_wr_start and complete"},
    {"builder-restarted", false, "ibv_wr_start twice by one thread, without complete or abort"},
    {"qp-state", false, "a request or receive is posted in a state that takes none"},
    {"inline-too-long", false, "more inline data than max_inline_data"},
    {"too-many-sges", false, "more SGEs than the queue has been created for"},
    {"ignored-error", false, "requests are posted on and on after a completion with error"},
    {"write-race", true, "a flag is written by another queue pair than the data in front of it"},
}};

// A place in a program's code, as a file and the distance from where that is loaded.
struct CheckPlace {
  char object[200] = {};
  char symbol[96] = {};    // as far as the dynamic linker knows it
  uint64_t offset = 0;     // as the object's symbols count
  bool is_return = false;  // the call is in front of it
};

enum CheckState : uint32_t { kEmpty, kProvisional, kFinal, kWithdrawn };

struct CheckRecord {
  std::atomic<uint32_t> state{kEmpty};
  CheckKind kind = CheckKind::kCount;
  int32_t pid = 0;
  uint32_t places = 0;
  char program[32] = {};
  char verb[40] = {};
  char text[320] = {};
  char other_word[32] = {};  // such as "posted"; empty: there is no other place
  CheckPlace other;
  static constexpr uint32_t kMostPlaces = 6;
  CheckPlace place[kMostPlaces];  // from the call outwards
};

struct CheckBoard {
  uint32_t magic = kCheckMagic;
  uint32_t version = kCheckVersion;
  bool is_strict = false;
  bool is_full = false;  // all requests are compared, with all their bytes
  std::atomic<uint32_t> processes{0};
  std::atomic<uint32_t> taken{0};  // also those that found no room
  static constexpr uint32_t kRecords = 512;
  CheckRecord record[kRecords];
};

}  // namespace hostnic
