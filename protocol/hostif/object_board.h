// SPDX-License-Identifier: BSD-3-Clause
// What a program has of a device that its NIC knows nothing of: protection domains, completion
// queues and shared receive queues, in the client segment, for people who ask (`rdma res show`).
//
// The library writes; hostnicd reads when somebody asks, and believes nothing but that it is this
// client's. A line that is just being written may be read half old, half new.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace hostnic {

enum class ObjectKind : uint32_t { kNone, kPd, kCq, kSrq };

// The board shows so many objects of a context, those that came first.
inline constexpr uint32_t kBoardEntries = 4096;

// What a line of the board says.
struct ObjectLine {
  ObjectKind kind = ObjectKind::kNone;
  uint32_t handle = 0;  // as verbs name it, in its program
  uint32_t pd = 0;      // SRQ: handle of its protection domain
  uint32_t entries = 0;
  uint32_t users = 0;  // CQ: queue pairs, counted for sends and for receives
};

struct ObjectEntry {
  std::atomic<ObjectKind> kind;  // kNone: there is none here
  std::atomic<uint32_t> handle, pd, entries, users;
  uint32_t reserved[3];
};
static_assert(sizeof(ObjectEntry) == 32 && std::atomic<ObjectKind>::is_always_lock_free);

struct ObjectBoard {
  std::atomic<uint32_t> end;  // lines from there on were never written
  uint32_t reserved[15];
  ObjectEntry entry[kBoardEntries];
};

// Reads all lines that say something. For hostnicd; any thread.
inline std::vector<ObjectLine> lines_of(const ObjectBoard& board) {
  std::vector<ObjectLine> lines;
  const uint32_t end = board.end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end && i < kBoardEntries; ++i) {
    const ObjectEntry& entry = board.entry[i];
    const ObjectKind kind = entry.kind.load(std::memory_order_acquire);
    if (kind == ObjectKind::kNone || kind > ObjectKind::kSrq) continue;
    lines.push_back({kind, entry.handle.load(std::memory_order_relaxed),
                     entry.pd.load(std::memory_order_relaxed),
                     entry.entries.load(std::memory_order_relaxed),
                     entry.users.load(std::memory_order_relaxed)});
  }
  return lines;
}

}  // namespace hostnic
