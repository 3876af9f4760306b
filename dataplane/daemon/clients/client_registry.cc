// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/client_registry.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/lcore/scheduling_group.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/memory/user_shares.h"

namespace hostnic {

SegmentPages ClientRegistry::segment_pages() const {
  if (rte_eal_has_hugepages() == 0 || plan_.huge == config::HugePages::kNever)
    return SegmentPages::kOrdinary;
  return plan_.huge == config::HugePages::kRequire ? SegmentPages::kHuge
                                                   : SegmentPages::kHugeIfFree;
}

void ClientRegistry::add(const ClientInfo& info) {
  std::lock_guard lock(mutex_);
  clients_.push_back(info);
  if (!info.huge_pages && segment_pages() == SegmentPages::kHugeIfFree &&
      !std::exchange(warned_of_pages_, true)) {
    log_problem(
        "too few huge pages are free for the rings of {} (pid {}), perhaps of others: ordinary "
        "pages instead, as `show client` says",
        info.program, info.pid);
  }
  // The warning is due when two programs and the lcores, or more, will share processors.
  if (warned_of_sessions_ ||
      sysconf(_SC_NPROCESSORS_ONLN) >= static_cast<long>(lcores_.size()) + 2 ||
      !scheduled_apart_from(info.pid))
    return;
  warned_of_sessions_ = true;
  log_problem(
      "{} (pid {}) is of another session: with so few processors messages may wait for time slices "
      "of milliseconds. Start hostnicd from the same shell, or: sysctl "
      "kernel.sched_autogroup_enabled=0",
      info.program, info.pid);
}

void ClientRegistry::remove(uint32_t client_id) {
  std::lock_guard lock(mutex_);
  std::erase_if(clients_, [&](const ClientInfo& info) { return info.client_id == client_id; });
}

Expected<void, std::string> ClientRegistry::admit_registration(uint32_t client_id) {
  std::lock_guard lock(mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client == clients_.end()) return {};
  std::string met;
  if (client->regions >= plan_.max_mrs)
    met = fmt::format("the {} memory regions that a program may have (limits.max_mrs)",
                      plan_.max_mrs);
  if (met.empty() && !is_owner(client->uid)) {
    uint64_t regions = 0, bytes = 0, of_strangers = 0;
    for (const ClientInfo& each : clients_) {
      if (!is_owner(each.uid)) of_strangers += each.regions;
      if (each.uid != client->uid) continue;
      regions += each.regions;
      bytes += each.bytes_mapped;
    }
    if (regions >= plan_.user_mrs)
      met = fmt::format("the {} memory regions that a user may have (limits.user_mrs)",
                        plan_.user_mrs);
    else if (of_strangers >= UserShares::shares_of(plan_.all_mrs).strangers)
      met =
          "the memory regions that are not kept for hostnicd's own user and root (limits.all_mrs)";
    else if (bytes >= plan_.user_registered_bytes)
      met = fmt::format("the {} MB that a user may register (limits.user_registered_mb)",
                        plan_.user_registered_bytes >> 20);
  }
  if (met.empty()) {
    ++client->regions;
    return {};
  }
  note_limit(*client, met);
  return Unexpected("all in use: " + met);
}

Expected<void, std::string> ClientRegistry::admit_pieces(uint32_t client_id, size_t count) {
  // Some 40 MB and 130 MB of memory.
  constexpr uint64_t kOfUser = uint64_t{1} << 19, kOfStrangers = 3 * kOfUser;
  std::lock_guard lock(mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client == clients_.end()) return {};
  if (!is_owner(client->uid)) {
    uint64_t of_user = count, of_strangers = count;
    for (const ClientInfo& each : clients_) {
      if (each.uid == client->uid) of_user += each.pieces;
      if (!is_owner(each.uid)) of_strangers += each.pieces;
    }
    if (of_user > kOfUser || of_strangers > kOfStrangers) {
      const std::string met = fmt::format(
          "the {} pieces that the memory regions of a user may have, or the {} of all users'",
          kOfUser, kOfStrangers);
      note_limit(*client, met);
      return Unexpected("all in use: " + met);
    }
  }
  client->pieces += count;
  return {};
}

void ClientRegistry::drop_pieces(uint32_t client_id, size_t count) {
  std::lock_guard lock(mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) client->pieces -= std::min<uint64_t>(client->pieces, count);
}

void ClientRegistry::note_limit(uint32_t client_id, const std::string& met) {
  std::lock_guard lock(mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) note_limit(*client, met);
}

void ClientRegistry::note_limit(ClientInfo& client, const std::string& met) {
  if (std::exchange(client.limit_noted, true)) return;
  log_problem("client {} ({}, pid {}, uid {}) has met a limit: {}", client.client_id,
              client.program, client.pid, client.uid, met);
}

void ClientRegistry::note_registration(uint32_t client_id, int regions, int64_t mapped,
                                       int64_t mem_fd) {
  std::lock_guard lock(mutex_);
  for (ClientInfo& info : clients_) {
    if (info.client_id != client_id) continue;
    info.regions += static_cast<uint32_t>(regions);
    info.bytes_mapped += static_cast<uint64_t>(mapped);
    info.bytes_mem_fd += static_cast<uint64_t>(mem_fd);
  }
}

void ClientRegistry::note_named_host(uint32_t client_id) {
  std::lock_guard lock(mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) ++client->named_hosts;
}

std::vector<ClientInfo> ClientRegistry::all() {
  std::lock_guard lock(mutex_);
  return clients_;
}

}  // namespace hostnic
