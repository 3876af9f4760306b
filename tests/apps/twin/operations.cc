// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/operations.h"

#include <algorithm>

#include "tests/apps/twin/content.h"

namespace hostnic::twin {
namespace {

constexpr KindInfo kInfos[] = {
    {Kind::kMap, "map", 40, false, true},
    {Kind::kMapOver, "map-over", 12, false, true},
    {Kind::kUnmap, "unmap", 20, false, true},
    {Kind::kMove, "move", 14, false, true},
    {Kind::kMoveOver, "move-over", 8, false, true},
    {Kind::kMoveDontUnmap, "move-dontunmap", 6, false, true},
    {Kind::kGrow, "grow", 8, false, true},
    {Kind::kGrowInPlace, "grow-in-place", 8, false, true},
    {Kind::kShrink, "shrink", 6, false, true},
    {Kind::kProtect, "protect", 16, false, true},
    {Kind::kDontNeed, "dontneed", 16, false, true},
    {Kind::kMakeGuards, "make-guards", 4, false, true},
    {Kind::kFreePages, "free-pages", 4, false, true},
    {Kind::kRemove, "remove", 5, false, true},
    {Kind::kCold, "cold", 3, false, true},
    {Kind::kPageOut, "pageout", 4, false, true},
    {Kind::kHugePage, "hugepage", 6, false, true},
    {Kind::kDontFork, "dontfork", 5, false, true},
    {Kind::kWipeOnFork, "wipeonfork", 4, false, true},
    {Kind::kLock, "lock", 5, false, true},
    {Kind::kUnlock, "unlock", 4, false, true},
    {Kind::kLockAll, "lockall", 4, false, false},
    {Kind::kUnlockAll, "unlockall", 3, false, false},
    {Kind::kAllocate, "allocate", 14, false, true},
    {Kind::kReallocate, "reallocate", 10, false, true},
    {Kind::kFree, "free", 9, false, true},
    {Kind::kTrim, "trim", 2, false, true},
    {Kind::kBreak, "break", 3, false, false},
    {Kind::kFork, "fork", 7, false, true},
    {Kind::kForkLate, "fork-late", 5, false, true},
    {Kind::kReap, "reap", 5, false, true},
    {Kind::kClone, "clone", 2, false, false},
    {Kind::kForkStopped, "fork-stopped", 1, false, false},
    {Kind::kVfork, "vfork", 1, false, true},
    {Kind::kSpawn, "spawn", 1, false, true},
    {Kind::kSeal, "seal", 4, false, true},
    {Kind::kPunch, "punch", 6, false, true},
    {Kind::kTruncate, "truncate", 4, false, true},
    {Kind::kFileWrite, "file-write", 4, false, true},
    {Kind::kStore, "store", 30, false, true},
    {Kind::kCheck, "check", 10, false, true},
    {Kind::kReadInto, "read-into", 14, false, true},
    {Kind::kWriteFrom, "write-from", 10, false, true},
    {Kind::kReadInvalid, "read-invalid", 3, false, true},
    {Kind::kDirect, "direct", 5, false, true},
    {Kind::kRing, "ring", 4, false, true},
    {Kind::kPeerVm, "peer-vm", 6, false, false},
    {Kind::kSplice, "splice", 4, false, true},
    {Kind::kUserFault, "userfault", 3, false, true},
    {Kind::kGuard, "guard", 5, false, true},
    {Kind::kSignals, "signals", 4, true, false},
    {Kind::kRegister, "register", 50, true, false},
    {Kind::kReregister, "reregister", 8, true, false},
    {Kind::kDeregister, "deregister", 26, true, false},
    {Kind::kPeerWrite, "peer-write", 50, true, false},
    {Kind::kPeerRead, "peer-read", 40, true, false},
    {Kind::kPeerAtomic, "peer-atomic", 12, true, false},
    {Kind::kPeerSend, "peer-send", 12, true, false},
    {Kind::kPeerDatagram, "peer-datagram", 10, true, false},
    {Kind::kSend, "send", 8, true, false},
    {Kind::kWriteOut, "write-out", 8, true, false},
    {Kind::kReadIn, "read-in", 8, true, false},
    {Kind::kStream, "stream", 7, true, false},
    {Kind::kStreamEnd, "stream-end", 6, true, false},
    {Kind::kShareAtomics, "share-atomics", 4, true, false},
    {Kind::kAttach, "attach", 8, false, true},
    {Kind::kDetach, "detach", 6, false, true},
};
static_assert(std::size(kInfos) == kKinds);

// These can undo what others do, and are in every list.
constexpr Kind kAlways[] = {Kind::kMap,        Kind::kUnmap,     Kind::kStore,    Kind::kRegister,
                            Kind::kDeregister, Kind::kPeerWrite, Kind::kPeerRead, Kind::kStreamEnd,
                            Kind::kReap,       Kind::kUnlock,    Kind::kUnlockAll};

}  // namespace

const KindInfo& info(Kind kind) { return kInfos[static_cast<size_t>(kind)]; }
const char* name(Kind kind) { return info(kind).name; }

bool find_kind(std::string_view name, Kind& kind) {
  for (const KindInfo& each : kInfos) {
    if (name != each.name) continue;
    kind = each.kind;
    return true;
  }
  return false;
}

bool Choice::allows(Kind kind) const {
  if (dry && info(kind).verbs) return false;
  if (for_thread && !info(kind).in_threads) return false;
  if (without.contains(kind)) return false;
  return only.empty() || only.contains(kind);
}

Profile profile(uint64_t seed, const Choice& choice) {
  Rng rng(seed ^ 0x70726f66696c65ULL);
  Profile result{};
  const uint64_t size = rng.below(100);
  if (size < 60) {
    result.arena_pages = 512;
    result.most_pages = rng.between(4, 64);
  } else if (size < 85) {
    result.arena_pages = 4096;
    result.most_pages = rng.between(256, 1024);
  } else {
    // Registrations of 16 MiB and more are others than those of less.
    result.arena_pages = 20'480;
    result.most_pages = rng.between(4608, 12'288);
  }
  result.signals = rng.percent(15);
  // A list in which all kinds are rare finds less than one in which a few are often.
  const bool few = rng.percent(70) && choice.only.empty();
  for (const KindInfo& each : kInfos) {
    const bool always = std::ranges::find(kAlways, each.kind) != std::end(kAlways);
    const unsigned factor = static_cast<unsigned>(rng.between(1, 4));
    const bool chosen = !few || always || rng.percent(35);
    if (!chosen || !choice.allows(each.kind)) continue;
    result.kinds.insert(result.kinds.end(), each.weight * (few ? factor : 1), each.kind);
  }
  if (result.kinds.empty()) result.kinds.push_back(Kind::kCheck);
  return result;
}

Operation operation(uint64_t seed, size_t index, const Profile& profile, const Choice& choice) {
  Rng rng(mix(seed) + index);
  Operation result;
  result.kind = profile.kinds[rng.below(profile.kinds.size())];
  const bool raw = rng.percent(30);
  result.raw = raw && choice.raw && !choice.by_libc.contains(result.kind);
  for (uint64_t& each : result.random) each = rng.next();
  return result;
}

}  // namespace hostnic::twin
