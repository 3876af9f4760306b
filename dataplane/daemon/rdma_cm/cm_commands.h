// SPDX-License-Identifier: BSD-3-Clause
// The commands of rdma/rdma_user_cm.h. Their bytes come from a program: each is copied, and all
// that it says is checked. The control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/daemon/rdma_cm/cm_addresses.h"
#include "dataplane/daemon/rdma_cm/cm_connections.h"
#include "dataplane/daemon/rdma_cm/cm_ids.h"
#include "dataplane/daemon/rdma_cm/cm_resolution.h"
#include "protocol/hostif/cm_message.h"

namespace hostnic {

class CmCommands {
 public:
  CmCommands(Daemon& daemon, CmIds& ids, CmAddresses& addresses, CmResolution& resolution,
             CmConnections& connections)
      : daemon_(daemon),
        ids_(ids),
        addresses_(addresses),
        resolution_(resolution),
        connections_(connections) {}
  CmCommands(const CmCommands&) = delete;
  CmCommands& operator=(const CmCommands&) = delete;

  // Runs a program's command; `bytes` come behind it. An unknown one is ENOSYS, a short one EINVAL.
  CmResult run(CmFile& file, const CmCommand& command, std::span<const std::byte> bytes);

 private:
  CmResult run_connection(CmFile& file, const CmCommand& command, std::span<const std::byte> bytes);
  CmResult create_id(CmFile& file, const rdma_ucm_create_id& command);
  CmResult destroy_id(CmFile& file, const rdma_ucm_destroy_id& command);
  CmResult bind_address(CmFile& file, uint32_t handle, std::span<const std::byte> address);
  CmResult resolve_route(CmFile& file, const rdma_ucm_resolve_route& command);
  CmResult query_route(CmFile& file, const rdma_ucm_query& command);
  CmResult query(CmFile& file, const rdma_ucm_query& command);
  CmResult listen(CmFile& file, const rdma_ucm_listen& command);
  CmResult get_event(CmFile& file);
  CmResult set_option(CmFile& file, const rdma_ucm_set_option& command,
                      std::span<const std::byte> value);
  CmResult join(CmFile& file, uint32_t handle, uint64_t uid, std::span<const std::byte> address);
  CmResult leave(CmFile& file, const rdma_ucm_destroy_id& command);
  CmResult write_event(CmFile& file, uint32_t handle, uint32_t event, uint32_t status,
                       uint64_t argument);
  CmResult migrate(CmFile& file, const CmCommand& command, const rdma_ucm_migrate_id& migrate);

  Daemon& daemon_;
  CmIds& ids_;
  CmAddresses& addresses_;
  CmResolution& resolution_;
  CmConnections& connections_;
};

}  // namespace hostnic
