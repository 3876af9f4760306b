// SPDX-License-Identifier: BSD-3-Clause
// What RDMA netlink tells a program of this hostnicd's NICs: values from where the commands `show
// qp`, `show client` and `show cm` have theirs, of what the asker may see. The control thread only.
#pragma once

#include <list>
#include <utility>
#include <vector>

#include "dataplane/daemon/clients/session.h"
#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/observe/view.h"
#include "protocol/nldev/objects.h"

namespace hostnic {

class NetlinkObjects final : public nldev::Objects {
 public:
  // `view` is null where all NICs are seen; `sessions` are asked for what is on their boards. All
  // must outlive this.
  NetlinkObjects(Daemon& daemon, const Asker& asker, const View* view,
                 const RdmaNetlinkRequest& request, std::list<ClientSession>& sessions)
      : daemon_(daemon), asker_(asker), view_(view), request_(request), sessions_(sessions) {}

  std::vector<nldev::Device> devices() const override;
  std::vector<nldev::Qp> qps(const nldev::Device& device) const override;
  std::vector<nldev::Cq> cqs(const nldev::Device& device) const override;
  std::vector<nldev::Pd> pds(const nldev::Device& device) const override;
  std::vector<nldev::Mr> mrs(const nldev::Device& device) const override;
  std::vector<nldev::Srq> srqs(const nldev::Device& device) const override;
  std::vector<nldev::OpenContext> contexts(const nldev::Device& device) const override;
  std::vector<nldev::CmId> cm_ids(const nldev::Device& device) const override;
  std::vector<std::pair<std::string, uint64_t>> counters(
      const nldev::Device& device) const override;

 private:
  std::vector<ClientInfo> clients(const nldev::Device& device) const;
  std::vector<QpView> qp_views(const nldev::Device& device) const;
  // Calls visit(client, line) for the lines of that kind on the boards of a device's clients.
  template <typename Visit>
  void visit_lines(const nldev::Device& device, ObjectKind kind, Visit&& visit) const;

  Daemon& daemon_;
  const Asker& asker_;
  const View* view_;
  const RdmaNetlinkRequest& request_;
  std::list<ClientSession>& sessions_;
};

}  // namespace hostnic
