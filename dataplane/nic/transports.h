// SPDX-License-Identifier: BSD-3-Clause
// The transports of a NIC: the one place that names them. What dispatches (receive.cc, transmit.cc,
// commands.cc, qp_commands.cc, nic.cc) calls them through it; each call is resolved when compiled,
// and costs nothing for a transport that takes TransportDefaults' answer.
//
// The NIC's lcore.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/transport/hostnic/bundle_receive.h"
#include "dataplane/nic/transport/hostnic/hostnic.h"
#include "dataplane/nic/transport/mrc/mrc.h"
#include "dataplane/nic/transport/roce/roce.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/transport_services.h"
#include "dataplane/nic/transport/unreliable/unreliable.h"
#include "protocol/transport_kind.h"

namespace hostnic {

class Transports {
 public:
  explicit Transports(const TransportServices& nic)
      : hostnic_(nic), roce_(nic), mrc_(nic), unreliable_(nic) {}

  // Calls visit(transport) with the transport of the queue pair, and returns what it returns.
  template <class Visit>
  [[gnu::always_inline]] auto with(const QpContext& qp, Visit&& visit) {
    return with(*this, qp, visit);
  }
  template <class Visit>
  auto with(const QpContext& qp, Visit&& visit) const {
    return with(*this, qp, visit);
  }
  // Calls visit(transport) with each in turn.
  template <class Visit>
  void for_each(Visit&& visit) {
    visit(hostnic_), visit(roce_), visit(mrc_), visit(unreliable_);
  }
  // The sum of what visit(transport) returns.
  template <class Visit>
  uint32_t sum(Visit&& visit) {
    uint32_t all = visit(hostnic_);
    all += visit(roce_);
    all += visit(mrc_);
    all += visit(unreliable_);
    return all;
  }
  // Calls visit(transport) with each until one returns something that is not 0 or false, and
  // returns that.
  template <class Visit>
  auto first_of(Visit&& visit) {
    if (const auto done = visit(hostnic_)) return done;
    if (const auto done = visit(roce_)) return done;
    if (const auto done = visit(mrc_)) return done;
    return visit(unreliable_);
  }
  // Whether is_so(transport) holds of any.
  template <class IsSo>
  bool any(IsSo&& is_so) const {
    return is_so(hostnic_) || is_so(roce_) || is_so(mrc_) || is_so(unreliable_);
  }
  // When the earliest of them has something to do; UINT64_MAX: none waits for a time.
  TimeNs next_deadline_ns() const {
    return std::min({hostnic_.next_deadline_ns(), roce_.next_deadline_ns(), mrc_.next_deadline_ns(),
                     unreliable_.next_deadline_ns()});
  }
  // How many queue pairs are in the longest of their lists.
  size_t longest_list() const {
    return std::max({hostnic_.waiting(), roce_.waiting(), mrc_.waiting(), unreliable_.waiting()});
  }

  MrcTransport& mrc() { return mrc_; }
  const MrcTransport& mrc() const { return mrc_; }

 private:
  template <class Self, class Visit>
  [[gnu::always_inline]] static auto with(Self& self, const QpContext& qp, Visit&& visit) {
    if (qp.transport == Transport::kHostnic) [[likely]]
      return visit(self.hostnic_);
    if (qp.transport == Transport::kMrc) return visit(self.mrc_);
    return qp.transport == Transport::kRoce ? visit(self.roce_) : visit(self.unreliable_);
  }

  HostnicTransport hostnic_;
  RoceTransport roce_;
  MrcTransport mrc_;
  UnreliableTransport unreliable_;
};

}  // namespace hostnic
