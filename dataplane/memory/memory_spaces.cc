// SPDX-License-Identifier: BSD-3-Clause
// MemorySpaces of client_memory.h.
#include <map>
#include <mutex>

#include "dataplane/memory/client_memory.h"

namespace hostnic {
namespace {

struct SpaceTable {
  struct Entry {
    uint64_t device = 0, inode = 0;
    uint32_t users = 0;
  };
  std::mutex mutex;
  std::map<uint32_t, Entry> by_id;
  uint32_t last_id = 0;
};
SpaceTable& spaces() {
  static auto* table = new SpaceTable;  // never destroyed: clients may outlive static destructors
  return *table;
}

}  // namespace

uint32_t MemorySpaces::acquire(uint64_t device, uint64_t inode) {
  SpaceTable& table = spaces();
  const std::lock_guard lock(table.mutex);
  for (auto& [id, entry] : table.by_id) {
    if (entry.device != device || entry.inode != inode) continue;
    entry.users++;
    return id;
  }
  while (++table.last_id == 0 || table.by_id.contains(table.last_id)) continue;
  table.by_id[table.last_id] = {device, inode, 1};
  return table.last_id;
}

void MemorySpaces::add_user(uint32_t space_id) {
  SpaceTable& table = spaces();
  const std::lock_guard lock(table.mutex);
  if (const auto found = table.by_id.find(space_id); found != table.by_id.end())
    found->second.users++;
}

void MemorySpaces::release(uint32_t space_id) {
  SpaceTable& table = spaces();
  const std::lock_guard lock(table.mutex);
  const auto found = table.by_id.find(space_id);
  if (found != table.by_id.end() && --found->second.users == 0) table.by_id.erase(found);
}

}  // namespace hostnic
