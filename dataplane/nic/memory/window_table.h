// SPDX-License-Identifier: BSD-3-Clause
// Memory windows of one NIC's clients, by key. Owned by the NIC's lcore alone.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "dataplane/nic/memory/access_scope.h"
#include "dataplane/nic/memory/mr_table.h"
#include "protocol/hostif/descriptors.h"

namespace hostnic {

struct MemoryWindow {
  uint32_t key = 0;  // 0: the entry is free
  uint32_t client_id = 0;
  uint32_t pd = 0;
  WindowType type = WindowType::k1;
  // The members from here on are valid while the window is bound. A type 2 window is its queue
  // pair's alone (type 2B: protection domain and queue pair are both checked).
  bool bound = false;
  uint32_t qpn = 0;
  uint32_t mr_key = 0;
  uint32_t access = 0;  // AccessFlag
  uint64_t va = 0;      // in the region's addresses
  uint64_t length_bytes = 0;
};

class WindowTable {
 public:
  // `seed` as a MrTable has it.
  explicit WindowTable(MrTable& mrs, uint64_t seed = 1);

  // Returns the new window's key; 0: all are in use.
  uint32_t add(uint32_t client_id, uint32_t pd, WindowType type);
  // Returns 0 or an errno value. `scope` is that of the queue pair that the command was posted to.
  int bind(const AccessScope& scope, const BindWindowCommand& command);
  int invalidate(const AccessScope& scope, uint32_t key);
  int destroy(uint32_t client_id, uint32_t key);
  // Windows that only this queue pair could use are unbound.
  void unbind_all_of(const AccessScope& scope);
  void drop_all_of(uint32_t client_id);

  // The window that the queue pair, or its peer, may invalidate by this key: type 2, and bound to
  // no other queue pair. A window that is unbound already stays so. Returns null if there is none.
  MemoryWindow* invalidatable(const AccessScope& scope, uint32_t key);
  void unbind(MemoryWindow& window);
  // A bound window by which a peer of the queue pair has the rights of `access`. Returns null if
  // there is none.
  const MemoryWindow* accessible(const AccessScope& scope, uint32_t key, uint32_t access);
  // The window with this very key. Returns null if there is none.
  MemoryWindow* find(uint32_t key) {
    MemoryWindow* window = at(key);
    return window != nullptr && window->key == key ? window : nullptr;
  }
  const MemoryWindow* find(uint32_t key) const { return const_cast<WindowTable*>(this)->find(key); }
  // The client's window that this key belongs to, whatever its tag.
  MemoryWindow* find_own(uint32_t key, uint32_t client_id) {
    MemoryWindow* window = at(key);
    return window != nullptr && window->key != 0 && window->client_id == client_id ? window
                                                                                   : nullptr;
  }

 private:
  void remove(MemoryWindow& window);
  MemoryWindow* at(uint32_t key) {
    const uint32_t index = (key & ~kWindowKeyBit) >> kWindowTagBits;
    return (key & kWindowKeyBit) != 0 && index < windows_.size() ? &windows_[index] : nullptr;
  }
  MrTable& mrs_;
  std::vector<MemoryWindow> windows_;  // grows up to kMaxWindows
  std::deque<uint32_t> free_;          // reused oldest first
  RandomSource random_;
};

}  // namespace hostnic
