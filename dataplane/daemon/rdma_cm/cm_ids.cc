// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/rdma_cm/cm_ids.h"

#include <optional>
#include <vector>

#include "dataplane/daemon/random_number.h"

namespace hostnic {
namespace {

constexpr size_t kMaxIds = 65536;

}  // namespace

CmIds::CmIds(CmAddresses& addresses) : addresses_(addresses) {
  shares_.set_limits(UserShares::shares_of(kMaxIds));
}

CmId* CmIds::find(uint32_t handle) {
  const auto found = ids_.find(handle);
  return found == ids_.end() ? nullptr : &found->second;
}

CmId* CmIds::find_of(const CmFile& file, uint32_t handle) {
  CmId* id = find(handle);
  return id != nullptr && id->file == &file ? id : nullptr;
}

CmId* CmIds::add(CmFile& file) {
  if (!shares_.take(file.stranger())) return nullptr;
  while (next_handle_ == 0 || ids_.contains(next_handle_)) ++next_handle_;
  CmId& id = ids_[next_handle_];
  id.handle = next_handle_++;
  id.file = &file;
  // The PSN is chosen here, because the queue pair learns it before the peer does.
  id.own_psn = static_cast<uint32_t>(random_number()) & 0xffffff;
  return &id;
}

// Drops an id's events; connection requests that the program has not heard of go with their
// listener.
void CmIds::drop_events_of(CmFile& file, const CmId& id) {
  std::vector<uint32_t> requests;
  std::erase_if(file.events, [&](const CmFile::Waiting& waiting) {
    if (waiting.owner != id.handle) return false;
    if (waiting.request != 0) requests.push_back(waiting.request);
    return true;
  });
  for (const uint32_t handle : requests)
    if (CmId* request = find(handle)) destroy(*request);
}

void CmIds::destroy(CmId& id) {
  const uint32_t handle = id.handle;
  drop_events_of(*id.file, id);
  end_connection(id);
  addresses_.release_port(id);
  const std::optional<uint32_t> stranger = id.file->stranger();
  addresses_.release_numbers(id);
  shares_.give_back(stranger);
  ids_.erase(handle);
}

void CmIds::destroy_all_of(CmFile& file) {
  std::vector<uint32_t> handles;
  for (const auto& [handle, id] : ids_)
    if (id.file == &file) handles.push_back(handle);
  // An id's end may be that of others, too.
  for (const uint32_t handle : handles)
    if (CmId* id = find(handle)) destroy(*id);
}

void CmIds::end_connection(CmId& id) {
  if (id.connection == 0) return;
  id.nic->endpoint->destroy(id.connection, id.nic->now_ns());
  id.nic->ids.erase(id.connection);
  id.connection = 0;
}

void CmIds::tell(CmId& id, CmEvent kind, int status) {
  rdma_ucm_event_resp event{};
  event.uid = id.uid;
  event.id = id.handle;
  tell(id, event, kind, status);
}

void CmIds::tell(CmId& id, rdma_ucm_event_resp event, CmEvent kind, int status, uint32_t request,
                 uint32_t multicast) {
  if (id.uid == 0) return;  // a request that the program has not accepted
  event.event = static_cast<uint32_t>(kind);
  event.status = static_cast<uint32_t>(status);
  id.file->events.push_back({id.handle, request, multicast, event});
}

}  // namespace hostnic
