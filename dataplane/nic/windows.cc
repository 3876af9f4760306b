// Memory windows: made, bound, invalidated, looked at (docs/verbs.md, "Memory windows").
#include <sys/random.h>

#include <cerrno>

#include "dataplane/nic/impl.h"
#include "dataplane/nic/placement.h"

namespace hostnic {
namespace {

constexpr uint32_t kStores = kAccessRemoteWrite | kAccessRemoteAtomic;
constexpr uint32_t kWindowRights = kStores | kAccessRemoteRead | kAccessZeroBased;

}  // namespace

WindowTable::WindowTable() {
  if (getrandom(&random_state_, sizeof(random_state_), 0) != sizeof(random_state_))
    random_state_ = reinterpret_cast<uintptr_t>(this);
}

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
  // As of memory regions: neither an older key of this index nor a neighbour's is guessed by
  // counting.
  random_state_ = random_state_ * 6364136223846793005u + 1442695040888963407u;
  // The low byte is the program's to choose: until it does it is 0, as adapters have it.
  const auto tag = static_cast<uint32_t>(random_state_ >> 40) & kWindowTagMask & ~kWindowUserMask;
  const uint32_t key = kWindowKeyBit | index << kWindowTagBits | tag;
  windows_[index] = {.key = key, .client_id = client_id, .pd = pd, .type = type};
  return key;
}

void WindowTable::remove(MemoryWindow& window) {
  free_.push_back(static_cast<uint32_t>(&window - windows_.data()));
  window = {};
}

int Nic::Impl::create_window(ClientState& client, const CreateWindowCommand& command,
                             uint32_t& key) {
  if (command.type != WindowType::k1 && command.type != WindowType::k2) return EINVAL;
  key = windows.add(client.channel->settings().client_id, command.pd, command.type);
  return key == 0 ? ENOMEM : 0;
}

int Nic::Impl::destroy_window(ClientState& client, const DestroyWindowCommand& command) {
  MemoryWindow* window = windows.find_own(command.key, client.channel->settings().client_id);
  if (window == nullptr) return EINVAL;
  unbind(*window);
  windows.remove(*window);
  return 0;
}

void Nic::Impl::unbind(MemoryWindow& window) {
  if (!window.bound) return;
  window.bound = false;
  // A region that went with its client meanwhile has forgotten its windows.
  if (MemoryRegionEntry* region = mrs.find(window.mr_key); region != nullptr)
    region->windows_bound.fetch_sub(1, std::memory_order_release);
}

// 0 or EINVAL.
int Nic::Impl::bind_window(ClientState& client, const BindWindowCommand& command) {
  const QpContext* qp = own_qp(client, command.qpn);
  const uint32_t client_id = client.channel->settings().client_id;
  MemoryWindow* window = windows.find_own(command.key, client_id);
  if (qp == nullptr || window == nullptr || qp->type == QpType::kUd || window->pd != qp->pd)
    return EINVAL;
  if (qp->state != QpState::kRts && qp->state != QpState::kSqd) return EINVAL;
  const bool type2 = window->type == WindowType::k2;
  if (type2) {
    // To bind it once more it must have been invalidated; the program chooses the low byte only.
    if (window->bound || ((window->key ^ command.key) & ~kWindowUserMask) != 0) return EINVAL;
    if (command.length_bytes == 0) return EINVAL;
  }
  MemoryRegionEntry* region = nullptr;
  if (command.length_bytes != 0) {
    region = mrs.find(command.mr_key);
    if (region == nullptr || region->client_id != client_id || region->pd != window->pd ||
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
  window->qpn = type2 ? qp->qpn : 0;
  window->mr_key = command.mr_key;
  window->access = command.access;
  window->va = command.va;
  window->length_bytes = command.length_bytes;
  region->windows_bound.fetch_add(1, std::memory_order_release);
  return 0;
}

int Nic::Impl::invalidate_window(ClientState& client, const InvalidateWindowCommand& command) {
  const QpContext* qp = own_qp(client, command.qpn);
  if (qp == nullptr || (qp->state != QpState::kRts && qp->state != QpState::kSqd)) return EINVAL;
  MemoryWindow* window = invalidatable(*qp, command.key);
  if (window == nullptr) return EINVAL;
  unbind(*window);
  return 0;
}

// The window that the queue pair, or its peer, may invalidate by this key: type 2, and bound to no
// other queue pair. One that is unbound already stays so.
MemoryWindow* Nic::Impl::invalidatable(const QpContext& qp, uint32_t key) {
  MemoryWindow* window = windows.find(key);
  if (window == nullptr || window->client_id != qp.client->settings().client_id ||
      window->pd != qp.pd || window->type != WindowType::k2) {
    return nullptr;
  }
  return window->bound && window->qpn != qp.qpn ? nullptr : window;
}

Nic::Impl::RemoteRange Nic::Impl::window_range(QpContext& qp, uint32_t key, uint64_t va,
                                               uint64_t length_bytes, uint32_t access) {
  const MemoryWindow* window = windows.find(key);
  if (window == nullptr || !window->bound || window->client_id != qp.client->settings().client_id ||
      window->pd != qp.pd || (window->type == WindowType::k2 && window->qpn != qp.qpn) ||
      (window->access & access) != access) {
    return {};
  }
  const uint64_t first = (window->access & kAccessZeroBased) != 0 ? 0 : window->va;
  const uint64_t offset = va - first;
  if (offset > window->length_bytes || length_bytes > window->length_bytes - offset) return {};
  const uint64_t iova = window->va + offset;
  return {local_region(qp, qp.pd, window->mr_key, iova, length_bytes, 0), iova};
}

// Windows that only this queue pair could use.
void Nic::Impl::unbind_windows_of(const QpContext& qp) {
  for (MemoryWindow& window : windows.all()) {
    if (window.bound && window.type == WindowType::k2 && window.qpn == qp.qpn) unbind(window);
  }
}

void Nic::Impl::drop_windows_of(uint32_t client_id) {
  for (MemoryWindow& window : windows.all()) {
    if (window.key == 0 || window.client_id != client_id) continue;
    unbind(window);
    windows.remove(window);
  }
}

}  // namespace hostnic
