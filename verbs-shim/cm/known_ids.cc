// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/known_ids.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "protocol/bytes_of.h"
#include "verbs-shim/cm/files.h"

namespace hostnic::cm_device {
namespace {

// The values of RDMA_CM_EVENT_* in rdma/rdma_cma.h, which is librdmacm's.
constexpr uint32_t kConnectRequest = 4, kDeviceRemoval = 11, kMulticastJoin = 12,
                   kMulticastError = 13;

struct KnownId {
  uint64_t file = 0;
  uint64_t uid = 0;  // librdmacm's pointer; 0: the program has not accepted the connection yet
  bool on_device = false;
  std::array<std::byte, kAddressBytes> destination{};
};
static_assert(kAddressBytes == sizeof(sockaddr_in6));

struct KnownIds {
  std::mutex mutex;
  std::map<uint32_t, KnownId> by_handle;
  std::unordered_map<uint64_t, uint32_t> events_given;  // by uid
  std::unordered_map<uint64_t, uint32_t> told;          // by file: up to which id DEVICE_REMOVAL
                                                        // has been told
};

// The ids are never destroyed: threads may run on while the process ends.
KnownIds& known() {
  static KnownIds& ids = *new KnownIds;
  return ids;
}

template <typename T>
T take(std::span<const std::byte> bytes) {
  T value{};
  memcpy(&value, bytes.data(), std::min(sizeof(T), bytes.size()));
  return value;
}

bool is_wildcard(std::span<const std::byte> bytes) {
  const auto v4 = take<sockaddr_in>(bytes);
  if (v4.sin_family == AF_INET) return v4.sin_addr.s_addr == htonl(INADDR_ANY);
  const auto v6 = take<sockaddr_in6>(bytes);
  return memcmp(&v6.sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0;
}

void note_device(KnownIds& ids, uint32_t handle) {
  const auto found = ids.by_handle.find(handle);
  if (found != ids.by_handle.end()) found->second.on_device = true;
}

void note_destination(KnownIds& ids, uint32_t handle, std::span<const std::byte> address) {
  const auto found = ids.by_handle.find(handle);
  if (found != ids.by_handle.end())
    memcpy(found->second.destination.data(), address.data(), kAddressBytes);
}

// Events for a multicast group are not counted: leaving it is what waits for them.
void note_event(KnownIds& ids, uint64_t file, const rdma_ucm_event_resp& event) {
  if (event.event == kMulticastJoin || event.event == kMulticastError) return;
  ++ids.events_given[event.uid];
  // A connection request's uid is the listener's.
  if (event.event == kConnectRequest) ids.by_handle[event.id] = {.file = file, .on_device = true};
}

// Forgets an id; returns how many events it was given. Returns none if it is not known.
std::optional<uint32_t> erase(KnownIds& ids, uint32_t handle) {
  const auto found = ids.by_handle.find(handle);
  if (found == ids.by_handle.end()) return std::nullopt;
  uint32_t events_given = 0;
  if (const auto count = ids.events_given.extract(found->second.uid)) events_given = count.mapped();
  ids.by_handle.erase(found);
  return events_given;
}

}  // namespace

void note_written(uint32_t command, std::span<const std::byte> bytes) {
  KnownIds& ids = known();
  const std::lock_guard lock(ids.mutex);
  if (command == RDMA_USER_CM_CMD_RESOLVE_IP) {
    const auto resolve = take<rdma_ucm_resolve_ip>(bytes);
    note_destination(ids, resolve.id, bytes_of(resolve.dst_addr));
  } else if (command == RDMA_USER_CM_CMD_RESOLVE_ADDR) {
    const auto resolve = take<rdma_ucm_resolve_addr>(bytes);
    note_destination(ids, resolve.id, bytes_of(resolve.dst_addr));
  }
}

void note_carried_out(uint64_t file, uint32_t command, std::span<const std::byte> bytes,
                      std::span<const std::byte> response) {
  KnownIds& ids = known();
  const std::lock_guard lock(ids.mutex);
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      ids.by_handle[take<rdma_ucm_create_id_resp>(response).id] = {
          .file = file, .uid = take<rdma_ucm_create_id>(bytes).uid};
      return;
    case RDMA_USER_CM_CMD_DESTROY_ID:
      erase(ids, take<rdma_ucm_destroy_id>(bytes).id);
      return;
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto bind = take<rdma_ucm_bind_ip>(bytes);
      if (!is_wildcard(bytes_of(bind.addr))) note_device(ids, bind.id);
      return;
    }
    case RDMA_USER_CM_CMD_BIND: {
      const auto bind = take<rdma_ucm_bind>(bytes);
      if (!is_wildcard(bytes_of(bind.addr))) note_device(ids, bind.id);
      return;
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return note_device(ids, take<rdma_ucm_resolve_ip>(bytes).id);
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return note_device(ids, take<rdma_ucm_resolve_addr>(bytes).id);
    case RDMA_USER_CM_CMD_ACCEPT: {
      // Without parameters it is the last step of who has connected, and names no uid.
      const auto accept = take<rdma_ucm_accept>(bytes);
      const auto found = ids.by_handle.find(accept.id);
      if (found != ids.by_handle.end() && accept.conn_param.valid != 0)
        found->second.uid = accept.uid;
      return;
    }
    case RDMA_USER_CM_CMD_MIGRATE_ID: {
      const auto found = ids.by_handle.find(take<rdma_ucm_migrate_id>(bytes).id);
      if (found != ids.by_handle.end()) found->second.file = file;
      return;
    }
    case RDMA_USER_CM_CMD_GET_EVENT:
      return note_event(ids, file, take<rdma_ucm_event_resp>(response));
    default:
      return;
  }
}

std::optional<rdma_ucm_event_resp> take_removal(uint64_t file) {
  KnownIds& ids = known();
  const std::lock_guard lock(ids.mutex);
  uint32_t& told = ids.told[file];
  for (auto next = ids.by_handle.upper_bound(told); next != ids.by_handle.end(); ++next) {
    const auto& [handle, id] = *next;
    told = handle;
    if (id.file != file || id.uid == 0 || !id.on_device) continue;
    ++ids.events_given[id.uid];
    rdma_ucm_event_resp event{};
    event.uid = id.uid;
    event.id = handle;
    event.event = kDeviceRemoval;
    // The kernel says 0, for which those of librdmacm's functions that wait would report success.
    event.status = static_cast<uint32_t>(-ENODEV);
    return event;
  }
  return std::nullopt;
}

std::array<std::byte, kAddressBytes> destination_of(uint64_t file, uint32_t handle) {
  KnownIds& ids = known();
  const std::lock_guard lock(ids.mutex);
  const auto found = ids.by_handle.find(handle);
  if (found == ids.by_handle.end() || found->second.file != file) return {};
  return found->second.destination;
}

std::optional<uint32_t> forget_id(uint64_t file, uint32_t handle) {
  KnownIds& ids = known();
  const std::lock_guard lock(ids.mutex);
  const auto found = ids.by_handle.find(handle);
  if (found == ids.by_handle.end() || found->second.file != file) return std::nullopt;
  return erase(ids, handle);
}

void lock_ids_across_fork() { known().mutex.lock(); }
void unlock_ids_after_fork() { known().mutex.unlock(); }

}  // namespace hostnic::cm_device
