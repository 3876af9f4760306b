// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/object_list.h"

#include <new>

namespace hostnic::driver {

uint32_t ObjectList::add(const ObjectLine& object) {
  if (board_ == nullptr) return kNoLine;
  const std::lock_guard lock(mutex_);
  uint32_t line = end_;
  if (!free_.empty()) {
    line = free_.back();
    free_.pop_back();
  } else if (end_ == kBoardEntries) {
    return kNoLine;
  }
  ObjectEntry& entry = board_->entry[line];
  entry.handle.store(object.handle, std::memory_order_relaxed);
  entry.pd.store(object.pd, std::memory_order_relaxed);
  entry.entries.store(object.entries, std::memory_order_relaxed);
  entry.users.store(object.users, std::memory_order_relaxed);
  entry.kind.store(object.kind, std::memory_order_release);
  if (line == end_) board_->end.store(++end_, std::memory_order_release);
  return line;
}

void ObjectList::remove(uint32_t line) {
  ObjectEntry* const entry = at(line);
  if (entry == nullptr) return;
  entry->kind.store(ObjectKind::kNone, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back(line);
  } catch (const std::bad_alloc&) {
    // The line is not used again, and an object may be shown less.
  }
}

void ObjectList::set_users(uint32_t line, uint32_t users) {
  if (ObjectEntry* const entry = at(line)) entry->users.store(users, std::memory_order_relaxed);
}

void ObjectList::set_entries(uint32_t line, uint32_t entries) {
  if (ObjectEntry* const entry = at(line)) entry->entries.store(entries, std::memory_order_relaxed);
}

}  // namespace hostnic::driver
