// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's part of rdma_cm: what the kernel's ucma and cma modules do. The agent has the files of
// programs and each NIC's end of communication management (protocol/cm), and says when to look
// again. Commands are in cm_commands.h, ids in cm_ids.h, addresses and ports in cm_addresses.h, the
// search for a destination in cm_resolution.h, connections in cm_connections.h. The control thread
// only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/rdma_cm/cm_addresses.h"
#include "dataplane/daemon/rdma_cm/cm_commands.h"
#include "dataplane/daemon/rdma_cm/cm_connections.h"
#include "dataplane/daemon/rdma_cm/cm_id.h"
#include "dataplane/daemon/rdma_cm/cm_ids.h"
#include "dataplane/daemon/rdma_cm/cm_resolution.h"

namespace hostnic {

class CmAgent {
 public:
  // Takes a management datagram that is not the agent's; returns false if it is not his, either.
  using Taker =
      std::function<bool(NicInstance& nic, const ManagementDatagram& datagram, const cm::Mad& mad)>;
  // The lcores must run. The agent's descriptors are watched by `epoll_fd`. `others` is asked
  // first.
  CmAgent(Daemon& daemon, int epoll_fd, Taker others = {});
  ~CmAgent();
  CmAgent(const CmAgent&) = delete;
  CmAgent& operator=(const CmAgent&) = delete;

  // A program has opened the device: answers it and serves its socket from now on.
  // `alone`: this host is the program's NICs, not all of hostnicd's.
  void open(UniqueFd socket, const OpenCmRequest& request, bool alone);
  // Serves a descriptor; returns false if it is not one of the agent's.
  bool handle(int fd);
  // Does what is due; called after each wait.
  void advance();
  // How long the next wait may last; -1: for ever.
  int wait_ms() const;

  // Text for people: a line for each id, and one for connections that no id has any more.
  std::vector<CmIdView> view(const Asker& asker) const;
  // How many connections have no id any more, and answer repeated messages for a while.
  size_t ended_connections() const;

 private:
  CmIdView view(const CmId& id) const;
  void serve(CmFile& file);
  void close(CmFile& file);
  void let_go(UniqueFd socket, std::optional<uint32_t> stranger);
  void serve_queue(CmNic& nic);
  void flush();

  Daemon& daemon_;
  int epoll_fd_;
  Taker others_;
  std::unordered_map<int, CmFile> files_;  // by socket
  uint64_t next_file_ = 1;
  UserShares::Limits most_files_;
  std::vector<CmNic> nics_;
  CmAddresses addresses_{daemon_, nics_};
  CmIds ids_{addresses_};
  CmResolution resolution_{ids_, addresses_};
  CmConnections connections_{daemon_, ids_, addresses_};
  CmCommands commands_{daemon_, ids_, addresses_, resolution_, connections_};
};

}  // namespace hostnic
