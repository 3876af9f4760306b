// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm's connections: what programs ask for becomes calls of a NIC's endpoint, and what it tells
// becomes the programs' events, as the kernel's cma module does it. The control thread only.
#pragma once

#include <deque>
#include <vector>

#include "dataplane/daemon/rdma_cm/cm_addresses.h"
#include "dataplane/daemon/rdma_cm/cm_ids.h"
#include "dataplane/memory/user_shares.h"

namespace hostnic {

class CmConnections {
 public:
  CmConnections(Daemon& daemon, CmIds& ids, CmAddresses& addresses);
  CmConnections(const CmConnections&) = delete;
  CmConnections& operator=(const CmConnections&) = delete;

  CmResult connect(CmFile& file, const rdma_ucm_connect& command);
  CmResult accept(CmFile& file, const rdma_ucm_accept& command);
  CmResult reject(CmFile& file, const rdma_ucm_reject& command);
  CmResult disconnect(CmFile& file, const rdma_ucm_disconnect& command);
  CmResult notify(CmFile& file, const rdma_ucm_notify& command);
  CmResult init_qp_attr(CmFile& file, const rdma_ucm_init_qp_attr& command);

  // Takes what a NIC's endpoint has to tell.
  void take_events(CmNic& nic);
  // Gives users' shares back for the connections that are gone.
  void settle(CmNic& nic);
  // Looks at kept requests again: somebody may listen now, or will not any more.
  void look_at_kept();
  // When the next one is refused; UINT64_MAX: none is kept.
  TimeNs deadline_ns() const { return kept_.empty() ? UINT64_MAX : kept_.front().refuse_ns; }

 private:
  void take_event(CmNic& nic, const cm::Event& event);
  void take_reply(CmId& id, const cm::Rep& rep, rdma_ucm_event_resp to);
  void take_sidr_reply(CmId& id, const cm::SidrRep& rep, rdma_ucm_event_resp to);
  void take_request(CmNic& nic, const cm::Event& event);
  static void refuse(CmNic& nic, const cm::Event& event,
                     cm::RejectReason reason = cm::RejectReason::kInvalidServiceId);
  void name_loopback(CmId& id, const cm::IpHeader& header) const;
  void refuse_or_keep(CmNic& nic, const cm::Event& event);
  uint64_t guid_of(const CmNic& nic) const;
  bool take_share(std::optional<uint32_t> stranger);
  void give(CmNic& nic, cm::ConnectionId connection, CmId& id);
  std::optional<cm::ConnectionId> ask(CmId& id, const rdma_ucm_conn_param& param);
  std::optional<cm::ConnectionId> request(CmId& id, const rdma_ucm_conn_param& param);

  Daemon& daemon_;
  CmIds& ids_;
  CmAddresses& addresses_;
  // The shares are of all NICs together, not of each.
  UserShares shares_{{UINT64_MAX, UserShares::shares_of(kMaxConnections).strangers,
                      UserShares::shares_of(kMaxConnections).user}};
  // Connection requests, in a lab, for services that nobody offers yet, oldest first.
  struct Kept {
    CmNic* nic;
    cm::Event event;
    TimeNs refuse_ns;
  };
  std::deque<Kept> kept_;
  bool in_lab_;
};

}  // namespace hostnic
