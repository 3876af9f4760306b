// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: made, bound, invalidated, looked at (docs/verbs.md, "Memory windows").
#include "dataplane/nic/memory/window_table.h"

#include <cerrno>

namespace hostnic {
namespace {

constexpr uint32_t kStores = kAccessRemoteWrite | kAccessRemoteAtomic;
constexpr uint32_t kWindowRights = kStores | kAccessRemoteRead | kAccessZeroBased;

}  // namespace

WindowTable::WindowTable(MrTable& mrs, uint64_t seed) : mrs_(mrs), random_(seed) {}

uint32_t WindowTable::add(uint32_t client_id, uint32_t pd, WindowType type) {
  uint32_t index;
  if (windows_.size() < kMaxWindows) {
    index = static_cast<uint32_t>(windows_.size());
    windows_.emplace_back();
  } else if (!free_.empty()) {
    index = free_.front();
    free_.pop_front();
  } else {
    return 0;
  }
  // The tag is random, as in the keys of memory regions: neither an older key of this index nor a
  // neighbour's is guessed by counting.
  // The low byte is the program's to choose: until then 0, as adapters have it.
  const uint32_t tag = random_.next() & kWindowTagMask & ~kWindowUserMask;
  const uint32_t key = kWindowKeyBit | index << kWindowTagBits | tag;
  windows_[index] = {.key = key, .client_id = client_id, .pd = pd, .type = type};
  return key;
}

void WindowTable::remove(MemoryWindow& window) {
  free_.push_back(static_cast<uint32_t>(&window - windows_.data()));
  window = {};
}

void WindowTable::unbind(MemoryWindow& window) {
  if (!window.bound) return;
  window.bound = false;
  // A region that went with its client meanwhile has forgotten its windows, and is not found.
  if (MemoryRegionEntry* region = mrs_.find(window.mr_key); region != nullptr)
    region->windows_bound.fetch_sub(1, std::memory_order_release);
}

int WindowTable::bind(const AccessScope& scope, const BindWindowCommand& command) {
  MemoryWindow* window = find_own(command.key, scope.client_id);
  if (window == nullptr || window->pd != scope.pd) return EINVAL;
  const bool type2 = window->type == WindowType::k2;
  if (type2) {
    // A window that is to be bound once more must have been invalidated; the program chooses the
    // low byte only.
    if (window->bound || ((window->key ^ command.key) & ~kWindowUserMask) != 0) return EINVAL;
    if (command.length_bytes == 0) return EINVAL;
  }
  MemoryRegionEntry* region = nullptr;
  if (command.length_bytes != 0) {
    region = mrs_.find(command.mr_key);
    if (region == nullptr || region->client_id != scope.client_id || region->pd != window->pd ||
        (region->access & kAccessMwBind) == 0) {
      return EINVAL;
    }
    const uint64_t offset = command.va - region->iova;
    if (offset > region->length_bytes || command.length_bytes > region->length_bytes - offset)
      return EINVAL;
    if ((command.access & ~kWindowRights) != 0) return EINVAL;
    if ((command.access & kStores) != 0 && (region->access & kAccessLocalWrite) == 0) return EINVAL;
  }
  unbind(*window);
  window->key = command.key;
  if (region == nullptr) return 0;
  window->bound = true;
  window->qpn = type2 ? scope.qpn : 0;
  window->mr_key = command.mr_key;
  window->access = command.access;
  window->va = command.va;
  window->length_bytes = command.length_bytes;
  region->windows_bound.fetch_add(1, std::memory_order_release);
  return 0;
}

int WindowTable::invalidate(const AccessScope& scope, uint32_t key) {
  MemoryWindow* window = invalidatable(scope, key);
  if (window == nullptr) return EINVAL;
  unbind(*window);
  return 0;
}

int WindowTable::destroy(uint32_t client_id, uint32_t key) {
  MemoryWindow* window = find_own(key, client_id);
  if (window == nullptr) return EINVAL;
  unbind(*window);
  remove(*window);
  return 0;
}

MemoryWindow* WindowTable::invalidatable(const AccessScope& scope, uint32_t key) {
  MemoryWindow* window = find(key);
  if (window == nullptr || window->client_id != scope.client_id || window->pd != scope.pd ||
      window->type != WindowType::k2) {
    return nullptr;
  }
  return window->bound && window->qpn != scope.qpn ? nullptr : window;
}

const MemoryWindow* WindowTable::accessible(const AccessScope& scope, uint32_t key,
                                            uint32_t access) {
  const MemoryWindow* window = find(key);
  const bool may = window != nullptr && window->bound && window->client_id == scope.client_id &&
                   window->pd == scope.pd &&
                   (window->type != WindowType::k2 || window->qpn == scope.qpn) &&
                   (window->access & access) == access;
  return may ? window : nullptr;
}

void WindowTable::unbind_all_of(const AccessScope& scope) {
  for (MemoryWindow& window : windows_)
    if (window.bound && window.type == WindowType::k2 && window.qpn == scope.qpn) unbind(window);
}

void WindowTable::drop_all_of(uint32_t client_id) {
  for (MemoryWindow& window : windows_) {
    if (window.key == 0 || window.client_id != client_id) continue;
    unbind(window);
    remove(window);
  }
}

}  // namespace hostnic
