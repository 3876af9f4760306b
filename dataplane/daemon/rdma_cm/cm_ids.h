// SPDX-License-Identifier: BSD-3-Clause
// All rdma_cm ids of a hostnicd, from their making to their end, and the events that their programs
// are told. The control thread only.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "dataplane/daemon/rdma_cm/cm_addresses.h"
#include "dataplane/daemon/rdma_cm/cm_id.h"
#include "dataplane/memory/user_shares.h"

namespace hostnic {

class CmIds {
 public:
  explicit CmIds(CmAddresses& addresses);
  CmIds(const CmIds&) = delete;
  CmIds& operator=(const CmIds&) = delete;

  CmId* find(uint32_t handle);  // null: there is none
  // The same, unless it is of another file.
  CmId* find_of(const CmFile& file, uint32_t handle);
  // A new id; null: there are too many. Ids stay where they are until they are destroyed.
  CmId* add(CmFile& file);
  // A number that no id has and none will get soon.
  uint32_t new_handle() { return next_handle_++; }
  void destroy(CmId& id);
  // Destroys all ids of a file.
  void destroy_all_of(CmFile& file);
  // Ends the connection of an id that has one.
  void end_connection(CmId& id);
  // Tells the program an event, unless the program does not know the id yet.
  void tell(CmId& id, CmEvent kind, int status);
  void tell(CmId& id, rdma_ucm_event_resp event, CmEvent kind, int status, uint32_t request = 0,
            uint32_t multicast = 0);
  auto& all() { return ids_; }
  const auto& all() const { return ids_; }

 private:
  void drop_events_of(CmFile& file, const CmId& id);

  CmAddresses& addresses_;
  std::unordered_map<uint32_t, CmId> ids_;
  UserShares shares_;
  uint32_t next_handle_ = 1;
};

}  // namespace hostnic
