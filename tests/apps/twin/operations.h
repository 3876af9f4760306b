// SPDX-License-Identifier: BSD-3-Clause
// The operations that programs of address space are made of. One seed stands for one list of them.
// An operation is a kind and random numbers; what they choose among is what is there when its turn
// comes, so that a list from which some have been deleted is a list as well.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hostnic::twin {

enum class Kind : uint8_t {
  // mappings
  kMap,
  kMapOver,
  kUnmap,
  kMove,
  kMoveOver,
  kMoveDontUnmap,
  kGrow,
  kGrowInPlace,
  kShrink,
  kProtect,
  // advice
  kDontNeed,
  kMakeGuards,
  kFreePages,
  kRemove,
  kCold,
  kPageOut,
  kHugePage,
  kDontFork,
  kWipeOnFork,
  // locks
  kLock,
  kUnlock,
  kLockAll,
  kUnlockAll,
  // heap
  kAllocate,
  kReallocate,
  kFree,
  kTrim,
  kBreak,
  // processes
  kFork,
  kForkLate,
  kReap,
  kClone,
  kForkStopped,
  kVfork,
  kSpawn,
  // files
  kSeal,
  kPunch,
  kTruncate,
  kFileWrite,
  // bytes
  kStore,
  kCheck,
  kReadInto,
  kWriteFrom,
  kReadInvalid,
  kDirect,
  kRing,
  kPeerVm,
  kSplice,
  kUserFault,
  kGuard,
  kSignals,
  // verbs
  kRegister,
  kReregister,
  kDeregister,
  kPeerWrite,
  kPeerRead,
  kPeerAtomic,
  kPeerSend,
  kPeerDatagram,
  kSend,
  kWriteOut,
  kReadIn,
  kStream,
  kStreamEnd,
  kShareAtomics,
  // segments
  kAttach,
  kDetach,
  kKinds
};
inline constexpr size_t kKinds = static_cast<size_t>(Kind::kKinds);

struct KindInfo {
  Kind kind;
  const char* name;
  unsigned weight;
  bool verbs;       // left out by --dry
  bool in_threads;  // done by the other threads as well
};
const KindInfo& info(Kind kind);
const char* name(Kind kind);
// False where there is no kind of that name.
bool find_kind(std::string_view name, Kind& kind);

struct Operation {
  Kind kind = Kind::kCheck;
  bool raw = false;  // by a bare system call, past the C library
  std::array<uint64_t, 6> random{};
};

// Which operations a list is made of.
struct Choice {
  std::set<Kind> only, without, by_libc;  // by_libc: never by bare system calls
  bool dry = false, raw = true;
  bool for_thread = false;
  bool allows(Kind kind) const;
};

// In arenas of so many pages there are registrations that come late.
inline constexpr size_t kMuchPages = 10'000;
// Registrations of so many bytes do.
inline constexpr size_t kLateBytes = 16 << 20;

// What is alike for all operations of a seed.
struct Profile {
  size_t arena_pages;       // as much is mapped at most
  size_t most_pages;        // of one mapping
  bool signals;             // a timer whose handler writes into registered memory
  std::vector<Kind> kinds;  // each as often as it is chosen
};
Profile profile(uint64_t seed, const Choice& choice);
Operation operation(uint64_t seed, size_t index, const Profile& profile, const Choice& choice);

}  // namespace hostnic::twin
