// Memory windows of one NIC's clients, by key. Owned by the NIC's lcore alone.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "protocol/hostif/descriptors.h"

namespace hostnic {

struct MemoryWindow {
  uint32_t key = 0;  // 0: nobody's
  uint32_t client_id = 0;
  uint32_t pd = 0;
  WindowType type = WindowType::k1;
  // While bound. A type 2 window is its queue pair's alone (type 2B: protection domain and queue
  // pair are both checked).
  bool bound = false;
  uint32_t qpn = 0;
  uint32_t mr_key = 0;
  uint32_t access = 0;  // AccessFlag
  uint64_t va = 0;      // in the region's addresses
  uint64_t length_bytes = 0;
};

class WindowTable {
 public:
  WindowTable();

  // 0: all are in use.
  uint32_t add(uint32_t client_id, uint32_t pd, WindowType type);
  void remove(MemoryWindow& window);
  // The one with this very key. Null: none.
  MemoryWindow* find(uint32_t key) {
    MemoryWindow* window = at(key);
    return window != nullptr && window->key == key ? window : nullptr;
  }
  // The client's window that this key belongs to, whatever its tag.
  MemoryWindow* find_own(uint32_t key, uint32_t client_id) {
    MemoryWindow* window = at(key);
    return window != nullptr && window->key != 0 && window->client_id == client_id ? window
                                                                                   : nullptr;
  }
  std::vector<MemoryWindow>& all() { return windows_; }

 private:
  MemoryWindow* at(uint32_t key) {
    const uint32_t index = (key & ~kWindowKeyBit) >> kWindowTagBits;
    return (key & kWindowKeyBit) != 0 && index < windows_.size() ? &windows_[index] : nullptr;
  }
  std::vector<MemoryWindow> windows_;  // grows up to kMaxWindows
  std::deque<uint32_t> free_;          // reused oldest first
  uint64_t random_state_ = 0;
};

}  // namespace hostnic
