// SPDX-License-Identifier: BSD-3-Clause
// Clients, as people are shown them, and what each of them, its user and all strangers together may
// have: the limits of a hostnicd (DaemonPlan) are kept here.
//
// Any thread but lcores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/plan.h"
#include "dataplane/nic/client/client_channel.h"

namespace hostnic {

// What `show client` tells of a client.
struct ClientInfo {
  uint32_t client_id = 0;
  uint32_t nic = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  std::string program;
  std::shared_ptr<const ClientChannel::Use> use;
  bool limit_noted = false;  // the log says that it met a limit
  uint32_t regions = 0;
  uint64_t pieces = 0;       // of all regions: each takes memory of hostnicd's
  uint32_t named_hosts = 0;  // by IPv6 addresses
  uint64_t bytes_mapped = 0;
  uint64_t bytes_mem_fd = 0;
  bool huge_pages = false;  // the client's rings and QP statuses lie there
};

class ClientRegistry {
 public:
  ClientRegistry(const DaemonPlan& plan, const std::vector<std::unique_ptr<LcoreLoop>>& lcores)
      : plan_(plan), lcores_(lcores) {}
  ClientRegistry(const ClientRegistry&) = delete;
  ClientRegistry& operator=(const ClientRegistry&) = delete;

  // Where the rings of clients lie: in huge pages where packet buffers are.
  SegmentPages segment_pages() const;
  uint32_t next_id() { return next_id_.fetch_add(1); }
  void add(const ClientInfo& info);
  void remove(uint32_t client_id);
  // Counts a region that is to be registered, unless a limit has been met. An error is one line.
  Expected<void, std::string> admit_registration(uint32_t client_id);
  void note_registration(uint32_t client_id, int regions, int64_t mapped, int64_t mem_fd);
  // Does the same for the pieces of a region. They are memory of hostnicd's own, of which a program
  // of another user's could have gigabytes by tiny pieces.
  Expected<void, std::string> admit_pieces(uint32_t client_id, size_t count);
  void drop_pieces(uint32_t client_id, size_t count);
  // Says once in the log that a client was refused what a limit does not leave it.
  void note_limit(uint32_t client_id, const std::string& met);
  void note_named_host(uint32_t client_id);
  std::vector<ClientInfo> all();

 private:
  void note_limit(ClientInfo& client, const std::string& met);  // under mutex_

  const DaemonPlan& plan_;
  const std::vector<std::unique_ptr<LcoreLoop>>& lcores_;
  std::atomic<uint32_t> next_id_{1};
  std::mutex mutex_;
  std::vector<ClientInfo> clients_;
  bool warned_of_sessions_ = false, warned_of_pages_ = false;  // under mutex_
};

}  // namespace hostnic
